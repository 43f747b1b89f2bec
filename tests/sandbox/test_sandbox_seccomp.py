"""The system-call filters: their numbers are libseccomp's, and their code decides as the tables say, on both architectures."""

import ctypes
import ctypes.util
import struct

import pytest

from populora.sandbox.seccomp import (
    ALLOWED,
    AUDIT_ARCH,
    CONDITIONAL,
    KILLED,
    ZYGOTE_KILLS,
    ZYGOTE_ONLY,
    child_filter,
    zygote_filter,
)

ALLOW, KILL, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026


def interpret(code: bytes, data: bytes) -> int:
    """An independent reading of classic BPF."""
    steps = list(struct.iter_unpack("<HBBI", code))
    at = accumulator = 0
    while True:
        operation, yes, no, operand = steps[at]
        at += 1
        if operation == 0x20:
            accumulator = struct.unpack_from("<I", data, operand)[0]
        elif operation == 0x06:
            return operand
        else:
            holds = {0x15: accumulator == operand, 0x35: accumulator >= operand, 0x45: bool(accumulator & operand)}[operation]
            at += yes if holds else no


def decide(machine: str, number: int, arguments: tuple[int, ...] = (), arch: int | None = None, threads: bool = False, child: bool = True):
    """What the kernel makes of the filters of a zygote or, on top of it, of its child: the strictest verdict."""
    data = struct.pack("<IIQ6Q", number, arch or AUDIT_ARCH[machine], 0, *(*arguments, 0, 0, 0, 0, 0, 0)[:6])
    codes = [zygote_filter(machine, threads), *([child_filter(machine, threads)] if child else [])]
    return sorted((interpret(code, data) for code in codes), key=[KILL, EPERM, ENOSYS, ALLOW].index)[0]


MACHINES = pytest.mark.parametrize(("machine", "column"), [("x86_64", 0), ("aarch64", 1)])


@MACHINES
def test_every_number_gets_the_verdict_of_its_table(machine, column):
    allowed, ours, killing, killed, special = (
        {numbers[column] for numbers in table.values()} for table in (ALLOWED, ZYGOTE_ONLY, ZYGOTE_KILLS, KILLED, CONDITIONAL)
    )
    for number in set(range(600)) - special:
        program = ALLOW if number in allowed else KILL if number in killed | killing else EPERM
        zygote = ALLOW if number in ours | killing else program
        assert decide(machine, number) == program and decide(machine, number, child=False) == zygote, number


@MACHINES
def test_conditional_calls(machine, column):
    openat, clone, clone3 = (CONDITIONAL[name][column] for name in ("openat", "clone", "clone3"))
    assert decide(machine, openat, (0, 0, 0o2000000)) == ALLOW  # O_RDONLY | O_CLOEXEC
    for flags in (1, 2, 0o100, 0o1000, 0o2000, 0o20200000):
        assert decide(machine, openat, (0, 0, flags)) == EPERM, oct(flags)
    assert decide(machine, clone, (17,)) == KILL and decide(machine, clone, (17,), child=False) == ALLOW  # fork
    assert decide(machine, clone, (0x10000,)) == EPERM  # thread
    assert decide(machine, clone, (0x10000,), threads=True) == ALLOW
    assert decide(machine, clone, (17,), threads=True) == KILL
    for namespace in (0x10000000, 0x20000000, 0x20000, 0x40000000, 0x80):  # user, process numbers, mounts, network, time
        assert decide(machine, clone, (17 | namespace,), child=False) == KILL
        assert decide(machine, clone, (0x10000 | namespace,), threads=True) == KILL
    assert decide(machine, clone3) == ENOSYS


def test_calls_of_another_architecture_kill():
    assert decide("x86_64", 0, arch=0x40000003) == KILL  # i386
    assert decide("x86_64", 0x40000000) == KILL  # x32
    assert decide("aarch64", 63, arch=AUDIT_ARCH["x86_64"]) == KILL


def test_an_unknown_architecture_has_no_filter():
    for build in (zygote_filter, child_filter):
        with pytest.raises(KeyError):
            build("riscv64")


def test_numbers_are_those_of_libseccomp():
    name = ctypes.util.find_library("seccomp")
    if name is None:
        pytest.skip("libseccomp is not installed")
    resolve = ctypes.CDLL(name).seccomp_syscall_resolve_name_arch
    resolve.argtypes = [ctypes.c_uint32, ctypes.c_char_p]
    for call, numbers in {**ALLOWED, **ZYGOTE_ONLY, **ZYGOTE_KILLS, **KILLED, **CONDITIONAL}.items():
        for arch, number in zip(AUDIT_ARCH.values(), numbers, strict=True):
            known = resolve(arch, call.encode())
            assert (number == known) if number is not None else known < 0, call
