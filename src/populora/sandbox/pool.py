"""A pool of zygote pairs that turns jobs into verdicts.

The pool's threads only move bytes; programs run in children of the zygotes (`populora.sandbox.worker`). Callers share the pool, no
more units are at work than it has workers, and what is waited for longer than half a minute is named in a warning of this
module's logger.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait

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
_HEARTBEAT_SECONDS = 30.0
_log = logging.getLogger(__name__)


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
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        self._workers = [Worker(found, limits) for _ in range(workers)]
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


def limits_of(box: SandboxConfig) -> Limits:
    """The limits that these settings ask for."""
    return Limits(box.cpu_seconds, box.wall_seconds, box.memory_mb, box.max_output_chars)


def _is_too_long(job: Job, longest: int) -> bool:
    lengths = [len(text) for text in (job.program, *job.texts)]
    return max(lengths) > longest or sum(lengths) > _TEXTS * longest


def _units(jobs: list[Job]) -> list[list[Job]]:
    """Jobs grouped by child: every ``run`` alone, the others in batches."""
    calm = [job for job in jobs if job.mode != "run"]
    return [[job] for job in jobs if job.mode == "run"] + [calm[at : at + _BATCH] for at in range(0, len(calm), _BATCH)]
