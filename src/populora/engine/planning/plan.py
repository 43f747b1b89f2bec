"""A whole plan: work, memory and seconds of a configuration on given hardware."""

from __future__ import annotations

from dataclasses import dataclass

from populora.core.config import Config
from populora.core.errors import ConfigError
from populora.engine.planning.assumptions import Assumptions, check_assumptions, within
from populora.engine.planning.hardware import CPU, Hardware
from populora.engine.planning.memory import Memory, step_memory
from populora.engine.planning.placement import Placement
from populora.engine.planning.roofline import Seconds, step_seconds
from populora.engine.planning.shapes import Shapes
from populora.engine.planning.work import Work, decode_flops, prompt_flops, step_work, train_flops


@dataclass(frozen=True)
class Plan:
    """What a run on ``placement`` of ``hardware`` would take. ``flops`` are those of a step by phase."""

    config: Config
    shapes: Shapes
    hardware: Hardware
    placement: Placement
    assumed: Assumptions
    work: Work
    flops: dict[str, float]
    memory: Memory
    seconds: Seconds

    @property
    def fits(self) -> bool:
        return self.memory.total <= self.hardware.bytes


def make_plan(config: Config, shapes: Shapes, hardware: Hardware, placement: Placement, assumed: Assumptions) -> Plan:
    """Raises `ConfigError` for what cannot be planned; a plan that does not fit is a plan (`Plan.fits`)."""
    check_assumptions(assumed)
    assumed = within(assumed, config.selfplay)
    check_context(config, shapes.context)
    if hardware.name != CPU and config.base.dtype != "bfloat16":
        raise ConfigError(
            f'base.dtype is "{config.base.dtype}": GPUs are planned in bfloat16, which their peaks are for; set base.dtype = "bfloat16"'
        )
    work, adapter = step_work(config, assumed), shapes.adapter(config.lora.rank, config.lora.targets)
    memory = step_memory(config, shapes, placement, assumed)
    flops = {
        "prompts": prompt_flops(shapes, adapter, work.sampled),
        "decode": decode_flops(shapes, adapter, work.sampled),
        "train": train_flops(shapes, adapter, work.trained, config.learner.activation_checkpointing),
    }
    seconds = step_seconds(config, shapes, hardware, placement, assumed, work, memory)
    return Plan(config, shapes, hardware, placement, assumed, work, flops, memory, seconds)


def check_context(config: Config, context: int) -> None:
    """Raise `ConfigError` unless the longest prompt and the longest response fit into the base's context together."""
    settings = config.selfplay
    if settings.max_prompt_tokens + settings.max_response_tokens > context:
        raise ConfigError(
            f"selfplay.max_prompt_tokens {settings.max_prompt_tokens} + selfplay.max_response_tokens {settings.max_response_tokens} exceed "
            f"the base's context of {context} tokens: lower them, or start from a preset for this base, such as tiny"
        )
