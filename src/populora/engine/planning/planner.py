"""The whole plan: work, memory and seconds of a configuration on given hardware, its bottleneck, and settings that make it fit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from populora.core.config import Config
from populora.core.config_check import engines_without_work
from populora.core.errors import ConfigError
from populora.engine.planning.assumptions import Assumptions, check_assumptions
from populora.engine.planning.decoding_memory import in_whole_pages, page_tokens
from populora.engine.planning.hardware import CPU, GPUS, Hardware
from populora.engine.planning.memory import MemoryPlan, adapter_bytes, plan_memory
from populora.engine.planning.model_shape import ITEMSIZE, ModelShape
from populora.engine.planning.step_time import StepSeconds, StepWork, published_bytes, step_flops, step_seconds, step_work

Change = tuple[str, str, Any]
"""Section, setting and its new value."""
COPIES = (8, 4, 2)
"""Engines that may hold each adapter, where not all can."""
MANY_ADAPTERS = 0.05
"""Share of an engine's GPU from which on its adapters are spread."""


@dataclass(frozen=True)
class Plan:
    """Requirements of a run on GPUs of a kind. ``idle`` GPUs are available but not used; ``flops`` are those of a step by phase."""

    config: Config
    shape: ModelShape
    hardware: Hardware
    idle: int
    assumed: Assumptions
    work: StepWork
    flops: dict[str, float]
    memory: MemoryPlan
    seconds: StepSeconds

    @property
    def fits(self) -> bool:
        return self.memory.total <= self.hardware.bytes

    @property
    def checkpoint_bytes(self) -> float:
        """Bytes of a checkpoint: all adapters with their two moments, in fp32."""
        return 3.0 * self.config.population.members * adapter_bytes(self.config, self.shape, 4)

    @property
    def checkpoints(self) -> int:
        """How many checkpoints a finished run has: the newest, and those that stay."""
        steps, every, longer = self.config.steps, max(self.config.checkpoint_every, 1), self.config.keep_checkpoints_every
        newest = [steps, *range((steps - 1) // every * every, 0, -every)][: self.config.keep_checkpoints]
        return len({*newest, *(range(longer, steps + 1, longer) if longer else ())})


def make_plan(config: Config, shape: ModelShape, hardware: Hardware, assumed: Assumptions, idle: int = 0) -> Plan:
    """Plan a run, also one that does not fit (`Plan.fits`). Raises `ConfigError` for settings that cannot be planned."""
    check_assumptions(assumed)
    check_context(config, shape.context)
    if hardware.name != CPU and config.base.dtype != "bfloat16":
        raise ConfigError(
            f'base.dtype is "{config.base.dtype}": GPUs are planned in bfloat16, which their peaks are for; set base.dtype = "bfloat16"'
        )
    limits = config.selfplay
    assumed = replace(
        assumed,
        prompt_tokens=min(assumed.prompt_tokens, limits.max_prompt_tokens),
        response_tokens=min(assumed.response_tokens, limits.max_response_tokens),
        longest_response=min(assumed.longest_response or limits.max_response_tokens, limits.max_response_tokens),
    )
    work, memory = step_work(config, assumed), plan_memory(config, shape, assumed)
    flops = step_flops(config, shape, work)
    seconds = step_seconds(config, shape, hardware, assumed, work, flops, memory)
    return Plan(config, shape, hardware, idle, assumed, work, flops, memory, seconds)


def check_context(config: Config, context: int) -> None:
    """Raise `ConfigError` unless the longest prompt plus the longest response fit into the base model's context."""
    settings = config.selfplay
    if settings.max_prompt_tokens + settings.max_response_tokens > context:
        raise ConfigError(
            f"selfplay.max_prompt_tokens {settings.max_prompt_tokens} + selfplay.max_response_tokens {settings.max_response_tokens} exceed "
            f"the base's context of {context} tokens (or its window of attention, if that is shorter): lower them, or start from a preset "
            "for this base, such as tiny"
        )


def bottleneck(plan: Plan) -> str:
    """Name the largest part of memory if the plan does not fit, else the longest phase of a step."""
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


def suggest_fix(plan: Plan) -> str:
    """Suggest one setting that makes the plan fit, else several together, else other GPUs."""

    def fits(config: Config, hardware: Hardware = plan.hardware) -> bool:
        try:
            return plan_memory(config, plan.shape, plan.assumed).total <= hardware.bytes
        except ConfigError:
            return False

    changes = list(_changes(plan))
    attempts = [[change] for change in changes] + [changes[: count + 1] for count in range(1, len(changes))]
    for attempt in attempts:
        if fits(_apply(plan.config, attempt)):
            return f"set {' and '.join(_typed(attempt))}"
    smallest = _apply(plan.config, changes)
    if gpus := [gpu.name for gpu in GPUS if fits(plan.config, gpu)] or [gpu.name for gpu in GPUS if fits(smallest, gpu)]:
        return f"take another GPU: it fits {' or '.join(gpus)}"
    return "take a smaller base, or share it among GPUs (engine.tensor_parallel for engines, cluster.shards for learners)"


def check_fits(plan: Plan) -> None:
    """Raise `ConfigError` for a plan that does not fit."""
    if not plan.fits:
        raise ConfigError(
            f"the plan needs {plan.memory.total / 1e9:.1f} GB on each GPU, a {plan.hardware.name} has {plan.hardware.gigabytes:.1f}: "
            f"{suggest_fix(plan)}. `populora plan` shows the parts."
        )


def _changes(plan: Plan) -> Iterator[Change]:
    """Changes that save memory, in order of the time that they may cost."""
    play, learner, engine, cluster = plan.config.selfplay, plan.config.learner, plan.config.engine, plan.config.cluster
    if engine.backend == "vllm" and not engine.release_cache:
        yield "engine", "release_cache", True
    if published_bytes(plan.config, plan.shape) > MANY_ADAPTERS * plan.hardware.bytes:
        for copies in COPIES:
            fewer = ("cluster", "adapter_copies", copies)
            if copies < (cluster.adapter_copies or cluster.engines) and not engines_without_work(_apply(plan.config, [fewer])):
                yield fewer
    modes = ("none", "mlp", "layer")
    for mode in modes[modes.index(learner.activation_checkpointing) + 1 :]:
        yield "learner", "activation_checkpointing", mode
    row = play.max_prompt_tokens + play.max_response_tokens
    if row < learner.micro_batch_tokens:
        yield "learner", "micro_batch_tokens", row
    responses = in_whole_pages(play.max_response_tokens, page_tokens(plan.config.base.device))
    cached = row if engine.backend == "vllm" else responses  # vLLM caches prompts as well
    token = plan.shape.kv_bytes(ITEMSIZE[plan.config.base.dtype])
    for rows in (128, 96, 64, 48, 32, 24, 16, 8, 4, 2, 1):
        if (size := -(-cached * rows * token // engine.tensor_parallel >> 20)) < engine.cache_mb:
            yield "engine", "cache_mb", size


def _apply(config: Config, changes: Sequence[Change]) -> Config:
    for section, name, value in changes:
        config = replace(config, **{section: replace(getattr(config, section), **{name: value})})
    return config


def _typed(changes: Sequence[Change]) -> list[str]:
    """Format the last value of each setting as one would type it."""
    last = {f"{section}.{name}": f'"{value}"' if isinstance(value, str) else str(value).lower() for section, name, value in changes}
    return [f"{name} = {value}" for name, value in last.items()]
