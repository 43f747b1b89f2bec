"""The system-call filters as classic BPF, for x86-64 and AArch64 (Linux `seccomp(2)`, no library needed).

There are two, because loading a long one takes a tenth of a child's time. The zygote loads the long one once, an allowlist for
computing, memory, reading files and clocks, and for its own forking and watching. A child inherits it and adds the short one, which
forbids the zygote's own calls. Of two filters the kernel applies the stricter verdict.

Calls on no list fail with EPERM, so that an ordinary slip is an ordinary exception. Calls that only an attack makes kill the
process, which no handler can hide. `open` for writing fails, and so do process numbers (`os.getpid()` is -1), the machine's
name, its load and its uptime, as they would differ from run to run.
"""

import struct

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

ALLOWED = {  # name: (x86_64, aarch64); None where the architecture has no such call
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "fstat": (5, 80), "newfstatat": (262, 79), "statx": (332, 291),
    "stat": (4, None), "lstat": (6, None), "lseek": (8, 62), "pread64": (17, 67), "readv": (19, 65), "writev": (20, 66),
    "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "mremap": (25, 216), "madvise": (28, 233), "brk": (12, 214),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "sigaltstack": (131, 132),
    "access": (21, None), "faccessat": (269, 48), "faccessat2": (439, 439), "readlink": (89, None), "readlinkat": (267, 78),
    "getdents64": (217, 61), "getcwd": (79, 17), "getuid": (102, 174), "geteuid": (107, 175), "getgid": (104, 176),
    "getegid": (108, 177), "futex": (202, 98),
    "sched_yield": (24, 124), "sched_getaffinity": (204, 123), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115), "nanosleep": (35, 101), "gettimeofday": (96, 169), "time": (201, None),
    "getrusage": (98, 165), "getrandom": (318, 278), "poll": (7, None),
    "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72), "dup": (32, 23), "exit": (60, 93), "exit_group": (231, 94),
    "restart_syscall": (219, 128), "rseq": (334, 293), "set_robust_list": (273, 99), "set_tid_address": (218, 96),
}  # fmt: skip
"""Calls that a program may make."""

ZYGOTE_ONLY = {
    "recvmsg": (47, 212), "sendto": (44, 206), "wait4": (61, 260), "waitid": (247, 95), "setpgid": (109, 154), "prctl": (157, 167),
    "getppid": (110, 173), "getpid": (39, 172), "dup2": (33, None), "dup3": (292, 24), "close_range": (436, 436),
    "setitimer": (38, 103), "setrlimit": (160, 164), "prlimit64": (302, 261), "seccomp": (317, 277),
}  # fmt: skip
"""Further calls of the fork server and of a child until it loads the short filter."""

ZYGOTE_KILLS = {"kill": (62, 129), "fork": (57, None)}
"""Further calls of the fork server that kill a program."""

KILLED = {
    "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281), "socket": (41, 198), "connect": (42, 203),
    "bind": (49, 200), "listen": (50, 201), "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "setns": (308, 268), "unshare": (272, 97), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "init_module": (175, 105), "finit_module": (313, 273),
    "kexec_load": (246, 104), "reboot": (169, 142), "open_by_handle_at": (304, 265),
}  # fmt: skip

CONDITIONAL = {"openat": (257, 56), "clone": (56, 220), "clone3": (435, 435)}

_X32 = 0x40000000
_CLONE_THREAD = 0x10000
_CLONE_NEW = 0x7E020080  # every kind of namespace
_OPEN_FOR_WRITING = 0o3 | 0o100 | 0o1000 | 0o2000 | 0o20000000  # access mode, O_CREAT, O_TRUNC, O_APPEND, O_TMPFILE
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF opcodes
_VERDICTS = {"allow": 0x7FFF0000, "kill": 0x80000000, "eperm": 0x00050000 | 1, "enosys": 0x00050000 | 38}
_NR, _ARCH, _ARGS = 0, 4, 16  # offsets in struct seccomp_data; arguments are 8 bytes each, low half first

_Step = tuple[int, int, str, str]  # opcode, operand, target if true, target if false ("" is the next step)
_Table = dict[str, tuple[int | None, int | None]]


def zygote_filter(machine: str, threads: bool = False) -> bytes:
    """Build the long filter for ``platform.machine()``, 8 bytes per instruction. Raises `KeyError` where there is no table."""
    column = _column(machine)
    openat, clone, clone3 = (CONDITIONAL[name][column] for name in ("openat", "clone", "clone3"))
    steps: list[_Step] = [
        (_LOAD, _ARCH, "", ""), (_EQUAL, AUDIT_ARCH[machine], "", "kill"), (_LOAD, _NR, "", ""), (_AT_LEAST, _X32, "kill", ""),
        (_EQUAL, openat, "openat", ""), (_EQUAL, clone, "clone", ""),
        (_EQUAL, clone3, "enosys", ""),  # its flags lie in memory that a filter cannot read: the C library falls back to clone
        *_each({**ALLOWED, **ZYGOTE_ONLY, **ZYGOTE_KILLS}, column, "allow"), *_each(KILLED, column, "kill"),
        (_RETURN, _VERDICTS["eperm"], "", ""),
    ]  # fmt: skip
    opening: list[_Step] = [(_LOAD, _ARGS + 2 * 8, "", ""), (_ANY_BIT, _OPEN_FOR_WRITING, "eperm", "allow")]
    cloning: list[_Step] = [
        (_LOAD, _ARGS, "", ""), (_ANY_BIT, _CLONE_NEW, "kill", ""), (_ANY_BIT, _CLONE_THREAD, "allow" if threads else "eperm", "allow")
    ]  # fmt: skip
    return _assemble(steps, openat=opening, clone=cloning)


def child_filter(machine: str, threads: bool = False) -> bytes:
    """Build the short filter, to be added to the long one. Raises `KeyError` where there is no table."""
    column = _column(machine)
    steps: list[_Step] = [
        (_LOAD, _NR, "", ""), (_EQUAL, CONDITIONAL["clone"][column] or 0, "clone", ""),
        *_each(ZYGOTE_ONLY, column, "eperm"), *_each(ZYGOTE_KILLS, column, "kill"), (_RETURN, _VERDICTS["allow"], "", ""),
    ]  # fmt: skip
    cloning: list[_Step] = [(_LOAD, _ARGS, "", ""), (_ANY_BIT, _CLONE_THREAD, "allow" if threads else "eperm", "kill")]
    return _assemble(steps, clone=cloning)


def _column(machine: str) -> int:
    if machine not in AUDIT_ARCH:
        raise KeyError(machine)
    return list(AUDIT_ARCH).index(machine)


def _each(table: _Table, column: int, verdict: str) -> list[_Step]:
    return [(_EQUAL, number, verdict, "") for number in (numbers[column] for numbers in table.values()) if number is not None]


def _assemble(steps: list[_Step], **branches: list[_Step]) -> bytes:
    """Assemble the steps, then the branches and verdicts that they jump to (jumps only go forwards)."""
    code, places = list(steps), {}
    for name, branch in [*branches.items(), *((name, [(_RETURN, verdict, "", "")]) for name, verdict in _VERDICTS.items())]:
        places[name] = len(code)
        code += branch
    return b"".join(
        struct.pack(
            "<HBBI", opcode, places[if_true] - index - 1 if if_true else 0, places[if_false] - index - 1 if if_false else 0, operand
        )
        for index, (opcode, operand, if_true, if_false) in enumerate(code)
    )
