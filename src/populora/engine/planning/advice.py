"""What limits a plan, and which settings make it fit: found by planning again with them, not by rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from populora.core.config import Config
from populora.core.errors import ConfigError
from populora.engine.planning.hardware import GPUS, Hardware
from populora.engine.planning.memory import step_memory
from populora.engine.planning.plan import Plan
from populora.engine.planning.shapes import ITEMSIZE

Change = tuple[str, Callable[[Config], Config]]
"""A setting as one would type it, and what it does to the settings."""


def limit(plan: Plan) -> str:
    """What binds: the memory if the plan does not fit, else what takes most of a step."""
    if not plan.fits:
        largest = max(plan.memory.parts, key=lambda part: part.bytes)
        return f"memory: {plan.memory.total / 1e9:.1f} of {plan.hardware.gigabytes:.1f} GB, most of it {largest.name} ({largest.owner})"
    seconds = plan.seconds
    phases = {
        "training, by the FLOPs of the learners": seconds.train,
        "decoding, by what the engines read or compute": seconds.decode,
        "prompts, by the FLOPs of the engines": seconds.prompts,
        "publishing, by what an engine takes over in a second": seconds.publish,
        "the longest response, which decodes alone": seconds.tail,
        "the sandbox: raise sandbox.workers or cluster.verifiers": seconds.verdicts - seconds.prompts - seconds.decode,
    }
    return max(phases, key=lambda name: phases[name])


def cure(plan: Plan) -> str:
    """Which settings make a plan fit: one alone if one is enough, else several together, else which GPUs would do."""

    def fits(config: Config, hardware: Hardware = plan.hardware) -> bool:
        try:
            return step_memory(config, plan.shapes, plan.placement, plan.assumed).total <= hardware.bytes
        except ConfigError:
            return False

    changes = list(_changes(plan))
    for name, change in changes:
        if fits(change(plan.config)):
            return f"set {name}"
    config, names = plan.config, list[str]()
    for name, change in changes:
        config = change(config)
        names.append(name)
        if fits(config):
            return f"set {' and '.join(_last_of_each(names))}"
    larger = [gpu.name for gpu in GPUS if fits(plan.config, gpu)] or [gpu.name for gpu in GPUS if fits(config, gpu)]
    if larger:
        return f"take another GPU: it fits {' or '.join(larger)}"
    return "take a smaller base, or share it among GPUs (engine.tensor_parallel for engines, cluster.shards for learners)"


def _changes(plan: Plan) -> Iterator[Change]:
    """From what costs least time to what may cost most."""
    play = plan.config.selfplay
    if plan.config.engine.backend == "vllm":
        yield _set("engine", "release_cache", True)
    modes = ("none", "mlp", "layer")
    for mode in modes[modes.index(plan.config.learner.activation_checkpointing) + 1 :]:
        yield _set("learner", "activation_checkpointing", mode)
    row = play.max_prompt_tokens + play.max_response_tokens
    if row < plan.config.learner.micro_batch_tokens:
        yield _set("learner", "micro_batch_tokens", row)
    for rows in (128, 96, 64, 48, 32, 24, 16, 8, 4, 2, 1):
        if (size := _cache_mb(plan, rows)) < plan.config.engine.cache_mb:
            yield _set("engine", "cache_mb", size)


def _cache_mb(plan: Plan, rows: int) -> int:
    """MiB for so many responses of full length, for vLLM with their prompts."""
    play, both = plan.config.selfplay, plan.config.engine.backend == "vllm"
    tokens = play.max_response_tokens + (play.max_prompt_tokens if both else 0)
    return -(-tokens * rows * plan.shapes.kv_bytes(ITEMSIZE[plan.config.base.dtype]) // plan.placement.engine_gpus >> 20)


def _set(section: str, name: str, value: Any) -> Change:
    written = f'"{value}"' if isinstance(value, str) else str(value).lower()
    return f"{section}.{name} = {written}", lambda config: replace(config, **{section: replace(getattr(config, section), **{name: value})})


def _last_of_each(names: list[str]) -> list[str]:
    """The last value that each setting was given."""
    return list({name.split(" = ")[0]: name for name in names}.values())


def check_fits(plan: Plan) -> None:
    """Raise `ConfigError` for a plan that does not fit."""
    if not plan.fits:
        raise ConfigError(
            f"the plan needs {plan.memory.total / 1e9:.1f} GB on each GPU, a {plan.hardware.name} has {plan.hardware.gigabytes:.1f}: "
            f"{cure(plan)}. `populora plan` shows the parts."
        )
