"""What hostile programs learn and leave behind, and non-determinism; `test_hostile_corpus` has the attacks one by one."""

import os

import pytest

from populora.core.types import VerdictKind
from populora.sandbox.pool import SandboxPool
from populora.sandbox.protocol import Job, Limits


def forge(body: bytes, then: str) -> str:
    """A program that writes a frame of its own before it does ``then``."""
    return f"import os\ndef f(x):\n os.write(3, {len(body).to_bytes(4, 'big') + body!r})\n {then}"


def test_a_value_of_exactly_the_longest_literal_passes(strong):
    passing, longer = strong.run([Job("run", "def f(n): return 'x' * n", (text,)) for text in ("398", "399")])
    assert len(passing.values[0].literal) == 400 and longer.reason == "output_limit"
    passing, longer = strong.run([Job("run", "def f(n): return [0] * n", (text,)) for text in ("133", "134")])  # brackets and commas count
    assert len(passing.values[0].literal) == 399 and longer.reason == "output_limit"


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


def test_the_weak_tier_still_limits_time_memory_and_processes(weak):
    programs = ["def f():\n while True: pass", "def f(): bytearray(10 ** 10)", "import os\ndef f(): os.fork()"]
    outcomes = [f"{verdict.kind} {verdict.reason}" for verdict in weak.run([Job("run", program, ("",)) for program in programs])]
    assert outcomes == ["timeout cpu", "error memory", "error exception:BlockingIOError"]
