"""``populora plan [PRESET|FILE.toml] [--gpus N[xNAME]]``: memory, work and time of a run before it starts."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import tyro
from rich import box
from rich.console import RenderableType
from rich.table import Column, Table
from rich.text import Text

from populora.cli.arguments import parse_settings
from populora.core.config import Config
from populora.core.config_check import check
from populora.core.errors import ConfigError
from populora.core.output import OutputConsole
from populora.core.presets import DEFAULT
from populora.domains.registry import load_domains
from populora.engine.model.base_shape import read_base_shape
from populora.engine.planning.assumptions import Assumptions
from populora.engine.planning.hardware import CPU, cluster_settings, count_idle_gpus, fill_gpus, find_gpu, parse_gpus
from populora.engine.planning.planner import Plan, bottleneck, make_plan, suggest_fix
from populora.runs.style import plural

GPU = "h100-80gb"  # the paper's
MEASURED = """\
Measured on one H200, at the shape of Qwen2.5-7B without checkpointing: a learner's memory, which is planned 2 to 3 % too high without the \
driver's. All else is calculated: other shapes, checkpointing, the engine's memory, vLLM, and several GPUs (docs/plan.md)."""
"""It follows from ``benchmarks/speed/gpu.json``, by a test."""


@dataclass(frozen=True)
class PlanRun:
    """Say what a run would need: memory of a GPU by part, tokens and FLOPs of a step, seconds of a step and hours of the run.

    Nothing is loaded and no GPU is needed: shapes come from the base's config.json, or are known (Qwen2.5-Coder). What has to be
    assumed is printed, and each assumption is a flag. Exits with 1 if the run does not fit, and prints what to change.
    """

    config: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[PRESET|FILE.toml]")] = DEFAULT
    """A preset that ships (`populora train --list`), or a settings file of yours."""
    gpu: Annotated[str, tyro.conf.arg(metavar="NAME")] = ""
    """Such as `H100` or `a100-40gb`; `cpu` measures this machine. The default follows `base.device`; for `cuda` it is an H100."""
    gpus: Annotated[str, tyro.conf.arg(metavar="N[xNAME]")] = ""
    """GPUs of a node, such as `8` or `8xH100`; by default as many as the configuration uses. For more, one without cluster settings is
    planned with some."""
    nodes: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """Number of machines with that many GPUs."""
    assume: Assumptions = field(default_factory=Assumptions)
    settings: Annotated[Config, tyro.conf.arg(name="")] = field(default_factory=Config)


def main(arguments: Sequence[str]) -> int:
    """Print the plan; returns 0, or 1 if it does not fit. Raises `PopuloraError`."""
    args = parse_settings(PlanRun, arguments, "plan")
    check(args.settings)
    load_domains(args.settings.domains)
    gpus, gpu = parse_gpus(args.gpus, args.gpu)
    config = fill_gpus(args.settings, gpus, args.nodes)
    plan = plan_run(config, gpu, gpus, args.nodes, args.assume)
    console = OutputConsole()
    if config is not args.settings:
        console.print(f"The configuration has no cluster settings, a run of it is one process. Planned with {cluster_settings(config)}:")
    for part in render_plan(plan):
        console.print(part)
    return 0 if plan.fits else 1


def plan_run(config: Config, gpu: str = "", gpus: int = 0, nodes: int = 1, assumed: Assumptions | None = None) -> Plan:
    """Plan a run; an empty ``gpu`` and 0 ``gpus`` follow the settings. Raises `ConfigError` for what cannot be planned."""
    gpu = gpu or (CPU if config.base.device == "cpu" else GPU)
    if gpu == CPU:
        if gpus > 1 or nodes > 1:
            raise ConfigError(f"a plan for the processor is for this machine alone, got --gpus {gpus} --nodes {nodes}: name a --gpu")
        from populora.engine.sampling.cpu_speed import measure_cpu

        hardware = measure_cpu(config.threads or (1 if config.cluster.learners else 0))  # actors default to one thread
    else:
        if config.base.device == "cpu":
            config = replace(config, base=replace(config.base, device="cuda"))
            check(config)
        hardware = find_gpu(gpu)
    idle = count_idle_gpus(config, gpus, nodes)
    return make_plan(config, read_base_shape(config.base), hardware, assumed or Assumptions(), idle)


