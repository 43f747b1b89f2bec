"""Bytes on one GPU, by part, at the moment when most is there.

What a backward keeps of a token was counted on the learner's own graph (`test_memory.py` counts again): the norms' inputs in
fp32, the input of q, k and v, queries, keys, values and their mix, three widths of the MLP and the adapters' inner activations.
"""

from __future__ import annotations

from dataclasses import dataclass

from populora.core.config import Config
from populora.core.errors import ConfigError
from populora.engine.planning.assumptions import Assumptions
from populora.engine.planning.placement import Placement
from populora.engine.planning.shapes import ITEMSIZE, Shapes

CHUNK = 1 << 27
"""Logits that the learner's head makes at a time on a GPU (`populora.engine.model.head`)."""


@dataclass(frozen=True)
class Part:
    """``owner`` is the engine, the learner, or both, who then hold it once."""

    owner: str
    name: str
    bytes: float


@dataclass(frozen=True)
class Memory:
    """All parts of one GPU. ``cache`` is what an engine has for keys and values, on all of its GPUs together. Where it is ``released``,
    the engine gives it back while adapters learn, so that cache and activations share their room."""

    parts: tuple[Part, ...]
    cache: float
    released: bool = False

    @property
    def total(self) -> float:
        cache = sum(part.bytes for part in self.parts if part.name == CACHE)
        learning = sum(part.bytes for part in self.parts if part.name in WHILE_LEARNING)
        return sum(part.bytes for part in self.parts) - (min(cache, learning) if self.released else 0.0)


CACHE, ACTIVATIONS, HEAD = "keys and values", "activations", "logits and their gradients"
OVERHEAD = "driver, workspaces, fragments"
WHILE_LEARNING = (ACTIVATIONS, HEAD)


def step_memory(config: Config, shapes: Shapes, placement: Placement, assumed: Assumptions) -> Memory:
    """Of a GPU with a share of an engine and a learner, or a part of one. Raises `ConfigError` for an engine whose cache cannot hold one
    response of full length."""
    overhead = assumed.overhead_gb * 1e9
    learner = (*_learner(config, shapes, placement), Part("learner", OVERHEAD, overhead))
    if config.engine.backend == "inprocess" and not config.cluster.learners:
        cache = _own_cache(config, shapes)
        return Memory((Part("engine and learner", "base", _base(config, shapes)), Part("engine", CACHE, cache), *learner), cache)
    engine = _engine(config, shapes, placement)
    cache = sum(part.bytes for part in engine if part.name == CACHE) * placement.engine_gpus
    base = Part("learner", "base", _base(config, shapes, placement.learner_gpus))
    return Memory((*engine, Part("engine", OVERHEAD, overhead), base, *learner), cache, config.engine.release_cache)


def adapter_bytes(config: Config, shapes: Shapes, itemsize: int) -> int:
    """One adapter of the largest rank."""
    return itemsize * shapes.adapter(config.lora.rank, config.lora.targets)


def kept_bytes(shapes: Shapes, ranks: int, itemsize: int, checkpointing: str) -> float:
    """What the backward keeps of one token in one layer; ``ranks`` is the sum over the layer's adapted modules."""
    if checkpointing == "layer":
        return itemsize * shapes.hidden
    queries, keys = shapes.heads * shapes.head_size, shapes.kv_heads * shapes.head_size
    attention = itemsize * (shapes.hidden + 2 * queries + 2 * keys + ranks) + 4 * shapes.heads
    norms = 2 * 4 * (shapes.hidden + 1)
    return attention + norms + itemsize * (shapes.hidden if checkpointing == "mlp" else 3 * shapes.inner)


def head_bytes(shapes: Shapes, tokens: int, itemsize: int) -> float:
    """Logits and exponentials of a chunk in fp32 and once more in the base's precision, and the gradient of ``tokens`` hidden states."""
    chunk = min(tokens * shapes.vocabulary, CHUNK)
    return chunk * (2 * 4 + (itemsize if itemsize < 4 else 0)) + tokens * shapes.hidden * itemsize


def _base(config: Config, shapes: Shapes, shards: int = 1) -> float:
    """Shards have their part of the layers and two layers whole, the one that computes and the next. The rest is whole in each: embeddings,
    head, and here also the layers' norms and biases, which are few."""
    there = 1.0 if shards == 1 else 1 / shards + 2 / shapes.layers
    return ITEMSIZE[config.base.dtype] * (shapes.parameters - shapes.linear + there * shapes.linear)


