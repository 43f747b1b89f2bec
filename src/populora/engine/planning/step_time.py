"""Tokens, FLOPs and seconds of one step (`populora.training.step`), from the settings and the assumed share of hardware peaks.

Only FLOPs that the result needs are counted. The base model is frozen, so each of its weights costs a token 2 forward and 2 backward (the
gradient of its input). An adapter weight costs 2 and 4. Attention costs 4 and 8 per head dimension for each pair of tokens that see each
other.

Prompts and training are bound by FLOPs. Decoding is bound by the bytes that each decoding step reads (all weights once, keys and values of
every row) or, with many rows, by FLOPs. A small model is bound by its host, which is not modelled: docs/plan.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from populora.core.config import Config
from populora.engine.planning.assumptions import Assumptions
from populora.engine.planning.decoding_memory import inprocess_rows
from populora.engine.planning.hardware import Hardware
from populora.engine.planning.memory import MemoryPlan, adapter_bytes, engine_slots
from populora.engine.planning.model_shape import ITEMSIZE, ModelShape


@dataclass(frozen=True)
class Texts:
    """``rows`` responses to ``prompts`` prompts, each prompt computed once for all its responses. Lengths are means, in tokens.

    ``read`` and ``written`` are the tokens of all prompts and responses. ``prompt_pairs`` and ``response_pairs`` are the pairs of tokens
    that attend to each other, by the place of the later one.
    """

    prompts: float
    rows: float
    prompt_tokens: float
    response_tokens: float

    @property
    def read(self) -> float:
        return self.prompts * self.prompt_tokens

    @property
    def written(self) -> float:
        return self.rows * self.response_tokens

    @property
    def prompt_pairs(self) -> float:
        return self.prompts * self.prompt_tokens**2 / 2

    @property
    def response_pairs(self) -> float:
        return self.written * (self.prompt_tokens + self.response_tokens / 2)


@dataclass(frozen=True)
class StepWork:
    """Texts that a step samples from proposers and from solvers, and texts that it trains on."""

    proposals: Texts
    attempts: Texts
    trained: Texts

    @property
    def sampled(self) -> Texts:
        """Proposals and attempts together; both have the same mean lengths."""
        first, second = self.proposals, self.attempts
        return Texts(first.prompts + second.prompts, first.rows + second.rows, first.prompt_tokens, first.response_tokens)


def step_work(config: Config, assumed: Assumptions) -> StepWork:
    """Count the texts of a step. A proposer answers ``prompts_per_type`` prompts of each type. A solver attempts all valid problems of its
    teachers and fills up to ``student_batch`` of each from the buffer, which gives at least ``buffer_share`` of them; it trains on that
    many (readings 3 to 5). With ``selfplay.previous_step_attempts`` it trains on as many problems of the step before, and on no attempt
    at the others."""
    play, lengths = config.selfplay, (assumed.prompt_tokens, assumed.response_tokens)
    population = config.population
    proposers, solvers = (1, 1) if population.single_agent else (population.teachers, population.students)
    prompts = len(config.task_types) * play.prompts_per_type
    proposed = proposers * prompts * play.samples_per_prompt
    studied = solvers * len(config.task_types) * play.student_batch
    valid, apart = assumed.valid * proposed, studied * play.previous_step_attempts
    drawn = solvers * len(config.task_types) * play.buffer_problems
    problems = valid + studied if apart else drawn + max(valid, studied - drawn)
    attempts = valid * play.rho_samples + apart if apart else problems * play.rho_samples
    trained_rows = proposed + (apart or studied * play.rho_samples)
    return StepWork(
        Texts(proposers * prompts, proposed, *lengths),
        Texts(problems, attempts, *lengths),
        Texts(proposers * prompts + studied, trained_rows, *lengths),
    )


def step_flops(config: Config, shape: ModelShape, work: StepWork) -> dict[str, float]:
    """Count the FLOPs of a step by phase: prompts, decode, train."""
    adapter = shape.adapter(config.lora.rank, config.lora.targets)
    return {
        "prompts": prompt_flops(shape, adapter, work.sampled),
        "decode": decode_flops(shape, adapter, work.sampled),
        "train": train_flops(shape, adapter, work.trained, config.learner.activation_checkpointing)
        + base_flops(config, shape, work.trained),
    }


def prompt_flops(shape: ModelShape, adapter: int, texts: Texts) -> float:
    """FLOPs of the prompts, before the first token of a response. ``adapter`` is the number of parameters of one adapter."""
    return 2 * texts.read * (shape.linear + adapter) + 4 * shape.attention * texts.prompt_pairs


def decode_flops(shape: ModelShape, adapter: int, texts: Texts) -> float:
    """FLOPs of decoding the responses, head included."""
    return 2 * texts.written * (shape.linear + shape.head + adapter) + 4 * shape.attention * texts.response_pairs


def train_flops(shape: ModelShape, adapter: int, texts: Texts, checkpointing: str) -> float:
    """FLOPs of forward, backward and the recomputation of ``learner.activation_checkpointing``."""
    pairs = texts.prompt_pairs + texts.response_pairs
    tokens = texts.read + texts.written
    flops = tokens * (4 * shape.linear + 6 * adapter) + 4 * texts.written * shape.head + 12 * shape.attention * pairs
    recomputed = {
        "none": 0.0,
        "mlp": 2 * tokens * 3 * shape.layers * shape.hidden * shape.inner,
        "layer": 2 * tokens * (shape.linear + adapter) + 4 * shape.attention * pairs,
    }
    return flops + recomputed[checkpointing]


def base_flops(config: Config, shape: ModelShape, texts: Texts) -> float:
    """FLOPs of the forward of the bare base that ``learner.base_kl`` takes."""
    if not config.learner.base_kl:
        return 0.0
    pairs, tokens = texts.prompt_pairs + texts.response_pairs, texts.read + texts.written
    return 2 * tokens * shape.linear + 2 * texts.written * shape.head + 4 * shape.attention * pairs


@dataclass(frozen=True)
class StepSeconds:
    """Seconds of a step by phase. ``rows`` is the number of responses that an engine decodes at a time.

    ``tail`` is an upper bound for the longest response decoding alone: once if students start while teachers still write (a response that
    is cut at the limit is no problem, so no student waits for it), else twice. ``verdicts`` overlap with sampling. ``publish`` is the time
    in which engines load the trained adapters; nothing overlaps with it.
    """

    prompts: float
    decode: float
    train: float
    publish: float
    tail: float
    verdicts: float
    rows: float

    @property
    def shortest(self) -> float:
        """Lower bound of a step, without the tail."""
        return self.prompts + self.decode + self.train + self.publish

    @property
    def longest(self) -> float:
        """Upper bound of a step, with all of the tail and with verdicts that end after sampling."""
        sampled = self.prompts + self.decode + self.tail
        return max(sampled, self.verdicts) + self.train + self.publish

    @property
    def publish_share(self) -> float:
        """Upper bound of the share of publishing."""
        return self.publish / self.shortest


def step_seconds(
    config: Config,
    shape: ModelShape,
    hardware: Hardware,
    assumed: Assumptions,
    work: StepWork,
    flops: Mapping[str, float],
    memory: MemoryPlan,
) -> StepSeconds:
    """Estimate the seconds of a step from its `step_flops`. An engine or a learner on n GPUs is n times as fast."""
    peak, engine_gpus, learners = hardware.teraflops * 1e12, config.engine.tensor_parallel, max(config.cluster.learners, 1)
    serial = config.selfplay.overlap == "off"
    phases = (work.proposals, work.attempts) if serial else (work.sampled,)
    rows = [resident_rows(config, shape, memory, texts) for texts in phases]
    read_rate = engine_gpus * hardware.gigabytes_per_second * 1e9 * assumed.bandwidth
    judged_per_second = config.cluster.verifiers * config.sandbox.workers * assumed.verdicts_per_second
    return StepSeconds(
        prompts=flops["prompts"] / (config.cluster.engines * (engine_gpus * peak * assumed.sample_mfu)),
        decode=sum(decode_seconds(config, shape, hardware, assumed, texts, count) for texts, count in zip(phases, rows, strict=True)),
        train=flops["train"] / (learners * config.cluster.shards * peak * assumed.train_mfu),
        publish=published_bytes(config, shape) / (assumed.publish_gb_per_second * 1e9),
        tail=(2 if serial else 1) * assumed.longest_response * weight_bytes(config, shape, 1) / read_rate,
        verdicts=work.sampled.rows / judged_per_second,
        rows=max(rows),
    )


def weight_bytes(config: Config, shape: ModelShape, rows: float) -> float:
    """Bytes that a decoding step of ``rows`` reads: linear modules, head and adapters. vLLM reads those of the rows, at most one a row; in
    process all are read, on a GPU."""
    itemsize, held = ITEMSIZE[config.base.dtype], engine_slots(config)
    adapters = held if config.engine.backend == "inprocess" else min(held, rows)
    return itemsize * (shape.linear + shape.head) + adapters * adapter_bytes(config, shape, itemsize)


def published_bytes(config: Config, shape: ModelShape) -> int:
    """Bytes that an engine loads, at most, after a step in which all members trained; 0 if it reads the trained tensors themselves."""
    if config.engine.backend == "inprocess" and not config.cluster.learners:
        return 0
    return engine_slots(config) * adapter_bytes(config, shape, ITEMSIZE[config.base.dtype])


def resident_rows(config: Config, shape: ModelShape, memory: MemoryPlan, texts: Texts) -> float:
    """Responses that an engine decodes at a time, limited by the step's rows, by `engine.rows`, and by the cache at mean lengths."""
    rows = min(texts.rows / config.cluster.engines, config.engine.rows)
    if config.engine.backend == "inprocess":
        return min(rows, inprocess_rows(config, shape))
    row_tokens = texts.prompt_tokens * texts.prompts / texts.rows + texts.response_tokens / 2
    return min(rows, memory.cache / (row_tokens * shape.kv_bytes(ITEMSIZE[config.base.dtype])))


def decode_seconds(config: Config, shape: ModelShape, hardware: Hardware, assumed: Assumptions, texts: Texts, rows: float) -> float:
    """Seconds of decoding with ``rows`` at every decoding step, because finished rows are replaced at once."""
    engines, engine_gpus = config.cluster.engines, config.engine.tensor_parallel
    written = texts.written / engines
    length = texts.prompt_tokens + texts.response_tokens / 2
    kv = written * length * shape.kv_bytes(ITEMSIZE[config.base.dtype])
    read = (written / rows * weight_bytes(config, shape, rows) + kv) / (
        engine_gpus * hardware.gigabytes_per_second * 1e9 * assumed.bandwidth
    )
    flops = decode_flops(shape, shape.adapter(config.lora.rank, config.lora.targets), texts) / engines
    return max(read, flops / (engine_gpus * hardware.teraflops * 1e12 * assumed.sample_mfu))
