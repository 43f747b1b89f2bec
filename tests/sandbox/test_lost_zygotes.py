"""Sandbox processes that are lost, late or old are replaced, without a lost verdict, and none outlives its pool or trainer."""

import errno
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from pool_state import gone, kill_child, lose, newest_process, outcome, pids

from populora.core.errors import SandboxFault, SandboxUnavailableError
from populora.core.types import VerdictKind
from populora.sandbox import process, worker
from populora.sandbox.process import Zygote, ZygoteLost
from populora.sandbox.protocol import Job, Limits


def test_a_zygote_lost_in_the_middle_of_a_group_costs_no_verdict(new_pool, monkeypatch):
    pool, real, collected = new_pool(), Zygote.collect, []

    def collect(self, submission, reply_bound):
        collected.append(submission)
        if len(collected) == 3:
            lose(self)
        return real(self, submission, reply_bound)

    monkeypatch.setattr(Zygote, "collect", collect)
    before = sorted(os.listdir("/proc/self/fd"))
    verdicts = pool.run([Job("run", "import time\ndef f(x): time.sleep(0.05); return x", (str(n),)) for n in range(8)])
    assert [outcome(verdict) for verdict in verdicts] == [f"ok {n}" for n in range(8)]
    assert len(sorted(os.listdir("/proc/self/fd"))) == len(before)


def test_a_failure_of_the_machine_costs_its_jobs_alone(new_pool, monkeypatch):
    pool, real, made = new_pool(), socket.socketpair, []
    jobs = [Job("run", "def f(x): return x", (str(n),)) for n in range(8)]

    def socketpair():
        made.append(1)
        if len(made) == 3:
            raise OSError(errno.EMFILE, "Too many open files")
        return real()

    monkeypatch.setattr(process.socket, "socketpair", socketpair)
    with pytest.raises(SandboxFault, match="cannot be reached: Too many open files"):
        pool.run(jobs)
    assert [outcome(verdict) for verdict in pool.run(jobs)] == [f"ok {n}" for n in range(8)]


def test_a_forked_process_is_told_to_make_a_pool_of_its_own(new_pool):
    pool = new_pool()
    child = os.fork()
    if not child:
        try:
            pool.run([Job("run", "def f(x): return x", ("7",))])
        except SandboxFault:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_killed_zygote_is_replaced_and_the_job_done(new_pool):
    pool = new_pool()
    first = pids(pool)
    for zygote in pool._workers[0]._zygotes.values():
        lose(zygote)
    assert outcome(pool.run([Job("run", "def f(x): return x", ("7",))], twice=True)[0]) == "ok 7"
    assert not set(pids(pool)) & set(first)


@pytest.mark.slow
def test_a_stopped_zygote_is_replaced_and_the_job_done(new_pool, monkeypatch):
    monkeypatch.setattr(process, "_GRACE_SECONDS", 0.3)
    pool = new_pool("standard", Limits(cpu_seconds=0.05, wall_seconds=1))
    os.kill(pids(pool)[0], signal.SIGSTOP)
    assert outcome(pool.run([Job("run", "def f(x): return x", ("7",))])[0]) == "ok 7"


def test_a_job_whose_zygote_is_lost_twice_is_internal(new_pool, monkeypatch):
    def lost(self, request):
        raise ZygoteLost("test")

    pool = new_pool()
    monkeypatch.setattr(Zygote, "submit", lost)
    assert pool.run([Job("run", "def f(x): return x", ("7",))])[0].kind is VerdictKind.INTERNAL


@pytest.mark.parametrize(("kills", "result"), [(1, "ok 7"), (2, "internal sandbox_failed")])
def test_a_child_that_is_killed_from_outside_is_started_once_more(new_pool, kills, result):
    pool = new_pool(limits=Limits())
    idle = newest_process(pool._workers[0]._zygotes["python", 0]._process.pid)
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(pool.run, [Job("run", "import time\ndef f(x): time.sleep(2); return x", ("7",))])
        for _ in range(kills):
            kill_child(idle)
        assert outcome(done.result()[0]) == result


def test_without_a_filter_a_program_that_kills_itself_has_failed(new_pool):
    program = "import os\ndef f(x): os.kill(os.getpid(), 9)"
    assert outcome(new_pool("weak").run([Job("run", program, ("7",))])[0]) == "error signal"


