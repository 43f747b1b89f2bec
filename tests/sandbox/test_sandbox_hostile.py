"""Hostile programs with the verdict that each must get; the pool is alive and correct after every one of them."""

import os

import pytest

from populora.core.types import VerdictKind
from populora.sandbox.pool import SandboxPool
from populora.sandbox.protocol import Job, Limits

CONTROL = Job("run", "def f(x):\n    return x + 1", ("41",))

BLOCKED, CPU, NOTHING = {"blocked seccomp"}, {"timeout cpu"}, {"error exit_without_result"}
NO_FILE = {"error exception:PermissionError", "error exception:FileNotFoundError"}


def forge(body: bytes, then: str) -> str:
    """A program that writes a frame of its own before it does ``then``."""
    return f"import os\ndef f(x):\n os.write(3, {len(body).to_bytes(4, 'big') + body!r})\n {then}"


HOSTILE = {  # name: (body of a program, verdicts that it may get)
    "endless loop": ("def f(x):\n while True: pass", CPU),
    "endless loop at import": ("while True: pass\ndef f(x): return x", CPU),
    "endless loop that ignores signals": (
        "import signal\nsignal.signal(signal.SIGPROF, lambda *a: None)\ndef f(x):\n while True: pass", CPU,
    ),
    "sleep": ("import time\ndef f(x): time.sleep(60)", {"timeout wall"}),
    "catches everything": ("def f(x):\n while True:\n  try:\n   while True: pass\n  except BaseException: pass", CPU),
    "power tower": ("def f(x): return 9 ** 9 ** 9", {"timeout cpu", "error memory", "error output_limit"}),
    "memory bomb": ("def f(x): return bytearray(10 ** 10)", {"error memory"}),
    "growing list": ("def f(x):\n a = [0]\n while True: a += a", {"error memory"}),
    "long string": ("def f(x): return 'x' * 10 ** 6", {"error output_limit"}),
    "long list": ("def f(x): return [0] * 10 ** 7", {"error output_limit"}),
    "one character too long": ("def f(x): return 'x' * 399", {"error output_limit"}),
    "huge integer": ("def f(x): return 10 ** 5000", {"error output_limit"}),
    "exponential value": ("def f(x):\n a = []\n for _ in range(50): a = [a, a]\n return a", {"error output_limit"}),
    "self-reference": ("def f(x):\n a = []\n a.append(a)\n return a", {"error unsupported_value"}),
    "deep recursion": ("def f(x): return f(x)", {"error exception:RecursionError"}),
    "unbounded recursion": (
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(x): return f(x)", {"error memory", "error signal", "timeout cpu"},
    ),
    "fork bomb": ("import os\ndef f(x):\n while True: os.fork()", BLOCKED),
    "subprocess": ("import subprocess\ndef f(x): subprocess.run(['id'], stdin=0, stdout=1, stderr=2)", {"error exception:PermissionError"}),
    "exec": ("import os\ndef f(x): os.execv('/bin/sh', ['sh'])", BLOCKED),
    "thread": ("import threading\ndef f(x): threading.Thread(target=print).start()", {"error exception:RuntimeError"}),
    "socket": ("import socket\ndef f(x): return socket.socket().fileno()", BLOCKED),
    "kill the parent": ("import os\ndef f(x): os.kill(os.getppid(), 9)", BLOCKED),
    "kill everything": ("import os\ndef f(x): os.kill(-1, 9)", BLOCKED),
    "kill the group": ("import os\ndef f(x): os.killpg(0, 9)", BLOCKED),
    "raw ptrace": ("import ctypes\ndef f(x): return ctypes.CDLL(None).ptrace(0, 0, 0, 0)", BLOCKED),
    "new namespace": ("import ctypes\ndef f(x): return ctypes.CDLL(None).unshare(0x10000000)", BLOCKED),
    "raise own limits": ("import resource as r\ndef f(x): r.setrlimit(r.RLIMIT_CPU, (99, 99))", {"error exception:ValueError"}),
    "read a file": ("def f(x): return open('/etc/passwd').read(10)", NO_FILE),
    "read process memory": ("def f(x): return open('/proc/self/mem', 'rb').read(1)", NO_FILE),
    "list files": ("import os\ndef f(x): return os.listdir('/')", {"error exception:PermissionError"}),
    "import this project": ("import populora.core.errors\ndef f(x): return x", {"error exception:ModuleNotFoundError"}),
    "write a file": ("def f(x): return open('/tmp/populora_was_here', 'w').write('x')", NO_FILE),
    "write the standard library": (
        "import os\ndef f(x): return open(os.__file__, 'r+').write('x')", {"error exception:PermissionError", "error exception:OSError"},
    ),
    "remove a file": ("import os\ndef f(x): os.unlink('/etc/hostname')", {"error exception:PermissionError"}),
    "exit": ("import sys\ndef f(x): sys.exit(0)", {"error exception:SystemExit"}),
    "silent exit": ("import os\ndef f(x): os._exit(0)", NOTHING),
    "abort": ("import os\ndef f(x): os.abort()", {"error signal"}),
    "null pointer": ("import ctypes\ndef f(x): ctypes.string_at(0)", {"error signal"}),
    "keyboard interrupt": ("def f(x): raise KeyboardInterrupt", {"error exception:KeyboardInterrupt"}),
    "stop iteration": ("def f(x): raise StopIteration", {"error exception:StopIteration"}),
    "own exception": ("class Strange(ValueError): pass\ndef f(x): raise Strange", {"error exception:ValueError"}),
    "hostile exception": (
        "class M(type):\n __name__ = property(lambda c: 1 / 0)\nclass E(Exception, metaclass=M): pass\ndef f(x): raise E",
        {"error exception:Exception", "error exit_without_result"},
    ),
    "hostile equality": ("class S:\n __eq__ = lambda a, b: True\n __hash__ = None\ndef f(x): return S()", {"error unsupported_value"}),
    "hostile repr": ("class Five(int):\n __repr__ = lambda s: '5'\ndef f(x): return Five(6)", {"error unsupported_value"}),
    "hostile pickle": ("class Evil:\n __reduce__ = lambda s: (print, ())\ndef f(x): return [Evil()]", {"error unsupported_value"}),
    "not a number": ("def f(x): return [float('nan')]", {"error unsupported_value"}),
    "complex not a number": ("def f(x): return complex('nan+1j')", {"error unsupported_value"}),
    "generator": ("def f(x): yield x", {"error unsupported_value"}),
    "no entry point": ("def g(x): return x", {"error no_entry_point"}),
    "entry point is no function": ("f = 5", {"error no_entry_point"}),
    "syntax": ("def f(x) return x", {"error syntax"}),
    "null byte": ("def f(x): return 1\0", {"error syntax"}),
    "surrogate": ("def f(x): return '\ud800'", {"error syntax"}),
    "nested minus": ("def f(x): return " + "-" * 60000 + "1", {"error syntax"}),
    "nested brackets": ("x = " + "[" * 5000 + "]" * 5000, {"error syntax"}),
    "ten megabytes": ("#" * 10_000_000, {"error source_limit"}),
    "half a frame": ("import os\ndef f(x):\n os.write(3, b'\\0\\0\\0\\x09[')\n os._exit(0)", NOTHING),
    "forged verdict": (forge(b'[{"kind": "blocked"}]', "os._exit(0)"), NOTHING),
    "forged tree": (forge(b'[{"kind": "ok", "values": [["f", "nan"]]}]', "os._exit(0)"), NOTHING),
    "forged number of values": (forge(b'[{"kind": "ok", "values": []}]', "os._exit(0)"), NOTHING),
    "forged depth": (forge(b'[' * 50000, "os._exit(0)"), NOTHING),
    "frame before the frame": (forge(b'[{"kind": "ok", "values": ["a"]}]', "return 1"), NOTHING),
    "flood": (
        "import os\ndef f(x):\n while True: os.write(3, bytes(65536))",
        {"error exception:BrokenPipeError", "error exit_without_result", "timeout cpu"},
    ),
    "closed channel": ("import os\ndef f(x):\n os.close(3)\n return 1", NOTHING),
    "patched exit": ("import os\nos._exit = lambda code: None\ndef f(x): os._exit(0); raise SystemExit", {"error exception:SystemExit"}),
    "patched jail": (
        "import sys\ndef f(x):\n frame = sys._getframe(1)\n while frame: frame.f_globals.clear(); frame = frame.f_back",
        NOTHING,
    ),
}  # fmt: skip