def _engine(config: Config, shapes: Shapes, placement: Placement) -> tuple[Part, ...]:
    """One with a base of its own: vLLM, or an in-process one of a cluster, whose adapters are in a bank like a learner's."""
    members, base = config.population.members, _base(config, shapes)
    if config.engine.backend == "inprocess":
        return Part("engine", "base", base), *_bank("engine", config, shapes, members), Part("engine", CACHE, _own_cache(config, shapes))
    _check_cache(config, shapes, placement)
    slots = (members + 1) * adapter_bytes(config, shapes, ITEMSIZE[config.base.dtype])  # one is the bare base
    return (
        Part("engine", "base", base / placement.engine_gpus),
        Part("engine", "adapters", slots / placement.engine_gpus),
        Part("engine", CACHE, float(config.engine.cache_mb << 20)),
    )


def _bank(owner: str, config: Config, shapes: Shapes, slots: int) -> tuple[Part, ...]:
    """`populora.engine.model.bank.LoraBank` of so many slots."""
    itemsize, single = ITEMSIZE[config.base.dtype], adapter_bytes(config, shapes, 4)
    copies = [Part(owner, "adapters as the base computes", slots * adapter_bytes(config, shapes, itemsize))] if itemsize < 4 else []
    return (
        *copies,
        Part(owner, "adapters and their moments, fp32", 3 * slots * single),
        Part(owner, "gradients of the adapters, fp32", slots * single),
    )


def _learner(config: Config, shapes: Shapes, placement: Placement) -> tuple[Part, ...]:
    """Adapters, optimiser, activations and head. A learner of a cluster owns whole adapters and has room for one guest."""
    itemsize, tokens = ITEMSIZE[config.base.dtype], config.learner.micro_batch_tokens
    slots = -(-config.population.members // placement.learners) + (1 if config.cluster.learners else 0)
    ranks = config.lora.rank * len(shapes.adapted(config.lora.targets)) // shapes.layers
    kept = shapes.layers * kept_bytes(shapes, ranks, itemsize, config.learner.activation_checkpointing)
    at_work = kept_bytes(shapes, ranks, itemsize, "none") + 2 * itemsize * shapes.inner  # one layer and the gradients inside its MLP
    return (
        *_bank("learner", config, shapes, slots),
        Part("learner", ACTIVATIONS, tokens * (kept + at_work)),
        Part("learner", HEAD, head_bytes(shapes, tokens, itemsize)),
    )


def _own_cache(config: Config, shapes: Shapes) -> float:
    """The in-process sampler's: as many of the longest responses as ``engine.rows`` and ``engine.cache_mb`` allow, and their prompts."""
    play, token = config.selfplay, shapes.kv_bytes(ITEMSIZE[config.base.dtype])
    rows = rows_at_a_time(config, shapes)
    prompts = -(-rows // min(play.samples_per_prompt, play.rho_samples))
    return token * (rows * play.max_response_tokens + prompts * play.max_prompt_tokens)


def rows_at_a_time(config: Config, shapes: Shapes) -> int:
    """As `InProcessSampler.rows_at_a_time` bounds them. Raises `ConfigError` if the cache cannot hold one response."""
    size = shapes.kv_bytes(ITEMSIZE[config.base.dtype]) * config.selfplay.max_response_tokens
    if size > config.engine.cache_mb << 20:
        raise ConfigError(
            f"engine.cache_mb is {config.engine.cache_mb}: one response of {config.selfplay.max_response_tokens} tokens needs "
            f"{-(-size >> 20)}. Raise it or lower selfplay.max_response_tokens."
        )
    return min(config.engine.rows, (config.engine.cache_mb << 20) // size)


def _check_cache(config: Config, shapes: Shapes, placement: Placement) -> None:
    """vLLM's cache holds prompts as well, and a row is spread over the GPUs of its engine."""
    play = config.selfplay
    longest = (play.max_prompt_tokens + play.max_response_tokens) * shapes.kv_bytes(ITEMSIZE[config.base.dtype])
    if (needed := -(-longest // placement.engine_gpus >> 20)) > config.engine.cache_mb:
        raise ConfigError(
            f"engine.cache_mb is {config.engine.cache_mb}: a prompt and a response of full length, {play.max_prompt_tokens} + "
            f"{play.max_response_tokens} tokens, need {needed}. Raise it or lower selfplay's limits."
        )