@pytest.mark.parametrize(("late", "result"), [(4, "ok 7"), (5, "internal sandbox_failed")])
def test_a_child_that_is_late_to_be_ready_is_started_again_up_to_five_times(new_pool, monkeypatch, late, result):
    pool = new_pool()
    collect, starts = Zygote.collect, []

    def collect_late(self, *arguments):
        starts.append(self)
        done = collect(self, *arguments)
        return replace(done, ready=False, wall_exceeded=True) if len(starts) <= late else done

    monkeypatch.setattr(Zygote, "collect", collect_late)
    assert outcome(pool.run([Job("run", "def f(x): return x", ("7",))])[0]) == result
    assert len(starts) == 5 and len(set(starts)) == 1


def test_a_child_that_was_late_may_still_lose_its_zygote_once(new_pool, monkeypatch):
    pool = new_pool()
    collect, starts = Zygote.collect, []

    def collect_late_and_lose(self, *arguments):
        starts.append(self)
        if len(starts) == 3:
            raise ZygoteLost("test")
        return replace(collect(self, *arguments), ready=len(starts) > 3)

    monkeypatch.setattr(Zygote, "collect", collect_late_and_lose)
    assert outcome(pool.run([Job("run", "def f(x): return x", ("7",))])[0]) == "ok 7"
    assert len(starts) == 4 and len(set(starts)) == 2


def test_a_zygote_that_cannot_be_replaced_is_a_fault(new_pool, monkeypatch):
    def unavailable(self, *_):
        raise SandboxUnavailableError("test")

    pool = new_pool()
    monkeypatch.setattr(Zygote, "__init__", unavailable)
    lose(pool._workers[0]._zygotes["python", 0])
    with pytest.raises(SandboxFault, match="another sandbox process"):
        pool.run([Job("run", "def f(x): return x", ("7",))])


def test_a_process_that_the_machine_does_not_start_is_named(new_pool, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EMFILE, "Too many open files")

    pool = new_pool()
    monkeypatch.setattr(process.subprocess, "Popen", refuse)
    with pytest.raises(SandboxUnavailableError, match="process cannot be started: Too many open files"):
        new_pool()
    lose(pool._workers[0]._zygotes["python", 0])
    with pytest.raises(SandboxFault, match=r"another sandbox process .* cannot be started: Too many open files"):
        pool.run([Job("run", "def f(x): return x", ("7",))])


def test_a_zygote_that_served_long_is_replaced(new_pool, monkeypatch):
    monkeypatch.setattr(worker, "_SERVICE", 3)
    pool = new_pool()
    first = pids(pool)
    verdicts = [pool.run([Job("run", "def f(x): return x", (str(n),))], twice=True)[0] for n in range(4)]
    assert [verdict.values[0].literal for verdict in verdicts] == ["0", "1", "2", "3"]
    assert not set(pids(pool)) & set(first) and all(map(gone, first))


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_a_pool_leaves_no_zombies_to_the_first_process_of_a_container(new_pool):
    """bubblewrap's inner processes must be reaped by the outer one: who inherits orphans may never wait for them."""
    script = (
        "import ctypes, os, sys\nctypes.CDLL(None).prctl(36, 1)\n"  # PR_SET_CHILD_SUBREAPER: orphans come to this process
        "from populora.sandbox.pool import SandboxPool\nfrom populora.sandbox.protocol import Job, Limits\n"
        "with SandboxPool(Limits(), 2, allow_weak=True) as pool: pool.run([Job('run', 'def f(x): return x', ('1',))], twice=True)\n"
        "try: print('left:', os.waitpid(-1, os.WNOHANG))\n"
        "except ChildProcessError: print('no child is left')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "no child is left", done.stdout + done.stderr


def test_zygotes_end_with_a_trainer_that_is_killed():
    script = (
        "import os, signal, sys\nfrom populora.sandbox.pool import SandboxPool\nfrom populora.sandbox.protocol import Limits\n"
        "pool = SandboxPool(Limits(), 1, allow_weak=True)\n"
        "print(*[z._process.pid for w in pool._workers for z in w._zygotes.values()], flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    left = [int(pid) for pid in done.stdout.split()]
    assert len(left) == 2 and done.returncode == -signal.SIGKILL
    for _ in range(200):
        if all(map(gone, left)):
            return
        time.sleep(0.05)
    pytest.fail("a zygote outlived its trainer")
