"""Run a command in a network namespace of its own that has the loopback device and nothing else.

    python tests/engine/cluster/loopback.py COMMAND ...

Ray then binds to 127.0.0.1, and nothing that a test starts can reach or be reached from outside. Where the machine allows no such
namespace the command runs without, and this says so.
"""

import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys

SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1
INSIDE = "--inside"


def raise_loopback() -> None:
    """Bring the namespace's loopback device up (netdevice(7))."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        name, flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, struct.pack("16sh14x", b"lo", 0)))
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", name, flags | IFF_UP))


def main(command: list[str]) -> None:
    if command[0] == INSIDE:
        raise_loopback()
        os.execvp(command[1], command[1:])  # noqa: S606
    isolated = ["unshare", "--user", "--map-root-user", "--net"]
    if shutil.which("unshare") and not subprocess.run([*isolated, "true"], capture_output=True, check=False).returncode:
        os.execvp(isolated[0], [*isolated, sys.executable, __file__, INSIDE, *command])  # noqa: S606
    print("no network namespace is to be had here: the command runs in this machine's network", file=sys.stderr)
    os.execvp(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
