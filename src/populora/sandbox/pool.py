"""A pool of workers that turns jobs into verdicts.

The pool's threads only move bytes; programs run in children of the workers' zygotes (`populora.sandbox.worker`). Callers share the
pool, and at most one unit of jobs per worker runs at a time.
"""

import queue
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Protocol, Self

from populora.core.config import SandboxConfig
from populora.core.errors import ConfigError, SandboxFault
from populora.core.types import VerdictKind
from populora.sandbox.layers import Tier, isolation
from populora.sandbox.protocol import Job, Limits, Verdict
from populora.sandbox.worker import Worker

_BATCH = 32
"""Jobs that one child handles if no program is executed: a fork costs as much as parsing some fifty answers."""
_TEXTS = 4
"""All texts of a job together may be this many times as long as the longest one."""


class Judge(Protocol):
    """Runs jobs in this process or elsewhere; see `SandboxPool.run`."""

    def run(self, jobs: Sequence[Job], twice: bool = False) -> list[Verdict]: ...


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
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="sandbox")
        self._closing = False
        self._submitting = threading.Lock()
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        self._workers = [Worker(isolated, limits) for _ in range(workers)]
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
        """Return one verdict per job, in order; equal jobs run once. Several threads may call it.

        ``twice`` calls every program's ``f`` twice in each of two processes: unequal values are ``rejected_nondeterministic``.
        It concerns ``run`` jobs; ``parse`` and ``measure`` execute nothing. Raises `SandboxFault` if the sandbox fails.
        """
        longest = self._limits.max_source_chars
        verdicts = {job: Verdict(VerdictKind.ERROR, "source_limit") for job in jobs if _is_too_long(job, longest)}
        units = _units([job for job in dict.fromkeys(jobs) if job not in verdicts])
        with self._submitting:
            self._check_open()
            tasks = [self._threads.submit(self._judge, unit, twice) for unit in units]
        wait(tasks)
        for unit, task in zip(units, tasks, strict=True):
            verdicts |= zip(unit, task.result(), strict=True)
        return [verdicts[job] for job in jobs]

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
        """End all processes of the pool and wait for their end.

        Queued jobs are dropped. Running programs are waited for, or killed if ``now``; their callers get a `SandboxFault`.
        """
        with self._submitting:
            if self._closing:
                return
            self._closing = True
            # By the pool's own threads: the kernel ends a zygote with the thread that started it, and then its children are not reaped.
            tasks = [self._threads.submit(lambda: self._idle.get().close()) for _ in self._workers]
        for worker in self._workers:
            worker.closing = True
            if now:
                worker.kill()
        wait(tasks)
        self._threads.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(now=kind is not None)


def limits_of(box: SandboxConfig) -> Limits:
    """Return the limits of these settings."""
    return Limits(box.cpu_seconds, box.wall_seconds, box.memory_mb, box.max_output_chars)


def _is_too_long(job: Job, longest: int) -> bool:
    lengths = [len(text) for text in (job.program, *job.texts)]
    return max(lengths) > longest or sum(lengths) > _TEXTS * longest


def _units(jobs: list[Job]) -> list[list[Job]]:
    """Group jobs by child: every ``run`` alone, the others in batches."""
    calm = [job for job in jobs if job.mode != "run"]
    return [[job] for job in jobs if job.mode == "run"] + [calm[at : at + _BATCH] for at in range(0, len(calm), _BATCH)]
