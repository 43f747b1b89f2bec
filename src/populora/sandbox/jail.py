"""The layers of the jail, which a process applies to itself: resource limits, no capabilities, Landlock, seccomp (Linux, by ctypes).

Standard library only: this runs inside the isolated interpreter. Raises `OSError` when the kernel refuses a layer.
"""

import ctypes
import os
import platform
import resource
import signal
import sys
import sysconfig
from collections.abc import Callable, Iterable

from populora.sandbox import seccomp

_libc = ctypes.CDLL(None, use_errno=True)
_PDEATHSIG, _DUMPABLE, _KEEPCAPS, _SECCOMP, _NO_NEW_PRIVS = 1, 4, 8, 22, 38  # prctl options
_DAC_READ_SEARCH = 1 << 2
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
_READ_FILE, _READ_DIR = 4, 8
_LIBRARIES = "libz libbz2 liblzma libcrypto libssl libffi libmpdec libexpat libsqlite3 libuuid".split()
_CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine()) if sys.platform == "linux" else None
_CHILD_ENDS = int(signal.SIGCHLD)
_call_with_lock = ctypes.PyDLL(None, use_errno=True).syscall  # keeps the interpreter's lock, as a fork must
NOBODY = 65534
OPEN_FILES = 64


def _call(function: str, *arguments: object) -> int:
    result = getattr(_libc, function)(*arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{function}: {os.strerror(code)}")
    return result


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent ends; exit if it already has."""
    if sys.platform == "linux":
        _call("prctl", _PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)


def drop_privileges(become_nobody: bool) -> None:
    """Give up all capabilities and the right to gain new ones; with ``become_nobody`` root also changes its user.

    The kernel does not limit root's processes, so without a filter root must become another user. It keeps the right to read then,
    as the standard library may be in root's home; a jail without Landlock does not limit reading anyway.
    """
    rights = 0
    if become_nobody and os.geteuid() == 0:
        if sys.platform == "linux":
            _call("prctl", _KEEPCAPS, 1, 0, 0, 0)
            rights = _DAC_READ_SEARCH
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    if sys.platform == "linux":
        _call("prctl", _NO_NEW_PRIVS, 1, 0, 0, 0)
        _call("prctl", _DUMPABLE, 0, 0, 0, 0)
        _call("capset", (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(rights, rights))


def fork() -> int:
    """Fork a process with one thread, without the hooks of `os.fork`, which would slow a trivial program by a twentieth.

    Raises `OSError`.
    """
    if _CLONE is None:
        return os.fork()
    pid = _call_with_lock(_CLONE, _CHILD_ENDS, 0, 0, 0, 0)
    if pid < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"fork: {os.strerror(code)}")
    return pid


def limit_memory_and_files(limits: dict[str, float]) -> None:
    """Apply the limits of a zygote, which every child inherits."""
    memory = int(limits["memory_mb"]) << 20
    for limit, bound in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_STACK, 8 << 20),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
    ):
        hard = resource.getrlimit(limit)[1]
        allowed = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
        resource.setrlimit(limit, (allowed, allowed))


def limit_time_and_processes(limits: dict[str, float], threads: bool = False) -> None:
    """Apply the limits of the child that runs a program: SIGPROF at the CPU limit, SIGKILL at the next whole second.

    It may start no process, and no thread unless ``threads`` (only where a filter forbids processes).
    """
    signal.setitimer(signal.ITIMER_PROF, limits["cpu_seconds"])
    seconds = int(limits["cpu_seconds"]) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    if not threads:
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


def landlock_abi() -> int:
    """Return the version of the kernel's Landlock interface. Raises `OSError` where there is none."""
    return _call("syscall", _CREATE_RULESET, None, ctypes.c_size_t(0), 1)


def restrict_files(packages: Iterable[str] = ()) -> None:
    """Apply Landlock: only the standard library and the folders ``packages`` can be read; no TCP, no signals to outside."""
    abi = landlock_abi()
    files = (1 << 13) - 1 | (abi >= 2) << 13 | (abi >= 3) << 14 | (abi >= 5) << 15
    attributes = (ctypes.c_uint64 * 3)(files, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = _call("syscall", _CREATE_RULESET, attributes, ctypes.c_size_t(size), 0)
    for folder in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}:
        _allow(ruleset, folder, _READ_DIR)
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if name not in ("site-packages", "dist-packages") and os.path.exists(path):  # a link may lead out of the jail
                _allow(ruleset, path, _READ_FILE)
    for folder in packages:
        _allow(ruleset, folder, _READ_DIR | _READ_FILE)
    for path in _libraries():
        _allow(ruleset, path, _READ_FILE)
    _call("syscall", _RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _libraries() -> list[str]:
    """Find the system libraries that modules of the standard library load."""
    folders = [f"{root}/{sysconfig.get_config_var('MULTIARCH')}" for root in ("/lib", "/usr/lib")] + ["/lib64", "/usr/lib64", "/usr/lib"]
    listed = [entry for folder in folders if os.path.isdir(folder) for entry in os.scandir(folder)]
    return [entry.path for entry in listed if entry.name.partition(".so")[0] in _LIBRARIES and ".so" in entry.name and entry.is_file()]


def _allow(ruleset: int, path: str, access: int) -> None:
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    rule = access.to_bytes(8, sys.byteorder) + handle.to_bytes(4, sys.byteorder)
    _call("syscall", _ADD_RULE, ruleset, 1, rule, 0)
    os.close(handle)


class Filter:
    """A prepared seccomp filter: `seccomp.zygote_filter` or `seccomp.child_filter`. Raises `OSError` on unknown architectures."""

    def __init__(self, build: Callable[[str, bool], bytes], threads: bool = False) -> None:
        try:
            code = build(platform.machine(), threads)
        except KeyError as error:
            raise OSError(f"no system-call table for {error}") from error
        self._code = ctypes.create_string_buffer(code, len(code))

        class Program(ctypes.Structure):  # struct sock_fprog
            _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]

        self._program = Program(len(code) // 8, ctypes.addressof(self._code))

    def load(self) -> None:
        """Filter this process from now on; this cannot be undone."""
        _call("prctl", _SECCOMP, 2, ctypes.byref(self._program), 0, 0)


def filters(threads: bool = False) -> tuple[Filter, Filter]:
    """Build the filter of a zygote and the additional one of its children."""
    return Filter(seccomp.zygote_filter, threads), Filter(seccomp.child_filter, threads)
