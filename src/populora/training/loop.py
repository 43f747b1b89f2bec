"""The loop around the step: build a run, then step, record, checkpoint; and resume from a checkpoint.

The order survives a kill at any instant: records and metrics are written first, the checkpoint last. Every draw comes from a
named stream, so a resume needs no generator state and gives the bytes of the undisturbed run.
"""

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from populora.core.config import ClusterConfig, Config
from populora.core.config_check import check
from populora.core.files import digest
from populora.core.installed import processor
from populora.core.invocation import command
from populora.core.types import Member
from populora.domains.declaration import fingerprint_of
from populora.domains.registry import load_domains
from populora.engine.backend import local_backend
from populora.engine.cluster.ray_backend import cluster_backend
from populora.engine.model.loading import with_absolute_path
from populora.runs.checkpoint import link_adapters, load_checkpoint
from populora.runs.directory import (
    changed_computation,
    changed_versions,
    check_fingerprints,
    check_free,
    lengthen_run,
    new_run,
    open_run,
    with_more_steps,
)
from populora.runs.display import Display
from populora.runs.loggers import check_loggers, open_loggers
from populora.runs.metrics_log import truncate_logs, write_step
from populora.runs.step_record import StepRecord
from populora.runs.summary import Summary, summarise
from populora.tasks.coverage import Archive, tessellation_sha256
from populora.tasks.render import prompts_of
from populora.tasks.verifier import TaskVerifier
from populora.training.buffer import ProblemBuffer
from populora.training.evaluation import check_held_out, held_out_suite
from populora.training.evolution import check_operators, evolution_due
from populora.training.population import initial_population
from populora.training.propose import check_prompts
from populora.training.recovery import in_spite_of_losses
from populora.training.run import PhaseTimer, Run, restore, save_run, write_adapters
from populora.training.seed_buffer import fill_buffer
from populora.training.step import selfplay_step
from populora.training.sync import allow_rounding, check_sync

COLLECT_AFTER = 100_000
"""New objects that start a garbage collection in a run. A calling program's higher number stays, and so does a collection that is off."""


def train(config: Config, folder: Path, display: Display, stop: Callable[[], bool] = lambda: False) -> Summary:
    """Run a new configuration into ``folder``. Nothing is written before every check has passed and the buffer is filled."""
    check_free(folder)
    config = replace(config, base=with_absolute_path(config.base))
    with build_run(config) as run:
        display.phase("filling the buffer")
        seeds = fill_buffer(run, display.remark, stop)
        check_prompts(run, config.task_types)
        check_held_out(run)
        with new_run(folder, config, {**run.fingerprints, "seeds_sha256": seeds, "computation": run.computation}):
            if run.sampler.decoder.startswith("torch "):
                display.remark(f"decoding by {run.sampler.decoder}, which is several times slower than C")
            save_run(run, folder)
            return _loop(run, folder, display, stop)


def resume(
    folder: Path,
    display: Display,
    stop: Callable[[], bool] = lambda: False,
    cluster: ClusterConfig | None = None,
    steps: int | None = None,
) -> Summary:
    """Continue from the newest checkpoint of a run, with its own processes or those of ``cluster``, to its last step or a later one.

    Logs beyond the checkpoint are cut back once it is certain that the run can continue. Raises `ConfigError` for fewer ``steps``.
    """
    with open_run(folder) as begun, build_run(with_more_steps(replace(begun, cluster=cluster or begun.cluster), steps)) as run:
        config = run.config
        check_fingerprints(folder, run.fingerprints)
        for change in changed_versions(folder) + changed_computation(folder, run.computation):
            display.remark(f"{change}: the results may differ from those of an undisturbed run")
        checkpoint = load_checkpoint(folder)
        if checkpoint:
            restore(run, checkpoint)
            run.sync_weights()
            link_adapters(folder)
            if run.step == config.steps:
                display.remark(
                    f"all {config.steps} steps are done; `{command('resume', folder, '--steps', 2 * config.steps)}` trains longer"
                )
            elif run.step == begun.steps and evolution_due(config, run.step):
                display.remark(f"no children were bred after step {run.step}, as it was the last one: a run that began longer has them")
        else:
            display.phase("filling the buffer")
            check_fingerprints(folder, {"seeds_sha256": fill_buffer(run, display.remark, stop)})
        truncate_logs(folder, run.step, config)
        if not checkpoint:
            save_run(run, folder)
        if config.steps > begun.steps:
            lengthen_run(folder, config.steps)
        return _loop(run, folder, display, stop)


