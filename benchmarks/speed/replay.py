"""A step of a real run, done again and again: `before_step` brings a run to it, `Replay.once` puts the run back and does the step.

The run is made and moved on by the functions that training uses. A replay starts from the same adapters, optimiser state, ratings,
buffer and archive; with ``selfplay.overlap = "reproducible"`` it does the same work to
the byte. What the learner and the sandbox were asked for is kept, for another arm to do the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from processes import timed

from populora.core.config import Config
from populora.engine.learning.batching import TrainRow
from populora.engine.learning.learner import Learner
from populora.engine.learning.update import UpdateStats
from populora.runs.checkpoint import Checkpoint
from populora.runs.step_record import StepRecord
from populora.sandbox.pool import SandboxPool, limits_of
from populora.sandbox.protocol import Job, Limits, Verdict
from populora.tasks.verifier import TaskVerifier
from populora.training.loop import build_run
from populora.training.run import Run, restore, snapshot
from populora.training.seed_buffer import fill_buffer
from populora.training.step import selfplay_step


class RecordedPool(SandboxPool):
    """A pool that keeps the jobs which reach it."""

    def __init__(self, limits: Limits, workers: int, allow_weak: bool):
        super().__init__(limits, workers, allow_weak)
        self.judged: list[Job] = []

    def run(self, jobs: Sequence[Job], twice: bool = False) -> list[Verdict]:
        self.judged += jobs
        return super().run(jobs, twice)


class RecordedLearner:
    """A run's learner, and the rows of its last update."""

    def __init__(self, learner: Learner):
        self._learner, self.agreement, self.logprobs = learner, learner.agreement, learner.logprobs
        self.rows: tuple[TrainRow, ...] = ()

    def update(self, rows: Sequence[TrainRow]) -> dict[int, UpdateStats]:
        self.rows = tuple(rows)
        return self._learner.update(rows)


@dataclass(frozen=True)
class Taken:
    """A step that was done: its record, what was learned from and judged, the adapters after it, and its seconds of wall and CPU time,
    the latter with those of the sandbox."""

    record: StepRecord
    rows: tuple[TrainRow, ...]
    judged: tuple[Job, ...]
    after: torch.Tensor
    wall: float
    cpu: float

    @property
    def seconds(self) -> dict[str, float]:
        """Wall seconds by phase; ``verify`` is what the sampler waited for verdicts, most of the verification runs beside it."""
        found = self.record.seconds
        phases = {"sample": found["propose"] + found["solve"], "verify": found["wait"], "train": found["update"]}
        return {**phases, "rest": self.wall - sum(phases.values()), "whole": self.wall}


@dataclass(frozen=True)
class Replay:
    """A run and the moment before the step that is done again."""

    run: Run
    pool: RecordedPool
    limits: Limits
    learner: RecordedLearner
    before: Checkpoint
    adapters: dict[str, torch.Tensor]
    """The bank's tensors before the step."""

    def once(self) -> Taken:
        """Put the run back and do the step."""
        run, config = self.run, self.run.config
        restore(run, self.before)
        run.verifier = TaskVerifier(self.pool, run.prompts, config.tasks, config.seed, run.fits)
        self.pool.judged.clear()
        record, wall, cpu = timed(lambda: selfplay_step(run))
        judged = sorted(self.pool.judged, key=repr)  # proposals and attempts are judged by two threads
        return Taken(record, self.learner.rows, tuple(judged), run.bank.master.clone(), wall, cpu)


@contextmanager
def before_step(config: Config, step: int) -> Iterator[Replay]:
    """A run of ``config`` that has done all steps before ``step``."""
    box, limits = config.sandbox, limits_of(config.sandbox)
    with build_run(config) as run, RecordedPool(limits, box.workers, box.allow_weak) as pool:
        run.learner = learner = RecordedLearner(run.learner)
        fill_buffer(run)
        while run.step < step - 1:
            selfplay_step(run)
        yield Replay(run, pool, limits, learner, snapshot(run), run.bank.state())


def check_same(first: Taken, again: Taken) -> None:
    """Stop unless two replays did the same work with the same result, to the byte."""
    same = {
        "rows that were learned from": first.rows == again.rows,
        "programs and answers judged": first.judged == again.judged,
        "adapters after it": torch.equal(first.after, again.after),
    }
    if not all(same.values()):
        differing = ", ".join(name for name, equal in same.items() if not equal)
        raise SystemExit(f"the step was not replayed: its {differing} are not those of the first time")
