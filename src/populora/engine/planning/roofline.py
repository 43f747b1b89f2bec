"""Seconds of one step by phase, from what the hardware can do at best and the shares of it that are assumed.

Prompts and training are bound by FLOPs. Decoding is bound by what each step has to read (all weights once, every row's keys and values)
or, with many rows, by FLOPs. A small model is bound by neither but by its host, which these figures do not know: docs/plan.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from populora.core.config import Config
from populora.engine.planning.assumptions import Assumptions
from populora.engine.planning.hardware import Hardware
from populora.engine.planning.memory import Memory, adapter_bytes, rows_at_a_time
from populora.engine.planning.placement import Placement
from populora.engine.planning.shapes import ITEMSIZE, Shapes
from populora.engine.planning.work import Texts, Work, decode_flops, prompt_flops, train_flops


@dataclass(frozen=True)
class Rates:
    """What the assumptions leave of the hardware's peaks, for all GPUs together, and for one engine."""

    train: float
    """FLOP/s of all learners."""
    sample: float
    """FLOP/s of all engines."""
    engine: float
    """FLOP/s of one engine."""
    read: float
    """Bytes a second of one engine."""


def rates(hardware: Hardware, placement: Placement, assumed: Assumptions) -> Rates:
    """An engine on several GPUs is taken as one that is so many times as fast."""
    peak = hardware.teraflops * 1e12
    engine = placement.engine_gpus * peak * assumed.sample_mfu
    read = placement.engine_gpus * hardware.gigabytes_per_second * 1e9 * assumed.bandwidth
    return Rates(placement.learners * placement.learner_gpus * peak * assumed.train_mfu, placement.engines * engine, engine, read)


@dataclass(frozen=True)
class Seconds:
    """A step, phase by phase. ``tail`` comes on top, at most: what the longest response takes when it decodes alone, once if students start
    while teachers still write (one that is cut at the limit is no problem, so nobody waits for it), else twice. ``verdicts`` run beside
    the sampler. ``publish`` is what engines need to take over the adapters after they learned, during which nothing else happens."""

    prompts: float
    decode: float
    train: float
    publish: float
    tail: float
    verdicts: float
    rows: float
    """Responses that an engine decodes at a time."""

    @property
    def lean(self) -> float:
        """Without the tail: what the tokens cost, and publishing."""
        return self.prompts + self.decode + self.train + self.publish

    @property
    def publish_share(self) -> float:
        """Of a step, at most: of one without the tail."""
        return self.publish / self.lean

    @property
    def longest(self) -> float:
        """With all of the tail, and with the verdicts that come later than the sampler ends."""
        sampled = self.prompts + self.decode + self.tail
        return max(sampled, self.verdicts) + self.train + self.publish


def step_seconds(
    config: Config, shapes: Shapes, hardware: Hardware, placement: Placement, assumed: Assumptions, work: Work, memory: Memory
) -> Seconds:
    """Seconds of a step."""
    speed = rates(hardware, placement, assumed)
    adapter = shapes.adapter(config.lora.rank, config.lora.targets)
    serial = config.selfplay.overlap == "off"
    phases = (work.proposals, work.attempts) if serial else (work.sampled,)
    rows = [resident_rows(config, shapes, placement, assumed, memory, texts) for texts in phases]
    decode = sum(decode_seconds(config, shapes, speed, placement, texts, at) for texts, at in zip(phases, rows, strict=True))
    tail = (2 if serial else 1) * assumed.longest_response * weight_bytes(config, shapes) / speed.read
    answered = work.sampled.rows / (config.cluster.verifiers * config.sandbox.workers * assumed.verdicts_per_second)
    return Seconds(
        prompt_flops(shapes, adapter, work.sampled) / speed.sample,
        decode,
        train_flops(shapes, adapter, work.trained, config.learner.activation_checkpointing) / speed.train,
        published_bytes(config, shapes) / (assumed.publish_gb_per_second * 1e9),
        tail,
        answered,
        max(rows),
    )


def weight_bytes(config: Config, shapes: Shapes) -> float:
    """What a decoding step reads however few rows there are: linear modules, head and adapters."""
    itemsize = ITEMSIZE[config.base.dtype]
    return itemsize * (shapes.linear + shapes.head) + config.population.members * adapter_bytes(config, shapes, itemsize)


def published_bytes(config: Config, shapes: Shapes) -> int:
    """What every engine is given after a step in which all members learned: none where it reads the very tensors that learn."""
    if config.engine.backend == "inprocess" and not config.cluster.learners:
        return 0
    return config.population.members * adapter_bytes(config, shapes, ITEMSIZE[config.base.dtype])


def resident_rows(config: Config, shapes: Shapes, placement: Placement, assumed: Assumptions, memory: Memory, texts: Texts) -> float:
    """Responses that an engine decodes at a time: as many as there are, as `engine.rows` allows, and as its cache holds of mean length."""
    there = min(texts.rows / placement.engines, config.engine.rows)
    if config.engine.backend == "inprocess":
        return min(there, rows_at_a_time(config, shapes))
    row = texts.prompt_tokens * texts.prompts / texts.rows + texts.response_tokens / 2
    return min(there, memory.cache / (row * shapes.kv_bytes(ITEMSIZE[config.base.dtype])))


def decode_seconds(config: Config, shapes: Shapes, speed: Rates, placement: Placement, texts: Texts, rows: float) -> float:
    """Finished rows are replaced at once, so that ``rows`` are there at every step."""
    written = texts.written / placement.engines
    length = texts.prompt_tokens + texts.response_tokens / 2
    kv = written * length * shapes.kv_bytes(ITEMSIZE[config.base.dtype])
    adapter = shapes.adapter(config.lora.rank, config.lora.targets)
    flops = decode_flops(shapes, adapter, texts) / placement.engines
    return max((written / rows * weight_bytes(config, shapes) + kv) / speed.read, flops / speed.engine)
