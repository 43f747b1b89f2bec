"""Repeat one step of a real run: `before_step` brings a run to it, `Replay.once` restores the run and does the step.

A replay starts from the same adapters, optimiser state, ratings, buffer and archive; with
``selfplay.overlap = "reproducible"`` it does bit-identical work. The rows of the learner and the jobs of the sandbox are kept, so that
the plain step can repeat them.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from benchmarks.measuring import timed

from populora.core.config import Config
from populora.domains.registry import sandbox_limits
from populora.engine.learning.batching import TrainRow
from populora.engine.learning.learner import Learner
from populora.engine.learning.update import UpdateStats
from populora.runs.checkpoint import load_checkpoint
from populora.runs.step_record import StepRecord
from populora.sandbox.pool import Expected, SandboxPool
from populora.sandbox.protocol import Job, Limits, Verdict
from populora.tasks.verifier import TaskVerifier
from populora.training.loop import build_run
from populora.training.run import Run, restore, save_run
from populora.training.seed_buffer import fill_buffer
from populora.training.step import selfplay_step


class RecordingPool(SandboxPool):
    """A pool that keeps the jobs which reach it."""

    def __init__(self, limits: Limits, workers: int, allow_weak: bool):
        super().__init__(limits, workers, allow_weak)
        self.jobs: list[Job] = []

    def run(self, jobs: Sequence[Job], twice: bool = False, expected: Expected | None = None, urgent: bool = False) -> list[Verdict]:
        self.jobs += jobs
        return super().run(jobs, twice, expected, urgent)


class RecordingLearner:
    """A run's learner that keeps the rows of its last update."""

    def __init__(self, learner: Learner):
        self._learner, self.agreement, self.logprobs = learner, learner.agreement, learner.logprobs
        self.rows: tuple[TrainRow, ...] = ()

    def update(self, rows: Sequence[TrainRow], scales: Mapping[int, float] | None = None) -> dict[int, UpdateStats]:
        self.rows = tuple(rows)
        return self._learner.update(rows, scales)


@dataclass(frozen=True)
class ReplayedStep:
    """The record of a step, its rows and jobs, the adapters after it, and seconds; ``cpu`` includes the sandbox."""

    record: StepRecord
    rows: tuple[TrainRow, ...]
    jobs: tuple[Job, ...]
    after: torch.Tensor
    wall: float
    cpu: float

    @property
    def seconds(self) -> dict[str, float]:
        """Wall seconds by phase; ``verify`` is the wait for verdicts, as most of the verification runs beside the sampler."""
        recorded = self.record.seconds
        phases = {"sample": recorded["propose"] + recorded["solve"], "verify": recorded["wait"], "train": recorded["update"]}
        return {**phases, "rest": self.wall - sum(phases.values()), "whole": self.wall}

    @property
    def sampled(self) -> int:
        """Tokens of all responses."""
        return self.record.tokens["propose"] + self.record.tokens["solve"]


@dataclass(frozen=True)
class Replay:
    """A run and its state before the step."""

    run: Run
    pool: RecordingPool
    learner: RecordingLearner
    before: Path
    """The folder of its checkpoint."""
    adapters: dict[str, torch.Tensor]
    """The bank's tensors before the step."""

    def once(self) -> ReplayedStep:
        """Restore the run and do the step."""
        run, config = self.run, self.run.config
        restore(run, load_checkpoint(self.before))
        run.verifier = TaskVerifier(self.pool, run.prompts, config.tasks, config.seed, run.fits)
        self.pool.jobs.clear()
        record, wall, cpu = timed(lambda: selfplay_step(run))
        jobs = sorted(set(self.pool.jobs), key=repr)  # batches that are verified at the same time may both run a program
        return ReplayedStep(record, self.learner.rows, tuple(jobs), run.bank.master.clone(), wall, cpu)


@contextmanager
def before_step(config: Config, step: int) -> Iterator[Replay]:
    """Open a run of ``config`` that has done all steps before ``step``."""
    box = config.sandbox
    with (
        build_run(config) as run,
        RecordingPool(sandbox_limits(config), box.workers, box.allow_weak) as pool,
        TemporaryDirectory(prefix="populora-") as folder,
    ):
        run.learner = learner = RecordingLearner(run.learner)
        fill_buffer(run)
        while run.step < step - 1:
            selfplay_step(run)
        save_run(run, Path(folder))
        yield Replay(run, pool, learner, Path(folder), run.bank.state())


def texts(step: ReplayedStep) -> set[tuple[str, str, str]]:
    """Return all texts that the jobs ran or read, with their mode and program. A job has those that were ready at the same time."""
    return {(job.mode, job.program, text) for job in step.jobs for text in job.texts or ("",)}


def check_same(first: ReplayedStep, again: ReplayedStep) -> None:
    """Stop unless two replays did bit-identical work with bit-identical results."""
    same = {"rows": first.rows == again.rows, "jobs": texts(first) == texts(again), "adapters": torch.equal(first.after, again.after)}
    if not all(same.values()):
        raise SystemExit(f"the replay differs from the first in its {', '.join(name for name, equal in same.items() if not equal)}")