@pytest.fixture(scope="session")
def verdicts(strong):
    """All programs in one call, as a trainer would do it, a control behind each."""
    jobs = [job for program, _ in HOSTILE.values() for job in (Job("run", program, ("1",)), CONTROL)]
    return strong, dict(zip(HOSTILE, strong.run(jobs)[::2], strict=True))


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_program_gets_its_verdict(verdicts, name):
    pool, found = verdicts
    verdict = found[name]
    assert f"{verdict.kind} {verdict.reason}" in HOSTILE[name][1]
    assert verdict.values == ()
    control = pool.run([CONTROL])[0]
    assert control.ok and control.values[0].literal == "42"


def test_a_value_of_exactly_the_longest_literal_passes(strong):
    (verdict,) = strong.run([Job("run", "def f(n): return 'x' * n", ("398",))])
    assert len(verdict.values[0].literal) == 400


def test_a_forged_value_is_only_the_programs_own_claim(strong):
    program = forge(b'[{"kind": "ok", "values": [["i", "7"]]}]', "os._exit(0)")
    (verdict,) = strong.run([Job("run", program, ("1",))])
    assert (verdict.values[0].literal, verdict.values[0].canonical, verdict.values[0].comparable) == ("7", "i7", "i7")


def test_a_program_finds_no_descriptors_environment_or_threads_of_ours(strong):
    program = (
        "import os\ndef f():\n seen = []\n for n in range(64):\n  try: os.fstat(n); seen.append(n)\n  except OSError: pass\n"
        " return seen, dict(os.environ), os.getpid(), os.uname()[1]"
    )
    (verdict,) = strong.run([Job("run", program, ("",))])
    assert verdict.ok, verdict
    assert verdict.values[0].literal == "([0, 1, 2, 3], {}, -1, 'sandbox')"


