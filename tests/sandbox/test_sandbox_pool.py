"""The pool: what the modes mean, order, limits, and that nothing hangs it or is left behind."""

import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from pool_state import gone, outcome, pids

from populora.core.errors import ConfigError, SandboxFault, SandboxUnavailableError
from populora.core.types import VerdictKind
from populora.sandbox import process
from populora.sandbox.pool import SandboxPool
from populora.sandbox.process import Zygote
from populora.sandbox.protocol import Job, Limits, Verdict, settle
from populora.sandbox.values import Value


def test_run_calls_f_on_every_text_with_fresh_arguments(best):
    program = "def f(x, y=0):\n    x.append(y)\n    return x"
    (verdict,) = best.run([Job("run", program, ("[1], 2", "[]", "[[None]], {'a': (1,)}"))], twice=True)
    assert [value.literal for value in verdict.values] == ["[1, 2]", "[0]", "[[None], {'a': (1,)}]"]


def test_one_failing_call_fails_the_job(best):
    (verdict,) = best.run([Job("run", "def f(x): return 1 // x", ("1", "0"))])
    assert outcome(verdict) == "error exception:ZeroDivisionError"


@pytest.mark.parametrize(
    ("program", "banned"),
    [
        ("import random", True), ("from random import choice", True), ("import random.x", True), ("import os.path", True),
        ("import os", False),
        ("__import__('random')", True), ("import sys\nsys.exit", True), ("import sys\nsys.maxsize", False), ("randomness = 1", False),
    ],
)  # fmt: skip
def test_banned_imports_are_a_domain_rule(best, program, banned):
    job = Job("run", f"{program}\ndef f(x): return x", ("1",), rules=("random", "os.path", "sys.exit"))
    verdict = best.run([job])[0]
    assert (verdict.reason == "banned_import") == banned


def test_parse_reads_literals_and_argument_lists(best):
    jobs = [
        Job("parse", texts=(" [1, 2.50]", "{'b', 'a'}")), Job("parse", texts=("1, [2]", ""), as_inputs=True),
        Job("parse", texts=("1, 2",)),
        Job("parse", texts=("",)), Job("parse", texts=("1", "f(1)")), Job("parse", texts=("x" * 70000,)), Job("parse", texts=("9" * 5000,)),
    ]  # fmt: skip
    assert [outcome(verdict) for verdict in best.run(jobs)] == [
        "ok [1, 2.5] {'a', 'b'}", "ok 1, [2]", "ok (1, 2)", "error not_a_literal", "error not_a_literal", "error source_limit",
        "error not_a_literal",
    ]  # fmt: skip


def test_a_literal_that_ends_the_child_spares_the_others_of_its_batch(best):
    deep = "{" * 60 + "1" + "}" * 60
    bomb = "[" + "[]," * 20000 + "]"
    jobs = [Job("parse", texts=(text,)) for text in ("1", "-" * 60000, deep, bomb, "'x'")]
    outcomes = [outcome(verdict)[:20] for verdict in best.run(jobs)]
    assert outcomes[0] == "ok 1" and outcomes[-1] == "ok 'x'"
    assert outcomes[1] == outcomes[2] == "error not_a_literal"


def test_a_batch_whose_child_dies_is_done_one_by_one(new_pool, monkeypatch):
    pool = new_pool()
    submit, collect = Zygote.submit, Zygote.collect
    poisoned = []

    def noting(self, request):
        submission = submit(self, request)
        poisoned.extend([submission] if b"poison" in request else [])
        return submission

    def dying(self, submission, reply_bound):
        answer = collect(self, submission, reply_bound)
        return process.ChildExit(True, b"", signal.SIGSEGV, 0.0, False) if submission in poisoned else answer

    monkeypatch.setattr(Zygote, "submit", noting)
    monkeypatch.setattr(Zygote, "collect", dying)
    verdicts = pool.run([Job("parse", texts=("1",)), Job("parse", texts=("'poison'",)), Job("parse", texts=("2",))])
    assert [outcome(verdict) for verdict in verdicts] == ["ok 1", "error signal", "ok 2"]


def test_measure_parses_and_never_executes(best):
    source = "def f(x):\n    if x:\n        y = 1\n    return x\n"
    commented = "# a\ndef f(x):\n    '''doc'''\n    if x:\n        y = 1  # b\n    return x\n"
    plain, with_comments, bomb, broken = best.run([Job("measure", text) for text in (source, commented, "while True: pass", "def")])
    assert plain.measures is not None and with_comments.measures is not None and bomb.ok
    assert plain.measures.values[1:] == (2, 4, 1)
    assert plain.measures.fingerprint == with_comments.measures.fingerprint
    assert outcome(broken) == "error syntax"


