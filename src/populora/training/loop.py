"""The loop around the step: set up, step, record, checkpoint; and going on from a checkpoint.

Written in the order that survives a kill at any instant: records and metrics first, the checkpoint last. Every draw comes
from a named stream, so a resume needs no generator state and gives the bytes of the undisturbed run.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from populora.core.config import ClusterConfig, Config
from populora.core.config_check import check
from populora.core.types import Member, TaskType
from populora.engine.backend import local_parts
from populora.engine.cluster.backend import cluster_parts
from populora.engine.model.loading import base_folder, base_name
from populora.engine.sampling.sync_check import check_effect
from populora.runs.archive import keep_tessellation
from populora.runs.checkpoint import link_adapters, load_checkpoint, save_checkpoint
from populora.runs.directory import check_facts, new_run, open_run
from populora.runs.display import Display
from populora.runs.loggers import check_trackers
from populora.runs.metrics_log import cut_back, write_step
from populora.runs.step_record import StepRecord
from populora.runs.summary import Summary, summarise
from populora.runs.tracking import tracking
from populora.tasks.coverage import Archive
from populora.tasks.render import load_prompts, solve_prompt
from populora.tasks.verifier import Verifier
from populora.training.buffer import ProblemBuffer
from populora.training.evolution import check_operators
from populora.training.held_out import held_out_suite
from populora.training.population import initial_population
from populora.training.propose import check_prompts
from populora.training.run import Run
from populora.training.seed_buffer import seed_buffer
from populora.training.snapshot import put_back, snapshot
from populora.training.step import PhaseClock, selfplay_step

CANARY_PROBES = 2


def train(config: Config, folder: Path, display: Display, stop: Callable[[], bool] = lambda: False) -> Summary:
    """Run a new configuration into ``folder``. Nothing is written before every check has passed and the buffer is filled."""
    with prepared(config) as run:
        display.phase("filling the buffer")
        seeded(run)
        check_prompts(run)
        with new_run(folder, config, run.facts):
            _checkpoint(run, folder)
            return _loop(run, folder, display, stop)


def resume(folder: Path, display: Display, stop: Callable[[], bool] = lambda: False, cluster: ClusterConfig | None = None) -> Summary:
    """Go on from the newest checkpoint of a run, with the processes that it began with or those of ``cluster``. What was logged beyond it
    is cut back, once it is certain that the run can go on."""
    with open_run(folder) as config, prepared(replace(config, cluster=cluster or config.cluster)) as run:
        check_facts(folder, run.facts)
        checkpoint = load_checkpoint(folder)
        if checkpoint:
            put_back(run, checkpoint)
            run.publish()
            link_adapters(folder)
        else:
            display.phase("filling the buffer")
            seeded(run)
            _checkpoint(run, folder)
        cut_back(folder, run.step, config)
        return _loop(run, folder, display, stop)


@contextmanager
def prepared(config: Config) -> Iterator[Run]:
    """A run before its first step: checked settings, base, adapters, sampler, learner, sandbox. All of it ends with the block."""
    check(config)
    check_operators(config)
    check_trackers(config.track)
    suite, prompts, population = held_out_suite(config), load_prompts(config.base.prompts, config.tasks), initial_population(config)
    with (cluster_parts if config.cluster.learners else local_parts)(config) as parts:
        parts.bank.initialise(config.seed, config.lora.ranks)
        facts = {
            "base_sha256": parts.base_sha256, "tokenizer_sha256": _tokenizer_fingerprint(parts.tokenizer),
            "prompts": f"{prompts.name} {prompts.version}", **({"held_out_sha256": _digest(suite)} if suite else {}),
            "sandbox": parts.tier,
        }  # fmt: skip
        verifier = Verifier(parts.judge, prompts, config.tasks, config.seed)
        run = Run(
            config, prompts, parts.sampler, parts.learner, parts.bank, verifier, facts, population,
            ProblemBuffer(config.selfplay.buffer_size), Archive(), suite,
        )  # fmt: skip
        run.publish()
        yield run


def seeded(run: Run) -> None:
    """Fill the buffer from the base's own file of seeds, or by its own proposals."""
    seed_buffer(run, base_folder(run.config.base) / "seeds.jsonl")


def _tokenizer_fingerprint(tokenizer: Any) -> str:
    """SHA-256 over the tokens and their ids."""
    return _digest(sorted(tokenizer.get_vocab().items()))


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()


def _loop(run: Run, folder: Path, display: Display, stop: Callable[[], bool]) -> Summary:
    keep_tessellation(folder)
    with tracking(folder, run.config) as follow:
        _steps(run, folder, display, stop, follow)
    summary = summarise(folder, stopped=run.step < run.config.steps)
    display.close(summary)
    return summary


def _steps(run: Run, folder: Path, display: Display, stop: Callable[[], bool], follow: Callable[[], None]) -> None:
    stopping, writing = stop(), 0.0
    display.phase("canary")
    _check_effect(run, run.population.members)
    while run.step < run.config.steps and not stopping:
        record = selfplay_step(run, display.phase)
        clock = PhaseClock(display.phase, {**record.seconds, "write": writing})
        with clock.phase("canary"):
            _check_effect(run, _changed(run, record))
        started = time.perf_counter()
        metrics = write_step(folder, replace(record, seconds=clock.seconds))
        stopping = stop()
        if run.step % run.config.checkpoint_every == 0 or run.step == run.config.steps or stopping:
            _checkpoint(run, folder)
            follow()
        writing = time.perf_counter() - started  # known only now: it is booked with the next step
        display.step(replace(record, seconds=clock.seconds), metrics)


def _check_effect(run: Run, members: Sequence[Member]) -> None:
    """The canary: every trained adapter must differ from the base, and sampler and learner must have the same ones."""
    probes = [solve_prompt(run.prompts, problem) for problem in run.buffer.problems(TaskType.CODE_O)[:CANARY_PROBES]]
    check_effect(run.learner, run.sampler, run.bank, probes, [member.slot for member in members])


def _changed(run: Run, record: StepRecord) -> list[Member]:
    """The members that the step updated or bred: those whose adapters were published."""
    born = {child.member for child in record.children}
    updated = {name for name, update in record.updates.items() if not update.skipped}
    return [member for member in run.population.members if member.id in born | updated]


def _checkpoint(run: Run, folder: Path) -> None:
    config = run.config
    save_checkpoint(folder, snapshot(run), config.keep_checkpoints, base_name(config.base), config.lora.targets)
