"""Run a command among processes and in a network of its own (two Linux namespaces); the network has the loopback device and nothing else.

    python tests/engine/cluster/loopback.py COMMAND ...

Ray then binds to 127.0.0.1, and nothing that a test starts can reach or be reached from outside. `ray stop` and tests that kill see no
other Ray, and nothing outlives the command. Where the machine allows no such namespaces the command runs without, alone of its kind,
and this says so.
"""

import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1
INSIDE = "--inside"


def raise_loopback() -> None:
    """Bring the namespace's loopback device up (netdevice(7))."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        name, flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, struct.pack("16sh14x", b"lo", 0)))
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", name, flags | IFF_UP))


def run_first(command: list[str]) -> int:
    """Run a command as the first process of a namespace has to: reap what others leave. Return its exit code."""
    # Ray notes the address of the last cluster in its folder.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(command, env={**os.environ, "RAY_TMPDIR": folder})
        while True:
            pid, status = os.wait()
            if pid == process.pid:
                return os.waitstatus_to_exitcode(status)


def main(command: list[str]) -> None:
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  with Ray's own 15, actors hardly get a processor beside other tests
    if command[0] == INSIDE:
        raise_loopback()
        sys.exit(run_first(command[1:]))
    isolated = ["unshare", "--user", "--map-root-user", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if shutil.which("unshare") and not subprocess.run([*isolated, "true"], capture_output=True, check=False).returncode:
        os.execvp(isolated[0], [*isolated, sys.executable, __file__, INSIDE, *command])  # noqa: S606
    print("no namespaces are to be had here: the command runs in this machine's network, among its processes", file=sys.stderr)
    with Path("/tmp/populora-ray-tests.lock").open("w") as lock:  # noqa: S108  one for all: they would kill each other's actors
        fcntl.flock(lock, fcntl.LOCK_EX)
        sys.exit(subprocess.run(command, check=False).returncode)


if __name__ == "__main__":
    main(sys.argv[1:])