def test_results_come_in_order_and_equal_jobs_run_once(best, monkeypatch):
    seen = []
    real = Zygote.submit
    monkeypatch.setattr(Zygote, "submit", lambda self, request: (seen.append(request), real(self, request))[1])
    jobs = [Job("run", "def f(x): return x", (str(i % 5),)) for i in range(50)]
    before = sorted(os.listdir("/proc/self/fd"))
    assert [verdict.values[0].literal for verdict in best.run(jobs)] == [str(i % 5) for i in range(50)]
    assert len(seen) == 5
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert best.run([]) == []


def test_a_program_that_is_wrong_in_the_first_process_has_no_second_one(new_pool, monkeypatch):
    """Unless chance may be at work: then the second process decides whether it is wrong or not deterministic."""
    pool, seen, real = new_pool(), [], Zygote.submit
    monkeypatch.setattr(Zygote, "submit", lambda self, request: (seen.append(request), real(self, request))[1])
    programs = {"right": "def f(x): return 0 + x", "wrong": "def f(x): return x + 1", "fails": "def f(x): return x.y"}
    programs["by hash"] = "def f(x): return hash('a')"
    jobs = {name: Job("run", program, ("7",)) for name, program in programs.items()}
    verdicts = pool.run(list(jobs.values()), twice=True, expected={job: {("i6",), ("i7",)} for job in jobs.values()})
    kinds = dict(zip(jobs, map(outcome, verdicts), strict=True))
    times = {name: sum(job.program.encode() in request for request in seen) for name, job in jobs.items()}
    assert kinds["right"] == "ok 7" and times["right"] == 2
    assert kinds["wrong"] == "ok 8" and times["wrong"] == 1
    assert kinds["fails"] == "error exception:AttributeError" and times["fails"] == 2
    assert kinds["by hash"] == "rejected_nondeterministic processes_differ" and times["by hash"] == 2


def test_urgent_jobs_come_before_those_that_wait(new_pool, monkeypatch):
    pool, seen, real = new_pool(), [], Zygote.submit
    monkeypatch.setattr(Zygote, "submit", lambda self, request: (seen.append(request), real(self, request))[1])
    waiting = [Job("run", "import time\ndef f(x): return time.sleep(0.05)", (str(n),)) for n in range(30)]
    with ThreadPoolExecutor(1) as threads:
        task = threads.submit(pool.run, waiting)
        time.sleep(0.2)
        assert outcome(pool.run([Job("run", "def f(x): return 'urgent'", ("1",))], urgent=True)[0]) == "ok 'urgent'"
        task.result()
    place = next(at for at, request in enumerate(seen) if b"urgent" in request)
    assert place < len(seen) - 8


def test_long_requests_and_replies_wait_in_line_too(new_pool):
    """Neither fits the buffer of a socket: the next jobs of the group are under way meanwhile."""
    pool = new_pool(limits=Limits(cpu_seconds=2, max_output_chars=1 << 20, max_source_chars=1 << 20))
    texts = ["'a'", repr("b" * 900_000), "'c'", repr("d" * 900_000), "'e'"]
    verdicts = pool.run([Job("run", "def f(x): return x", (text,)) for text in texts], twice=True)
    assert [verdict.values[0].literal for verdict in verdicts] == texts


def test_a_program_that_makes_sets_is_run_in_more_processes(new_pool):
    pool = new_pool()
    pool.run([Job("run", "def f(x): return [x]", ("1",))], twice=True)
    assert len(pids(pool)) == 2
    (verdict,) = pool.run([Job("run", "def f(x): return {x, 2}, sorted({'a', 'b'})", ("1",))], twice=True)
    assert outcome(verdict) == "ok ({1, 2}, ['a', 'b'])" and len(pids(pool)) == 8


@pytest.mark.parametrize(
    ("program", "doubtful"),
    [
        ("def f(d):\n    k = d.keys()\n    k &= {2: 1}.keys()\n    return 1", True),
        ("def g(d):\n    return d.keys()\ndef f(d):\n    return len(g(d) | g({3: 1}))", True),
        ("def g(d):\n    return d.keys()\ndef f(d):\n    return len(g(d)) - 1", False),
        ("def f(d):\n    return 0 * len(repr(object()))", True),
        ("def f(d): return [k for k, v in d.items() if v > 1], sorted(d), len(d.keys()) * 2, repr(d)", False),
        ("def f(d): return 1 in {1, 2, 3}, {**d}", False),
        ("def f(d): return sorted(d.keys() & {1: 2}.keys())", True),
        ("def f(d): return sorted(d.items() - {}.items())", True),
        # Python inlines comprehensions from 3.12 on, so that loop and set are in one code.
        ("def f(d): return [x for x in (1, 2) if x in {1, 2}]", sys.version_info >= (3, 12)),
        ("def f(d): return [x for x in {1, 2}]", True),
        ("def f(d): return (lambda: hash(1))()", True),
        ("class A:\n    def g(self): return {1}\ndef f(d): return A().g()", True),
        ("import time\ndef f(d): return 1", True),
    ],
)  # fmt: skip
def test_ordinary_programs_are_not_doubtful(best, program, doubtful):
    (verdict,) = best.run([Job("run", program, ("{1: 2}",))])
    assert verdict.ok and verdict.doubtful is doubtful


