"""A plan as tables: memory of a GPU, work and seconds of a step, the run, what limits it, and what was assumed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from populora.core.config import Config
from populora.engine.planning.advice import cure, limit
from populora.engine.planning.hardware import CPU
from populora.engine.planning.placement import Placement, spread, spread_settings
from populora.engine.planning.plan import Plan
from populora.runs.style import plural


def render_plan(plan: Plan) -> Iterator[RenderableType]:
    """What `populora plan` prints, part by part."""
    yield Text(f"{population(plan.config)} on {plan.config.base.path}, {places(plan)}")
    if plan.placement.idle:
        yield Text(idle(plan))
    yield _hardware(plan)
    yield _memory(plan)
    yield _step(plan)
    yield from _run(plan)
    yield _assumptions(plan)


def population(config: Config) -> str:
    """``4 teachers + 4 students``, or the single agent."""
    if config.population.single_agent:
        return "single agent"
    return f"{plural(config.population.teachers, 'teacher')} + {plural(config.population.students, 'student')}"


def places(plan: Plan) -> str:
    """Which GPUs do what."""
    placement, name = plan.placement, plan.hardware.name
    cores = ", cores of its own for each process" if plan.config.cluster.learners else ""
    where = f"this machine's processor{cores}" if name == CPU else f"{placement.gpus} x {name}"
    return f"{where}: {_placed(placement, plan.config)}"


def idle(plan: Plan) -> str:
    """Why some GPUs have nothing to do, and which settings would use them."""
    placement = plan.placement
    there = placement.gpus + placement.idle
    if plan.config.cluster.learners:
        why = f"cluster.engines x engine.tensor_parallel is {placement.gpus}"
    else:
        wider = spread(plan.config, there)
        cure = f"; {spread_settings(wider)} would use them" if wider.cluster.learners else ""
        why = f"a run without cluster settings is one process{cure}"
    return f"{placement.idle} of {there} GPUs stay idle: {why}"


def _placed(placement: Placement, config: Config) -> str:
    engines = plural(placement.engines, "engine") + _of_each(placement.engine_gpus)
    learners = plural(placement.learners, "learner") + _of_each(placement.learner_gpus)
    if config.cluster.learners:
        return f"{engines}, {learners}, {plural(config.cluster.verifiers, 'verifier')}"
    return "one process that samples and learns" if config.engine.backend == "inprocess" else f"one process with {engines}, {learners}"


def _of_each(gpus: int) -> str:
    return "" if gpus == 1 else f" of {gpus} GPUs each"


def _hardware(plan: Plan) -> Text:
    one = plan.hardware
    rate = f"{one.teraflops:.4g} TFLOP/s, {one.gigabytes_per_second:.4g} GB/s, {one.gigabytes:.4g} GB"
    return Text(f"{one.name}: {rate} ({one.source})", "dim")


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left")
    return table


def _memory(plan: Plan) -> Table:
    whole = "memory of an engine and a learner" if plan.config.cluster.learners else "memory"
    table = _table("memory of a GPU" if plan.hardware.name != CPU else whole, "GB", "held by")
    for part in plan.memory.parts:
        table.add_row(part.name, f"{part.bytes / 1e9:.2f}", part.owner)
    shared = ", cache given back while adapters learn" if plan.memory.released else ""
    table.add_section()
    verdict = "fits" if plan.fits else "does not fit"
    table.add_row(f"most at a time{shared}", f"{plan.memory.total / 1e9:.2f}", f"of {plan.hardware.gigabytes:.1f}: {verdict}")
    return table


def _step(plan: Plan) -> Table:
    work, seconds = plan.work, plan.seconds
    table = _table("a step", "responses", "tokens", "PFLOP", "seconds")
    table.add_row("prompts", "", _count(work.sampled.read), _peta(plan.flops["prompts"]), _seconds(seconds.prompts))
    table.add_row(
        f"decode, {seconds.rows:.0f} at a time an engine", _count(work.sampled.rows), _count(work.sampled.written),
        _peta(plan.flops["decode"]), _seconds(seconds.decode),
    )  # fmt: skip
    trained = work.trained.read + work.trained.written
    table.add_row("train", _count(work.trained.rows), _count(trained), _peta(plan.flops["train"]), _seconds(seconds.train))
    table.add_row(f"publish adapters, {seconds.publish_share:.1%} of a step", "", "", "", _seconds(seconds.publish))
    table.add_section()
    table.add_row("all of that", "", "", _peta(sum(plan.flops.values())), _seconds(seconds.lean))
    table.add_row("the longest response decoding alone, at most", "", "", "", "+" + _seconds(seconds.tail))
    table.add_row("verdicts, beside the sampler", _count(work.sampled.rows), "", "", _seconds(seconds.verdicts))
    return table


def _run(plan: Plan) -> Iterator[Text]:
    low, high, steps = plan.seconds.lean, plan.seconds.longest, plan.config.steps
    each = f"{_seconds(low / plan.config.population.members)} to {_seconds(high / plan.config.population.members)} s for each adapter"
    yield Text(
        f"A step takes {_seconds(low)} to {_seconds(high)} s ({each}); {steps} steps take {_hours(low * steps)} to {_hours(high * steps)}."
    )
    yield Text(f"Limit: {limit(plan)}.", "bold" if plan.fits else "bold red")
    if not plan.fits:
        yield Text(f"To make it fit: {cure(plan)}.", "bold")


def _assumptions(plan: Plan) -> Table:
    table = Table(box=None, pad_edge=False, title="assumed", title_justify="left", title_style="dim")
    for item in dataclasses.fields(plan.assumed):
        table.add_row(f"--assume.{item.name.replace('_', '-')}", f"{getattr(plan.assumed, item.name):g}", style="dim")
    return table


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _peta(flops: float) -> str:
    return f"{flops / 1e15:.3g}"


def _seconds(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"
