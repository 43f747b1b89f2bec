"""A pool of workers that turns jobs into verdicts.

The pool's threads only move bytes; programs run in children of the workers' zygotes (`populora.sandbox.worker`). Callers share the
pool, and at most one unit of jobs per worker runs at a time.
"""

import heapq
import itertools
import os
import threading
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Protocol, Self

from populora.core.errors import ConfigError, SandboxFault
from populora.core.types import VerdictKind
from populora.sandbox.layers import Tier, isolation
from populora.sandbox.protocol import Expected, Job, Limits, Verdict
from populora.sandbox.worker import Unit, Worker

_BATCH = 32
"""Jobs that one child handles if no program is executed, or contained ones: a fork costs as much as parsing some fifty answers."""
_TEXTS = 4
"""The program and all texts of a job together may be this many times as long as a program may be."""
_GROUP = 8
"""Most units that a worker takes at a time, if there are enough for all: its thread wakes up once for all of them."""


class Judge(Protocol):
    """Runs jobs in this process or elsewhere; see `SandboxPool.run`."""

    def run(self, jobs: Sequence[Job], twice: bool = False, expected: Expected | None = None, urgent: bool = False) -> list[Verdict]: ...


@dataclass(order=True)
class _Task:
    """A unit in the queue: urgent ones first, then in the order of their arrival."""

    rank: tuple[bool, int]
    unit: Unit = field(compare=False)
    verdicts: Future[list[Verdict]] = field(compare=False, default_factory=Future)


class SandboxPool:
    """Runs untrusted programs and reads untrusted literals. ``tier`` is the isolation in use.

    ``tier`` as an argument demands exactly that tier. Raises `SandboxUnavailableError` if the machine lacks it, or gives less
    than ``standard`` without ``allow_weak``.
    """

    def __init__(self, limits: Limits, workers: int = 2, allow_weak: bool = False, tier: Tier | None = None) -> None:
        if workers < 1:
            raise ConfigError(f"a sandbox pool needs at least one worker, got {workers}")
        isolated = isolation(allow_weak, tier)
        self.tier: Tier = isolated.tier
        self._limits = limits
        self._closing = False
        self._process = os.getpid()
        self._queue: list[_Task] = []
        self._changed = threading.Condition()
        self._arrivals = itertools.count()
        self._workers = [Worker(isolated, limits) for _ in range(workers)]
        started: list[Future[None]] = [Future() for _ in self._workers]
        # One thread a worker, as the kernel ends a zygote with the thread that started it. A pool that nobody closes ends with its process.
        self._threads = [
            threading.Thread(target=self._serve, args=pair, daemon=True, name="sandbox")
            for pair in zip(self._workers, started, strict=True)
        ]
        for thread in self._threads:
            thread.start()
        try:
            wait(started)
            for outcome in started:
                outcome.result()
        except BaseException:
            self.close()
            raise

    def run(self, jobs: Sequence[Job], twice: bool = False, expected: Expected | None = None, urgent: bool = False) -> list[Verdict]:
        """Return one verdict per job, in order; equal jobs run once. Several threads may call it; ``urgent`` jobs come first.

        ``twice`` calls every program's ``f`` twice in each of two processes: unequal values are ``rejected_nondeterministic``.
        It concerns ``run`` jobs; ``parse`` and ``measure`` execute nothing. A program in ``expected`` that returns other values than
        those in its first process, and in which nothing hints at chance, has no second one: it is wrong in any case. Raises
        `SandboxFault` if the sandbox fails.
        """
        longest = self._limits.max_source_chars
        verdicts = {job: Verdict(VerdictKind.ERROR, "source_limit") for job in jobs if _is_too_long(job, longest)}
        units = self._units([job for job in dict.fromkeys(jobs) if job not in verdicts], twice, expected or {})
        with self._changed:
            self._check_open()
            tasks = [_Task((not urgent, next(self._arrivals)), unit) for unit in units]
            for task in tasks:
                heapq.heappush(self._queue, task)
            self._changed.notify(len(tasks))
        wait([task.verdicts for task in tasks])
        for task in tasks:
            verdicts |= zip(task.unit.jobs, task.verdicts.result(), strict=True)
        return [verdicts[job] for job in jobs]

    def _units(self, jobs: list[Job], twice: bool, expected: Expected) -> list[Unit]:
        """Group jobs by child: a ``run`` alone unless the domain's programs are contained, the others in batches of a domain."""
        contained = {runner.domain for runner in self._limits.runners if runner.contained}
        units: list[Unit] = []
        batches: dict[tuple[str, bool], list[Job]] = defaultdict(list)
        for job in jobs:
            executes = job.mode == "run"
            if executes and job.domain not in contained:
                units.append(Unit([job], twice, expected))
            else:
                batches[job.domain, executes].append(job)
        for (_, executes), batch in batches.items():
            size = min(_BATCH, -(-len(batch) // len(self._workers))) if executes else _BATCH
            units += [Unit(batch[at : at + size], twice and executes, expected) for at in range(0, len(batch), size)]
        return units

    def _serve(self, worker: Worker, started: Future[None]) -> None:
        """Start a worker, let it work until the pool is closed, and end it."""
        try:
            worker.start()
        except BaseException as error:  # noqa: BLE001 - raised in the thread that makes the pool
            started.set_exception(error)
        else:
            started.set_result(None)
        while tasks := self._take():
            try:
                verdicts = worker.judge([task.unit for task in tasks])
            except BaseException as error:  # noqa: BLE001 - raised in the threads that wait for these jobs
                for task in tasks:
                    task.verdicts.set_exception(error)
            else:
                for task, of_unit in zip(tasks, verdicts, strict=True):
                    task.verdicts.set_result(of_unit)
        worker.close()

    def _take(self) -> list[_Task]:
        """Wait for a worker's share of the queue. Returns none when the pool is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing)
            share = min(_GROUP, -(-len(self._queue) // len(self._workers)))
            return [heapq.heappop(self._queue) for _ in range(share)]

    def _check_open(self) -> None:
        if self._closing:
            raise SandboxFault("the sandbox pool is closed")
        if os.getpid() != self._process:
            raise SandboxFault("the sandbox pool belongs to the process that this one was forked from: make a pool, or a Verifier, here")

    def close(self, now: bool = False) -> None:
        """End all processes of the pool and wait for their end.

        Queued jobs are dropped. Running programs are waited for, or killed if ``now``; their callers get a `SandboxFault`.
        """
        with self._changed:
            if self._closing:
                return
            self._closing = True
            dropped, self._queue = self._queue, []
            self._changed.notify_all()
        for task in dropped:
            task.verdicts.set_exception(SandboxFault("the sandbox pool is closed"))
        for worker in self._workers:
            worker.closing = True
            if now:
                worker.kill()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(now=kind is not None)


def _is_too_long(job: Job, longest: int) -> bool:
    lengths = [len(text) for text in (job.program, *job.texts)]
    return max(lengths) > longest or sum(lengths) > _TEXTS * longest