def test_several_threads_share_a_pool(new_pool):
    pool = new_pool(workers=2)

    def ask(n):
        return [verdict.values[0].literal for verdict in pool.run([Job("run", "def f(x): return x", (str(k),)) for k in (n, n + 1)])]

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(ask, range(40))) == [[str(n), str(n + 1)] for n in range(40)]


def test_closing_drops_what_is_queued_and_waits_for_what_runs(new_pool):
    pool = new_pool()
    with ThreadPoolExecutor(1) as threads:
        task = threads.submit(pool.run, [Job("run", "import time\ndef f(x): time.sleep(0.3)", (str(n),)) for n in range(200)])
        time.sleep(0.5)
        pool.close()
        with pytest.raises(SandboxFault, match="closed"):
            task.result()
    with pytest.raises(SandboxFault, match="closed"):
        pool.run([Job("run", "def f(x): return x", ("1",))])


def test_closing_among_callers_never_hangs(new_pool):
    for _ in range(3):
        pool = new_pool(workers=2)

        def ask(pool=pool):
            for n in range(10_000):
                pool.run([Job("run", "def f(x): return x", (str(n),))])

        with ThreadPoolExecutor(6) as threads:
            tasks = [threads.submit(ask) for _ in range(6)]
            time.sleep(0.2)
            pool.close()
            for task in tasks:
                with pytest.raises(SandboxFault, match="closed"):
                    task.result(timeout=300)


def test_closing_now_kills_what_runs(new_pool):
    pool = new_pool(limits=Limits(cpu_seconds=1, wall_seconds=60))
    with ThreadPoolExecutor(1) as threads:
        task = threads.submit(pool.run, [Job("run", "import time\ndef f(x): time.sleep(60)", ("1",))])
        time.sleep(0.5)
        started, running = time.monotonic(), pids(pool)
        pool.close(now=True)
        with pytest.raises(SandboxFault, match="closed"):
            task.result()
    assert time.monotonic() - started < 50 and all(map(gone, running))


def test_waiting_is_limited_in_every_process_of_a_pair(new_pool):
    """A program that knows by the hash seed in which one it is, and waits in the second only."""
    pool = new_pool(limits=Limits(cpu_seconds=1, wall_seconds=2))
    (seen,) = pool.run([Job("run", "def f(): return hash('a')", ("",))])
    program = f"import time\ndef f():\n    if hash('a') != {seen.values[0].literal}: time.sleep(60)\n    return 1"
    started = time.monotonic()
    assert outcome(pool.run([Job("run", program, ("",))], twice=True)[0]) == "timeout wall"
    assert time.monotonic() - started < 50


def test_load_makes_no_wall_timeout(new_pool):
    """A program that computes gets its CPU time, however long that takes on a busy machine; one that waits does not."""
    pool = new_pool(None, Limits(cpu_seconds=1.0, wall_seconds=0.5))
    assert outcome(pool.run([Job("run", "def f(x):\n while True: pass", ("1",))])[0]) == "timeout cpu"
    assert outcome(pool.run([Job("run", "import time\ndef f(x): time.sleep(9)", ("1",))])[0]) == "timeout wall"


def test_impossible_limits_are_errors():
    with pytest.raises(ConfigError, match="cpu_seconds"):
        Limits(cpu_seconds=0)
    with pytest.raises(SandboxUnavailableError, match="did not start"):
        SandboxPool(Limits(memory_mb=2**50), 1, allow_weak=True)
    with pytest.raises(SandboxUnavailableError, match=r"memory_mb=8.*Raise the limits"):  # it ends before or in the program
        SandboxPool(Limits(memory_mb=8), 1, allow_weak=True)


def test_two_runs_settle_by_precedence():
    def value(text):
        return Value(text, text, text)

    ok, other = Verdict(VerdictKind.OK, values=(value("1"),)), Verdict(VerdictKind.OK, values=(value("2"),))
    ranked = [
        Verdict(VerdictKind.INTERNAL), Verdict(VerdictKind.BLOCKED, "seccomp"), Verdict(VerdictKind.TIMEOUT, "cpu"),
        Verdict(VerdictKind.REJECTED_NONDETERMINISTIC), Verdict(VerdictKind.ERROR, "memory"),
    ]  # fmt: skip
    for place, first in enumerate(ranked[:4]):
        for second in [*ranked[place:], ok]:
            assert settle(first, second) == settle(second, first) == first
    assert settle(ok, other).kind is settle(ok, ranked[4]).kind is VerdictKind.REJECTED_NONDETERMINISTIC
    assert settle(ok, ok) == ok and settle(ranked[4], ranked[4]) == ranked[4]