@contextmanager
def build_run(config: Config) -> Iterator[Run]:
    """Check the settings and build a run before its first step, with an empty buffer. Its processes end with the block."""
    check(config)
    check_operators(config)
    check_loggers(config.track)
    domains = load_domains(config.domains)
    suite, prompts, population = held_out_suite(config), prompts_of(config), initial_population(config)
    with (cluster_backend if config.cluster.learners else local_backend)(config) as backend:
        backend.bank.initialise(config.seed, config.lora.ranks)

        fits = prompt_fits(backend.tokenizer, config.selfplay.max_prompt_tokens)
        control_tokens = [token.content for token in backend.tokenizer.added_tokens_decoder.values() if token.special and token.content]
        run = Run(
            config=config,
            prompts=prompts,
            sampler=backend.sampler,
            learner=backend.learner,
            bank=backend.bank,
            verifier=TaskVerifier(backend.judge, prompts, config.tasks, config.seed, fits, control_tokens),
            fits=fits,
            fingerprints={
                "base_sha256": backend.base_sha256,
                "tokenizer_sha256": digest(repr(sorted(backend.tokenizer.get_vocab().items())).encode()),
                "domains": fingerprint_of(domains.values()),
                "prompts": ", ".join(f"{prompt_set.name} {prompt_set.version}" for prompt_set in prompts.values()),
                **({"held_out_sha256": digest(repr(suite).encode())} if suite else {}),
                "tessellation_sha256": ", ".join(tessellation_sha256(domain).tobytes().hex() for domain in domains.values()),
                "sandbox": backend.tier,
            },
            computation={"processor": processor(), "decoder": backend.sampler.decoder, **backend.learner.computation},
            population=population,
            buffer=ProblemBuffer(config.selfplay.buffer_size, config.task_types),
            archives={name: Archive(domain) for name, domain in domains.items()},
            held_out=suite,
        )
        run.sync_weights()
        yield run


def _loop(run: Run, folder: Path, display: Display, stop: Callable[[], bool]) -> Summary:
    with open_loggers(folder, run.config) as send_logs, without_long_lived():
        stopping, write_seconds, losses = stop(), 0.0, Counter[int]()

        def finish_step() -> tuple[StepRecord, dict[str, float], float, bool]:
            """Make a step, and write what it changed."""
            record = _checked_step(run, display)
            record = replace(record, seconds={**record.seconds, "write": write_seconds})
            started = time.perf_counter()
            metrics = write_step(folder, record, partial(write_adapters, run, record.evolution.parents))
            stopping = stop()
            if run.step % run.config.checkpoint_every == 0 or run.step == run.config.steps or stopping:
                save_run(run, folder)
                send_logs()
            return record, metrics, time.perf_counter() - started, stopping

        in_spite_of_losses(run, folder, display.remark, losses, lambda: _check_start(run, display))
        while run.step < run.config.steps and not stopping:
            record, metrics, write_seconds, stopping = in_spite_of_losses(run, folder, display.remark, losses, finish_step)
            display.step(record, metrics)  # the seconds of writing are logged with the next step
    summary = summarise(folder, stopped=run.step < run.config.steps)
    display.close(summary)
    return summary


def _checked_step(run: Run, display: Display) -> StepRecord:
    """Make a step, and check that its adapters have reached the sampler."""
    record, timer = selfplay_step(run, display.phase), PhaseTimer(display.phase)
    with timer("sync_check"):
        check_sync(run, _changed_members(run, record))
    return replace(record, seconds={**record.seconds, **timer.seconds})


def _check_start(run: Run, display: Display) -> None:
    display.phase("comparing sampler and learner")
    allow_rounding(run, display.remark)
    check_sync(run, run.population.members)


def prompt_fits(tokenizer: Any, limit: int) -> Callable[[str], bool]:
    """Return a function that tells whether a prompt has at most ``limit`` tokens. It does not tokenise one that is certainly short enough:
    characters together never take more tokens than each of them alone."""

    def tokens(text: str) -> int:
        return len(tokenizer(text)["input_ids"])

    special = tokens("")
    widest = max(tokens(chr(code)) - special for code in range(128))
    return lambda prompt: (prompt.isascii() and special + widest * len(prompt) <= limit) or tokens(prompt) <= limit


@contextmanager
def without_long_lived() -> Iterator[None]:
    """Leave the objects of before, most of them of libraries, out of garbage collection, and collect seldom: a step makes hundreds of
    objects a prompt, which nearly all end without it. What a calling program has frozen stays frozen."""
    nothing_frozen, thresholds = gc.get_freeze_count() == 0, gc.get_threshold()
    if nothing_frozen:
        gc.collect()
        gc.freeze()
    if thresholds[0]:
        gc.set_threshold(max(COLLECT_AFTER, thresholds[0]), *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        if nothing_frozen:
            gc.unfreeze()


def _changed_members(run: Run, record: StepRecord) -> list[Member]:
    """Select the members that the step updated or bred, whose adapters were published."""
    born = {child.member for child in record.evolution.children}
    updated = {name for name, update in record.updates.items() if not update.skipped}
    return [member for member in run.population.members if member.id in born | updated]
