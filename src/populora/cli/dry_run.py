"""``populora train --dry-run``: check everything that needs neither weights nor a GPU."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from populora.cli.plan import describe_idle, describe_layout, describe_population, plan_run
from populora.core.config import Config
from populora.core.invocation import pasteable
from populora.engine.planning.hardware import CPU
from populora.engine.planning.planner import check_fits
from populora.runs.loggers import check_loggers
from populora.tasks.render import load_prompts
from populora.training.evaluation import held_out_suite
from populora.training.evolution import check_operators

UNCHECKED = (
    "weights, tokenizer and whether prompts fit: the base is not loaded",
    "the sandbox: `populora doctor` probes it on the machine that will run this",
)
NO_GPUS = "the GPUs: this machine has none, so the comparison is with the data sheet's memory"


def dry_run(config: Config, folder: Path, gpu: str = "", gpus: int = 0) -> int:
    """Print what would run, the checks that were made and those that cannot be; returns 0. Raises `PopuloraError` for an invalid run."""
    check_operators(config)
    check_loggers(config.track)
    held_out_suite(config)
    prompts = load_prompts(config.base.prompts, config.tasks)
    plan = plan_run(config, gpu, gpus)
    if plan.hardware.name != CPU:  # the memory of a CPU is only printed: the system shares it and may swap
        check_fits(plan)
    console = Console(highlight=False, soft_wrap=True)
    shape, lora = plan.shape, config.lora
    console.print(
        f"would run: {config.steps} steps of {describe_population(config)} into {folder}, prompts {prompts.name} {prompts.version}"
    )
    console.print(f"base: {shape.name}, {shape.parameters / 1e6:,.1f} M parameters, context {shape.context} tokens, {config.base.dtype}")
    size = f"{shape.adapter(lora.rank, lora.targets) / 1e6:.4g} M parameters each"
    console.print(f"adapters: rank {lora.rank} on {len(shape.adapted(lora.targets))} modules, {size}")
    default = "" if gpu or plan.hardware.name == CPU else " (not asked for: see --gpu and --gpus)"
    memory = f"{plan.memory.total / 1e9:.1f} of {plan.hardware.gigabytes:.1f} GB planned"
    console.print(f"hardware: {describe_layout(plan)}; {memory}{default}")
    if plan.idle:
        console.print(f"hardware: {describe_idle(plan)}")
    console.print(
        "checked: settings, operators, prompt set, held-out problems, shapes of the base, targets, token limits, memory, trackers"
    )
    for what in (*UNCHECKED, *([NO_GPUS] if _lacks_gpus(config) else [])):
        console.print(pasteable(f"not checked: {what}"))
    return 0


def _lacks_gpus(config: Config) -> bool:
    if config.base.device == "cpu" and config.engine.backend == "inprocess":
        return False
    import torch

    return torch.cuda.device_count() == 0
