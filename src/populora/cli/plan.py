"""``populora plan [PRESET|FILE.toml] [--gpu NAME] [--gpus N]``: memory, work and time of a run before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import tyro
from rich.console import Console

from populora.cli.arguments import parse_settings
from populora.cli.plan_text import render_plan
from populora.core.config import Config
from populora.core.config_check import check
from populora.core.errors import ConfigError
from populora.core.presets import DEFAULT
from populora.engine.model.shapes import base_shapes
from populora.engine.planning.assumptions import Assumptions
from populora.engine.planning.hardware import CPU, Hardware, gpu
from populora.engine.planning.placement import place, spread, spread_settings
from populora.engine.planning.plan import Plan, make_plan

GPU = "h100-80gb"
"""Where no GPU is named: the paper's."""


@dataclass(frozen=True)
class PlanRun:
    """Say what a run would need: memory of a GPU by part, tokens and FLOPs of a step, seconds of a step and hours of the run.

    Nothing is loaded and no GPU is needed: shapes come from the base's config.json, or are known (Qwen2.5-Coder). What has to be
    assumed is printed, and each assumption is a flag. Exits with 1 if the run does not fit, and says what to change.
    """

    config: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[PRESET|FILE.toml]")] = DEFAULT
    """A preset that ships (`populora train --list`), or a settings file of yours."""
    gpu: Annotated[str, tyro.conf.arg(metavar="NAME")] = ""
    """Such as `h100-80gb` or `rtx4090-24gb`; `cpu` measures this machine. By default what `base.device` says, an H100 for `cuda`."""
    gpus: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """GPUs of a node; by default as many as the configuration uses. For more, one without cluster settings is planned with some."""
    nodes: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """Machines of so many GPUs."""
    assume: Assumptions = field(default_factory=Assumptions)
    settings: Annotated[Config, tyro.conf.arg(name="")] = field(default_factory=Config)


def main(arguments: Sequence[str]) -> int:
    """Print the plan; returns 0, or 1 if it does not fit. Raises `PopuloraError`."""
    chosen = parse_settings(PlanRun, arguments, "plan")
    check(chosen.settings)
    config = spread(chosen.settings, chosen.gpus, chosen.nodes)
    plan = planned(config, chosen.gpu, chosen.gpus, chosen.nodes, chosen.assume)
    console = Console(highlight=False)
    if config is not chosen.settings:
        console.print(f"The configuration has no cluster settings, a run of it is one process. Planned with {spread_settings(config)}:")
    for part in render_plan(plan):
        console.print(part)
    return 0 if plan.fits else 1


def planned(config: Config, name: str = "", gpus: int = 0, nodes: int = 1, assumed: Assumptions | None = None) -> Plan:
    """The plan of a run; empty ``name`` and 0 ``gpus`` take what its settings speak for. Raises `ConfigError` where there is none."""
    name = name or (CPU if config.base.device == "cpu" else GPU)
    if name == CPU and (gpus > 1 or nodes > 1):
        raise ConfigError(f"a plan for the processor is for this machine alone, but --gpus {gpus} --nodes {nodes} were asked: name a --gpu")
    if name != CPU and config.base.device == "cpu":
        config = replace(config, base=replace(config.base, device="cuda"))
        check(config)
    placement = place(config, gpus, nodes)
    shapes = base_shapes(config.base)
    return make_plan(config, shapes, _hardware(name, config), placement, assumed or Assumptions())


def _hardware(name: str, config: Config) -> Hardware:
    if name != CPU:
        return gpu(name)
    from populora.engine.sampling.calibration import calibrate

    return calibrate(config.threads or (1 if config.cluster.learners else 0))  # a process of a cluster takes one unless it is told