def test_a_trainer_with_many_open_files_hands_none_of_them_on():
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(100)]  # what is opened now, the control sockets too, has a high number
    try:
        with SandboxPool(Limits(), workers=1) as pool:
            program = "import os\ndef f(n):\n seen = []\n for k in range(n):\n  try: os.fstat(k); seen.append(k)\n  except OSError: pass"
            (verdict,) = pool.run([Job("run", f"{program}\n return seen", ("400",))])
    finally:
        for descriptor in held:
            os.close(descriptor)
    assert verdict.ok, verdict
    assert verdict.values[0].literal == "[0, 1, 2, 3]"


def test_patched_builtins_do_not_reach_the_next_program(strong):
    patch = (
        "import builtins, math\nbuiltins.sorted = lambda x: 7\nmath.pi = 3\nbuiltins.leaked = True\ndef f(x): return sorted([]), math.pi"
    )
    look = "import builtins, math\ndef f(x): return sorted([]), math.pi > 3, hasattr(builtins, 'leaked')"
    first, *others = strong.run([Job("run", patch, ("0",)), *(Job("run", look, (str(i),)) for i in range(8))])
    assert first.values[0].literal == "(7, 3)"
    assert {verdict.values[0].literal for verdict in others} == {"([], True, False)"}


NONDETERMINISTIC = {
    "set order": "def f(x): return list({'alpha', 'beta', 'gamma', 'delta', 'epsilon'})",
    "hash": "def f(x): return hash('text')",
    "address": "def f(x): return id([])",
    "low bits of an address": "def f(x): return id(object()) // 16 % 256",
    "default repr": "class C: pass\nc = C()\ndef f(x): return str(c)",
    "random": "import random\ndef f(x): return random.random()",
    "entropy": "import os\ndef f(x): return os.urandom(4)",
    "clock": "import time\ndef f(x): return time.time()",
    "counter": "n = 0\ndef f(x):\n global n\n n += 1\n return n",
    "mutable default": "def f(x, seen=[]):\n seen.append(x)\n return len(seen)",
}


@pytest.mark.parametrize("name", NONDETERMINISTIC)
def test_nondeterminism_is_rejected(strong, name):
    (verdict,) = strong.run([Job("run", NONDETERMINISTIC[name], ("1",))], twice=True)
    assert verdict.kind is VerdictKind.REJECTED_NONDETERMINISTIC


def test_an_error_in_only_one_of_two_processes_is_nondeterminism(strong):
    first = "list(set('abcdefghijklmnopqrstuvwxyz'))[0]"
    (seen,) = strong.run([Job("run", f"def f(): return {first}", ("",))])
    (verdict,) = strong.run([Job("run", f"def f(): assert {first} == {seen.values[0].literal}", ("",))], twice=True)
    assert verdict.kind is VerdictKind.REJECTED_NONDETERMINISTIC


def test_order_that_cannot_be_seen_is_no_nondeterminism(strong):
    program = "def f(x): return {'alpha', 'beta', 'gamma'}, {k: 1 for k in {'a', 'b', 'c'}}, sorted({'a', 'b'})"
    assert strong.run([Job("run", program, ("1",))], twice=True)[0].ok


def test_without_filters_the_forbidden_acts_succeed(weak):
    """The negative control: these tests would notice a sandbox that has lost its filters."""
    acts = ["def f(): return open('/etc/passwd').read(4) != ''", "import os\ndef f(): return os.listdir('/') != []"]
    acts += ["import socket\ndef f(): return socket.socket().fileno() > 3", "import os\ndef f(): return os.getppid() > 0"]
    assert weak.tier == "weak"
    assert [verdict.ok and verdict.values[0].literal for verdict in weak.run([Job("run", act, ("",)) for act in acts])] == ["True"] * 4


def test_the_weak_tier_still_limits_time_memory_and_processes(weak):
    programs = ["def f():\n while True: pass", "def f(): bytearray(10 ** 10)", "import os\ndef f(): os.fork()"]
    found = [f"{verdict.kind} {verdict.reason}" for verdict in weak.run([Job("run", program, ("",)) for program in programs])]
    assert found == ["timeout cpu", "error memory", "error exception:BlockingIOError"]
