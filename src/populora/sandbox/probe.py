"""Test the layers on this machine: each is applied in a throw-away process, which then tries what the layer forbids.

Runs inside the isolated interpreter; standard library only.
"""

import os
import platform
import signal
import socket
from collections.abc import Callable
from typing import Any

from populora.sandbox import jail


def attempt(layer: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Try ``namespaces``, ``landlock``, ``seccomp`` or ``limits``. Returns ``{"holds": bool, "detail": str}``."""
    try:
        holds, detail = {"namespaces": _namespaces, "landlock": _landlock, "seccomp": _seccomp, "limits": _limits}[layer](settings)
    except OSError as error:
        return {"holds": False, "detail": str(error)}
    return {"holds": holds, "detail": detail}


def _namespaces(settings: dict[str, Any]) -> tuple[bool, str]:
    if os.path.exists("/etc/passwd") or os.path.exists("/proc/self"):
        return False, "files outside the jail are visible"
    if len(socket.if_nameindex()) > 1:
        return False, "the machine's network is visible"
    return os.getpid() < 10, "own files, network and process numbers"


def _landlock(settings: dict[str, Any]) -> tuple[bool, str]:
    jail.drop_privileges(become_nobody=False)
    jail.restrict_files()
    with open(os.__file__, "rb") as readable:
        readable.read(1)
    return _denied(lambda: os.listdir("/")), f"ABI {jail.landlock_abi()}"


def _seccomp(settings: dict[str, Any]) -> tuple[bool, str]:
    machine = platform.machine()  # the filter hides it
    outer, inner = jail.filters()
    jail.drop_privileges(become_nobody=False)
    outer.load()
    for act, expected in ((_fork, signal.SIGSYS), (_write_file, 0), (lambda: None, 0)):
        pid = os.fork()
        if pid == 0:
            inner.load()
            act()
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if status != expected:
            return False, f"a forbidden call ended with status {status}, expected {int(expected)}"
    return True, f"{machine} filter"


def _limits(settings: dict[str, Any]) -> tuple[bool, str]:
    try:
        jail.drop_privileges(become_nobody=True)
    except PermissionError:  # root of a container that may not change its user
        jail.drop_privileges(become_nobody=False)
    jail.limit_memory_and_files(settings["limits"])
    jail.limit_time_and_processes(settings["limits"])
    try:
        bytearray(2 * int(settings["limits"]["memory_mb"]) << 20)
    except MemoryError:
        return True, "memory, CPU time, files" + (", processes" if _denied(_fork) else " (processes by the filter only)")
    return False, "memory is not limited"


def _denied(act: Callable[[], object]) -> bool:
    try:
        act()
    except OSError:
        return True
    return False


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)
    os.wait()


def _write_file() -> None:
    if not _denied(lambda: os.open("/dev/null", os.O_WRONLY)):
        os._exit(3)
