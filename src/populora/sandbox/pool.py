"""A pool of zygote pairs that turns jobs into verdicts.

Each worker holds two zygotes with different hash seeds, address layouts and clocks. The pool's threads only move bytes; programs
run in children of the zygotes. A lost zygote is replaced and its job tried once more, then the verdict is ``internal``; one that
has served long is replaced too. What is waited for longer than half a minute is named in a warning of this module's logger.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait

from populora.errors import ConfigError, SandboxFault, SandboxUnavailableError
from populora.sandbox.layers import Isolation, Tier, isolation
from populora.sandbox.process import Outcome, Zygote, ZygoteLost
from populora.sandbox.protocol import Job, Limits, Verdict, decode_reply, encode_request, reply_bound, settle
from populora.types import VerdictKind

_PAIR = (0, 1)
_IN_DOUBT = range(2, 8)
"""More zygotes for doubtful programs: two words of a set come out in the same order in two processes every other time, in eight
processes once in 128."""
_BATCH = 32
"""Jobs that one child handles if no program is executed: a fork costs as much as parsing some fifty answers."""
_ATTEMPTS = 2
_TEXTS = 4
"""All texts of a job together may be this many times as long as the longest one."""
_SERVICE = 20_000
"""Jobs after which a zygote is replaced. It keeps nothing of them; this bounds what nobody has thought of."""
_HEARTBEAT_SECONDS = 30.0
_log = logging.getLogger(__name__)
_ENDINGS = frozenset({"seccomp", "cpu", "wall", "signal", "exit_without_result"})
"""Reasons that concern a whole child, not one of its jobs."""


_CONTROL = Job("run", "def f(x):\n    return len([x] * 250_000)", ("1",))
"""Needs 2 MB beyond the interpreter: a memory limit below that would fail ordinary programs. (With 16 MB, a busy virtual machine
now and then took half a second of CPU time to hand the pages over.)"""


class SandboxPool:
    """Runs untrusted programs and reads untrusted literals. Its ``tier`` says what isolation was reached.

    ``tier`` as an argument demands exactly that tier. Raises `SandboxUnavailableError` if the machine lacks it, or gives less
    than ``standard`` without ``allow_weak``.
    """

    def __init__(self, limits: Limits, workers: int = 2, allow_weak: bool = False, tier: Tier | None = None) -> None:
        if workers < 1:
            raise ConfigError(f"a sandbox pool needs at least one worker, got {workers}")
        found = isolation(allow_weak, tier)
        self.tier: Tier = found.tier
        self._limits = limits
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="sandbox")
        self._closing = False
        self._submitting = threading.Lock()
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._workers = [_Worker(found, limits) for _ in range(workers)]
        for worker in self._workers:
            self._idle.put(worker)
        try:
            tasks = [self._threads.submit(worker.start) for worker in self._workers]
            wait(tasks)
            for task in tasks:
                task.result()
        except BaseException:
            self.close()
            raise

    def run(self, jobs: Sequence[Job], twice: bool = False) -> list[Verdict]:
        """One verdict for each job, in order; equal jobs are done once. May be called from several threads.

        ``twice`` calls every program's ``f`` twice in each of two processes: unequal values are ``rejected_nondeterministic``.
        It concerns ``run`` jobs; ``parse`` and ``measure`` execute nothing. Raises `SandboxFault` if the sandbox cannot go on.
        """
        longest = self._limits.max_source_chars
        found = {job: Verdict(VerdictKind.ERROR, "source_limit") for job in jobs if _is_too_long(job, longest)}
        units = _units([job for job in dict.fromkeys(jobs) if job not in found])
        with self._submitting:
            self._check_open()
            tasks = [self._threads.submit(self._judge, unit, twice) for unit in units]
        while wait(tasks, timeout=_HEARTBEAT_SECONDS).not_done:
            _log.warning("sandbox: %d of %d done; at work: %s", sum(task.done() for task in tasks), len(tasks), self._at_work())
        for unit, task in zip(units, tasks, strict=True):
            found |= zip(unit, task.result(), strict=True)
        return [found[job] for job in jobs]

    def _at_work(self) -> str:
        return "; ".join(filter(None, (worker.at_work() for worker in self._workers))) or "none"

    def _judge(self, unit: list[Job], twice: bool) -> list[Verdict]:
        self._check_open()
        worker = self._idle.get()
        try:
            return worker.judge(unit, twice and unit[0].mode == "run")
        finally:
            self._idle.put(worker)

    def _check_open(self) -> None:
        if self._closing:
            raise SandboxFault("the sandbox pool is closed")

    def close(self, now: bool = False) -> None:
        """End all processes of the pool; returns when they are gone. What is queued is dropped, what is being run is waited for, or
        killed ``now``: callers that wait for it get a `SandboxFault`."""
        with self._submitting:
            if self._closing:
                return
            self._closing = True
            # By the pool's own threads: the kernel ends a zygote with the thread that started it, and then nobody reaps what was below.
            tasks = [self._threads.submit(lambda: self._idle.get().close()) for _ in self._workers]
        for worker in self._workers:
            worker.closing = True
            if now:
                worker.kill()
        wait(tasks)
        self._threads.shutdown()

    def __enter__(self) -> SandboxPool:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(now=kind is not None)


def _is_too_long(job: Job, longest: int) -> bool:
    lengths = [len(text) for text in (job.program, *job.texts)]
    return max(lengths) > longest or sum(lengths) > _TEXTS * longest


def _units(jobs: list[Job]) -> list[list[Job]]:
    """Jobs grouped by child: every ``run`` alone, the others in batches."""
    calm = [job for job in jobs if job.mode != "run"]
    return [[job] for job in jobs if job.mode == "run"] + [calm[at : at + _BATCH] for at in range(0, len(calm), _BATCH)]


class _Worker:
    """Zygotes that differ in hash seed, address layout and clock: a pair, and more of them from the first program that needs them."""

    def __init__(self, found: Isolation, limits: Limits) -> None:
        self._isolation = found
        self._limits = limits
        self._zygotes: dict[int, Zygote] = {}
        self._job: tuple[Job, float] | None = None
        self.closing = False

    def start(self) -> None:
        for place in _PAIR:
            self._zygotes[place] = Zygote(self._isolation, self._limits, place)
        (verdict,) = self.judge([_CONTROL], twice=True)
        if not verdict.ok:
            raise SandboxUnavailableError(
                f"the sandbox does not run a harmless program under {self._limits}: {verdict.kind} {verdict.reason}. "
                f"Raise the limits, or report the machine's layers: {self._isolation.report}"
            )

    def close(self) -> None:
        for zygote in self._zygotes.values():
            zygote.close()

    def kill(self) -> None:
        """End what runs at once, from another thread; `close` has to follow."""
        for zygote in list(self._zygotes.values()):
            zygote.kill()

    def at_work(self) -> str:
        """What this worker does and for how long, in one line of plain ASCII; empty if it waits for work."""
        doing = self._job  # once: the worker's thread goes on
        if doing is None:
            return ""
        job, since = doing
        return f"{job.mode} {(job.program or ' '.join(job.texts))[:60]!a} for {time.monotonic() - since:.0f} s"

    def judge(self, unit: list[Job], twice: bool) -> list[Verdict]:
        self._job = unit[0], time.monotonic()
        try:
            return self._judge(unit, twice)
        finally:
            self._job = None

    def _judge(self, unit: list[Job], twice: bool) -> list[Verdict]:
        verdicts = self._attempt(_PAIR[0], unit, calls=2 if twice else 1)
        if len(unit) > 1 and verdicts[0].reason in _ENDINGS:  # one of them ended the child: find out which
            return [self._attempt(_PAIR[0], [job], calls=1)[0] for job in unit]
        if twice and verdicts[0].kind in (VerdictKind.OK, VerdictKind.ERROR):  # no second run can better the others
            return [self._agreed(unit, verdicts[0])]
        return verdicts

    def _agreed(self, unit: list[Job], first: Verdict) -> Verdict:
        """What all processes of the unit's one program say: two, or more if their agreement may be luck."""
        settled = settle(first, self._attempt(_PAIR[1], unit, calls=2)[0])
        for place in _IN_DOUBT if settled.doubtful else ():
            settled = settle(settled, self._attempt(place, unit, calls=1)[0])
            if not settled.ok:
                break
        return settled

    def _attempt(self, place: int, unit: list[Job], calls: int) -> list[Verdict]:
        request = encode_request(unit, calls)
        for _ in range(_ATTEMPTS):
            zygote = self._zygotes.get(place) or self._replace(place)
            try:
                outcome = zygote.exchange(request, reply_bound(unit, self._limits))
            except ZygoteLost:
                self._replace(place)
                continue
            if zygote.served >= _SERVICE:
                self._replace(place)
            if outcome.ready:
                return _verdicts(outcome, unit, self._limits)
        return [Verdict(VerdictKind.INTERNAL, "sandbox_failed")] * len(unit)

    def _replace(self, place: int) -> Zygote:
        if self.closing:
            raise SandboxFault("the sandbox pool was closed while it had work to do")
        old = self._zygotes.pop(place, None)
        if old:
            old.close()
        try:
            self._zygotes[place] = Zygote(self._isolation, self._limits, place)
        except SandboxUnavailableError as error:
            raise SandboxFault(f"another sandbox process was needed, but it does not start: {error}") from error
        return self._zygotes[place]


def _verdicts(outcome: Outcome, unit: list[Job], limits: Limits) -> list[Verdict]:
    """From how the child ended, as the kernel tells it; its own words count only after a clean exit."""
    ended = _ending(outcome, limits)
    if ended is None:
        ended = Verdict(VerdictKind.ERROR, "exit_without_result")
        if outcome.status == 0 and (verdicts := decode_reply(outcome.reply, unit, limits)) is not None:
            return verdicts
    return [ended] * len(unit)


def _ending(outcome: Outcome, limits: Limits) -> Verdict | None:
    signalled = os.WTERMSIG(outcome.status) if os.WIFSIGNALED(outcome.status) else 0
    if signalled == signal.SIGSYS:
        return Verdict(VerdictKind.BLOCKED, "seccomp")
    if signalled == signal.SIGPROF or outcome.cpu_seconds > limits.cpu_seconds:
        return Verdict(VerdictKind.TIMEOUT, "cpu")
    if outcome.wall_exceeded:
        return Verdict(VerdictKind.TIMEOUT, "wall")
    return Verdict(VerdictKind.ERROR, "signal") if signalled else None