def render_plan(plan: Plan) -> Iterator[RenderableType]:
    """Render the plan as text and tables."""
    yield Text(f"{describe_population(plan.config)} on {plan.config.base.path}, {describe_layout(plan)}")
    if plan.idle:
        yield Text(describe_idle(plan))
    hardware = plan.hardware
    rate = f"{hardware.teraflops:.4g} TFLOP/s, {hardware.gigabytes_per_second:.4g} GB/s, {hardware.gigabytes:.4g} GB"
    yield Text(f"{hardware.name}: {rate} ({hardware.source})", "dim")
    yield _memory_table(plan)
    yield _step_table(plan)
    low, high, steps, members = plan.seconds.shortest, plan.seconds.longest, plan.config.steps, plan.config.population.members
    per_adapter = f"{_seconds(low / members)} to {_seconds(high / members)} s for each adapter"
    yield Text(f"A step takes {_seconds(low)} to {_seconds(high)} s ({per_adapter}).")
    yield Text(f"{steps} steps take {_hours(low * steps)} to {_hours(high * steps)}.")
    disk = f"{plan.checkpoints * plan.checkpoint_bytes / 1e9:.2g} GB of disk, {plan.checkpoints} of {plan.checkpoint_bytes / 1e9:.2g} GB"
    yield Text(f"Its checkpoints take {disk}. Texts, and the parents of children, come on top.")
    yield Text(f"Limit: {bottleneck(plan)}.", "bold" if plan.fits else "bold red")
    if not plan.fits:
        yield Text(f"To make it fit: {suggest_fix(plan)}.", "bold")
    table = Table(box=None, pad_edge=False, title="assumed", title_justify="left", title_style="dim")
    for item in dataclasses.fields(plan.assumed):
        table.add_row(f"--assume.{item.name.replace('_', '-')}", f"{getattr(plan.assumed, item.name):g}", style="dim")
    yield table
    if hardware.name != CPU:
        yield Text(MEASURED, "dim")


def describe_population(config: Config) -> str:
    """Format the population, such as ``4 teachers + 4 students``."""
    if config.population.single_agent:
        return "single agent"
    sharing = ", each pair with one adapter" if config.population.shared_adapters else ""
    return f"{plural(config.population.teachers, 'teacher')} + {plural(config.population.students, 'student')}{sharing}"


def describe_layout(plan: Plan) -> str:
    """Describe which GPUs do what."""
    config, cluster, engine_gpus = plan.config, plan.config.cluster, plan.config.engine.tensor_parallel
    cores = ", cores of its own for each process" if cluster.learners else ""
    gpus = f"{cluster.engines * engine_gpus} x {plan.hardware.name}"
    place = f"this machine's processor{cores}" if plan.hardware.name == CPU else gpus
    engines = plural(cluster.engines, "engine") + ("" if engine_gpus == 1 else f" of {engine_gpus} GPUs each")
    if cluster.adapter_copies:
        engines += f" (each adapter on {cluster.adapter_copies})"
    learners = plural(max(cluster.learners, 1), "learner") + ("" if cluster.shards == 1 else f" of {cluster.shards} GPUs each")
    if cluster.learners:
        return f"{place}: {engines}, {learners}, {plural(cluster.verifiers, 'verifier')}"
    return f"{place}: one process " + ("that samples and learns" if config.engine.backend == "inprocess" else f"with {engines}, {learners}")


def describe_idle(plan: Plan) -> str:
    """Explain why GPUs are idle, and which settings would use them."""
    used = plan.config.cluster.engines * plan.config.engine.tensor_parallel
    gpus = used + plan.idle
    if plan.config.cluster.learners:
        reason = f"cluster.engines x engine.tensor_parallel is {used}"
    else:
        wider = fill_gpus(plan.config, gpus)
        fix = f"; {cluster_settings(wider)} would use them" if wider.cluster.learners else ""
        reason = f"a run without cluster settings is one process{fix}"
    return f"{plan.idle} of {gpus} GPUs stay idle: {reason}"


def _table(first: str, *columns: str) -> Table:
    return Table(first, *(Column(column, justify="right") for column in columns), box=box.SIMPLE_HEAD, pad_edge=False)


def _memory_table(plan: Plan) -> Table:
    cpu = "memory of an engine and a learner" if plan.config.cluster.learners else "memory"
    table = _table(cpu if plan.hardware.name == CPU else "memory of a GPU", "GB", "held by")
    for part in plan.memory.parts:
        table.add_row(part.name, f"{part.bytes / 1e9:.2f}", part.owner)
    table.add_section()
    shared = ", cache given back while adapters learn" if plan.memory.released else ""
    verdict = "fits" if plan.fits else "does not fit"
    table.add_row(f"most at a time{shared}", f"{plan.memory.total / 1e9:.2f}", f"of {plan.hardware.gigabytes:.1f}: {verdict}")
    return table


def _step_table(plan: Plan) -> Table:
    seconds, sampled, trained = plan.seconds, plan.work.sampled, plan.work.trained
    peta = {phase: f"{flops / 1e15:.3g}" for phase, flops in (plan.flops | {"all": sum(plan.flops.values())}).items()}
    decode = f"decode, {seconds.rows:.0f} at a time an engine"
    table = _table("a step", "responses", "tokens", "PFLOP", "seconds")
    table.add_row("prompts", "", _count(sampled.read), peta["prompts"], _seconds(seconds.prompts))
    table.add_row(decode, _count(sampled.rows), _count(sampled.written), peta["decode"], _seconds(seconds.decode))
    table.add_row("train", _count(trained.rows), _count(trained.read + trained.written), peta["train"], _seconds(seconds.train))
    table.add_row(f"publish adapters, {seconds.publish_share:.1%} of a step", "", "", "", _seconds(seconds.publish))
    table.add_section()
    table.add_row("all of that", "", "", peta["all"], _seconds(seconds.shortest))
    table.add_row("the longest response decoding alone, at most", "", "", "", "+" + _seconds(seconds.tail))
    table.add_row("verdicts, beside the sampler", _count(sampled.rows), "", "", _seconds(seconds.verdicts))
    return table


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _seconds(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"
