"""``populora train --dry-run``: check everything that needs neither weights nor a GPU."""

from pathlib import Path

from populora.cli.plan import plan_run, render_plan
from populora.core.config import Config
from populora.core.invocation import pasteable
from populora.core.output import OutputConsole
from populora.domains.registry import load_domains
from populora.engine.planning.hardware import CPU, parse_gpus
from populora.engine.planning.planner import check_fits
from populora.runs.loggers import check_loggers
from populora.tasks.render import prompts_of
from populora.training.evaluation import held_out_suite
from populora.training.evolution import check_operators

CHECKS = (
    "checked: settings, operators, prompt set, held-out problems, shapes of the base, targets, token limits, memory, loggers",
    "not checked: weights, tokenizer and whether prompts fit, because the base is not loaded",
    "not checked: the sandbox and the GPUs of the machine that will run this: `populora doctor` shows them there",
)


def dry_run(config: Config, folder: Path, gpu: str = "", gpus: str = "") -> int:
    """Print the plan of a run, and what was checked and what cannot be; returns 0. Raises `PopuloraError` for an invalid run."""
    load_domains(config.domains)
    check_operators(config)
    check_loggers(config.track)
    held_out_suite(config)
    prompts = ", ".join(f"{prompt_set.name} {prompt_set.version}" for prompt_set in prompts_of(config).values())
    number, name = parse_gpus(gpus, gpu)
    plan = plan_run(config, name, number)
    if plan.hardware.name != CPU:  # the memory of a CPU is only printed: the system shares it and may swap
        check_fits(plan)
    console = OutputConsole()
    console.print(f"would run: {config.steps} steps into {folder}, prompts {prompts}", soft_wrap=True, markup=False)
    for part in render_plan(plan):
        console.print(part)
    for line in CHECKS:
        console.print(pasteable(line), soft_wrap=True)
    return 0
