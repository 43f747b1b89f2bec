"""``populora train --dry-run``: every check of a run that needs neither weights nor a GPU."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from populora.cli.plan import planned
from populora.cli.plan_text import idle, places, population
from populora.core.config import Config
from populora.core.invocation import pasteable
from populora.engine.planning.advice import check_fits
from populora.engine.planning.hardware import CPU
from populora.runs.loggers import check_trackers
from populora.tasks.render import load_prompts
from populora.training.evolution import check_operators
from populora.training.held_out import held_out_suite

UNCHECKED = (
    "weights, tokenizer and whether prompts fit: the base is not loaded",
    "the sandbox: `populora doctor` probes it on the machine that will run this",
)


def dry_run(config: Config, folder: Path, gpu: str = "", gpus: int = 0) -> int:
    """Print what would run, what was checked and what cannot be; returns 0. Raises `PopuloraError` for what could not run."""
    check_operators(config)
    check_trackers(config.track)
    held_out_suite(config)
    prompts = load_prompts(config.base.prompts, config.tasks)
    plan = planned(config, gpu, gpus)
    if plan.hardware.name != CPU:  # a processor's memory is only told: the system shares it and may swap
        check_fits(plan)
    console = Console(highlight=False, soft_wrap=True)
    shapes, adapted = plan.shapes, plan.shapes.adapted(config.lora.targets)
    console.print(f"would run: {config.steps} steps of {population(config)} into {folder}, prompts {prompts.name} {prompts.version}")
    console.print(f"base: {shapes.name}, {shapes.parameters / 1e6:,.1f} M parameters, context {shapes.context} tokens, {config.base.dtype}")
    size = shapes.adapter(config.lora.rank, config.lora.targets) / 1e6
    console.print(f"adapters: rank {config.lora.rank} on {len(adapted)} modules, {size:.4g} M parameters each")
    asked = "" if gpu or plan.hardware.name == CPU else " (not asked for: see --gpu and --gpus)"
    memory = f"{plan.memory.total / 1e9:.1f} of {plan.hardware.gigabytes:.1f} GB planned"
    console.print(f"hardware: {places(plan)}; {memory}{asked}")
    if plan.placement.idle:
        console.print(f"hardware: {idle(plan)}")
    console.print(
        "checked: settings, operators, prompt set, held-out problems, shapes of the base, targets, token limits, memory, trackers"
    )
    for what in (*UNCHECKED, *_absent(config)):
        console.print(pasteable(f"not checked: {what}"))
    return 0


def _absent(config: Config) -> tuple[str, ...]:
    if config.base.device == "cpu" and config.engine.backend == "inprocess":
        return ()
    import torch

    found = torch.cuda.device_count()
    return () if found else ("the GPUs: this machine has none, so the comparison is with the data sheet's memory",)
