"""Peak bytes on one GPU, by part.

The bytes that backward keeps of a token (`kept_bytes`) were counted on the learner's own graph, and `test_memory.py` counts them again: the
norms' inputs in fp32, the input of q, k and v, queries, keys, values and their mix, three widths of the MLP and the adapters' inner
activations.
"""

from dataclasses import dataclass

from populora.core.config import Config
from populora.core.errors import ConfigError
from populora.engine.cluster.adapter_holders import held_slots, holders_of
from populora.engine.planning.assumptions import Assumptions
from populora.engine.planning.decoding_memory import PREFILL_TOKENS, cache_bytes, graph_bytes, inprocess_rows
from populora.engine.planning.model_shape import ITEMSIZE, ModelShape

CHUNK = 1 << 27
"""Logits that the learner's head computes at a time on a GPU (`populora.engine.model.head`)."""
CACHE, GRAPHS = "keys and values", "captured graphs"
ACTIVATIONS, HEAD = "activations", "logits and their gradients"
OVERHEAD, COLLECTIVES = "driver, workspaces, fragments", "buffers of collectives"
VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The ranks that vLLM can reserve memory for."""
SPREAD_INPUTS = ("o_proj", "down_proj")
"""Modules whose inputs vLLM spreads over an engine's GPUs. Of the others it spreads the outputs."""


@dataclass(frozen=True)
class MemoryPart:
    """``owner`` is the engine, the learner, or both if they share one copy."""

    owner: str
    name: str
    bytes: float


@dataclass(frozen=True)
class MemoryPlan:
    """All parts on one GPU. ``cache`` is an engine's memory for keys and values, summed over its GPUs, copies counted once. If it is
    ``released`` during training, cache and activations share the same memory."""

    parts: tuple[MemoryPart, ...]
    cache: float
    released: bool = False

    @property
    def total(self) -> float:
        total = sum(part.bytes for part in self.parts)
        return total - min(self._sum(CACHE), self._sum(ACTIVATIONS, HEAD)) if self.released else total

    def _sum(self, *names: str) -> float:
        return sum(part.bytes for part in self.parts if part.name in names)


def plan_memory(config: Config, shape: ModelShape, assumed: Assumptions) -> MemoryPlan:
    """Plan a GPU that holds an engine and a learner, or shares of them. Raises `ConfigError` if the engine's cache cannot hold one
    response of full length."""
    learner = (*_learner(config, shape), *_overhead("learner", config.cluster.shards, assumed))
    if config.engine.backend == "inprocess" and not config.cluster.learners:
        base, decoding = MemoryPart("engine and learner", "base", _base_bytes(config, shape)), _decoding(config, shape)
        return MemoryPlan((base, *decoding, *learner), decoding[0].bytes)
    engine = _engine(config, shape)
    cache = sum(part.bytes for part in engine if part.name == CACHE) * _cache_shares(config, shape)
    base = MemoryPart("learner", "base", _base_bytes(config, shape, config.cluster.shards))
    overhead = _overhead("engine", config.engine.tensor_parallel, assumed)
    return MemoryPlan((*engine, *overhead, base, *learner), cache, config.engine.release_cache)


def engine_slots(config: Config) -> int:
    """The most adapters that an engine holds."""
    cluster = config.cluster
    return max(map(len, held_slots(holders_of(config.population.members, cluster), cluster.engines)))


def forward_tokens(rows: int) -> int:
    """Return how many tokens vLLM computes at a time on a GPU, of prompts and ``rows`` responses. Its own number depends on the GPU."""
    return max(8192, rows)


def vllm_rank(rank: int) -> int:
    """Return the rank that vLLM reserves memory for. Raises `ConfigError` for one above its largest."""
    if rank > VLLM_RANKS[-1]:
        raise ConfigError(f"lora.rank is {rank}: vLLM takes adapters of rank {VLLM_RANKS[-1]} at most")
    return next(reserved for reserved in VLLM_RANKS if reserved >= rank)


def adapter_bytes(config: Config, shape: ModelShape, itemsize: int) -> int:
    """Bytes of one adapter with ``itemsize`` bytes a number."""
    return itemsize * shape.adapter(config.lora.rank, config.lora.targets)


def kept_bytes(shape: ModelShape, ranks: int, itemsize: int, checkpointing: str, fused: bool) -> float:
    """Bytes that backward keeps of one token in one layer; ``ranks`` is the sum over the layer's adapted modules.

    ``fused`` norms and MLPs, on CUDA, compute some of it again (`populora.engine.model.fusion`).
    """
    if checkpointing == "layer":
        return itemsize * shape.hidden
    queries, keys = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    attention = itemsize * (shape.hidden + 2 * queries + 2 * keys + ranks) + 4 * shape.heads
    norms = 2 * ((itemsize if fused else 4) * shape.hidden + 4)
    return attention + norms + itemsize * (shape.hidden if checkpointing == "mlp" else (2 if fused else 3) * shape.inner)


def head_bytes(shape: ModelShape, tokens: int, itemsize: int) -> float:
    """Bytes of a chunk's logits and exponentials in fp32 and once more in the base's precision, and of the gradient of ``tokens`` hidden
    states."""
    chunk = min(tokens * shape.vocabulary, CHUNK)
    return chunk * (2 * 4 + (itemsize if itemsize < 4 else 0)) + tokens * shape.hidden * itemsize


def _base_bytes(config: Config, shape: ModelShape, shards: int = 1) -> float:
    """A shard holds its part of the layers plus two whole layers, the current and the next one. Embeddings and head are whole in each
    shard; norms and biases are few and counted as whole."""
    layers = 1.0 if shards == 1 else 1 / shards + 2 / shape.layers
    return ITEMSIZE[config.base.dtype] * (shape.parameters - shape.linear + layers * shape.linear)


def _overhead(owner: str, gpus: int, assumed: Assumptions) -> tuple[MemoryPart, ...]:
    """What no shape determines, on each of the owner's GPUs."""
    collectives = (MemoryPart(owner, COLLECTIVES, assumed.collectives_gb * 1e9),) if gpus > 1 else ()
    return MemoryPart(owner, OVERHEAD, assumed.overhead_gb * 1e9), *collectives


def _engine(config: Config, shape: ModelShape) -> tuple[MemoryPart, ...]:
    """An engine with its own copy of the base: vLLM, or an in-process sampler of a cluster, whose adapters are in a bank."""
    held, base, itemsize = engine_slots(config), _base_bytes(config, shape), ITEMSIZE[config.base.dtype]
    inprocess, gpus = config.engine.backend == "inprocess", config.engine.tensor_parallel
    rows = inprocess_rows(config, shape) if inprocess else config.engine.rows
    draw = rows * shape.vocabulary * (5 * 4 + itemsize)  # `sample_tokens`, in fp32; vLLM's has one tensor less
    token = itemsize * (3 * shape.inner / gpus + 2 * shape.hidden)  # activations of a prompt's token
    logits = MemoryPart("engine", "logits of a draw", draw)  # in one process the learner's are more, at another time
    if inprocess:
        tokens = max(PREFILL_TOKENS, config.selfplay.max_prompt_tokens)
        prefill = MemoryPart("engine", "prompts of a forward", tokens * (token + shape.kv_bytes(itemsize)))
        return MemoryPart("engine", "base", base), *_bank("engine", config, shape, held), *_decoding(config, shape), prefill, logits
    check_vllm_cache(config, shape)
    return (
        MemoryPart("engine", "base", base / gpus),
        MemoryPart("engine", "adapters", (held + 1) * _vllm_adapter_bytes(config, shape)),  # one is the bare base
        MemoryPart("engine", CACHE, float(config.engine.cache_mb << 20)),
        MemoryPart("engine", "tokens of a forward", forward_tokens(rows) * token),
        logits,
    )


def _vllm_adapter_bytes(config: Config, shape: ModelShape) -> float:
    """Bytes of one adapter on each GPU of an engine. Of a module's two factors vLLM spreads the one with the dimension that it spreads; the
    other is whole on each GPU."""
    sizes = 0.0
    for name, (inputs, outputs) in shape.adapted(config.lora.targets).items():
        spread, whole = (inputs, outputs) if name.rpartition(".")[2] in SPREAD_INPUTS else (outputs, inputs)
        sizes += spread / config.engine.tensor_parallel + whole
    return ITEMSIZE[config.base.dtype] * vllm_rank(config.lora.rank) * sizes


def _learner(config: Config, shape: ModelShape) -> tuple[MemoryPart, ...]:
    """Adapters, optimiser, activations and head. A learner of a cluster has one more slot, for a borrowed adapter."""
    itemsize, tokens = ITEMSIZE[config.base.dtype], config.learner.micro_batch_tokens
    slots = -(-config.population.members // max(config.cluster.learners, 1)) + (1 if config.cluster.learners else 0)
    ranks = config.lora.rank * len(shape.adapted(config.lora.targets)) // shape.layers
    fused = config.base.device.startswith("cuda")
    kept = shape.layers * kept_bytes(shape, ranks, itemsize, config.learner.activation_checkpointing, fused)
    current = kept_bytes(shape, ranks, itemsize, "none", fused) + 2 * itemsize * shape.inner  # one layer and the gradients inside its MLP
    return (
        *_bank("learner", config, shape, slots),
        MemoryPart("learner", ACTIVATIONS, tokens * (kept + current)),
        MemoryPart("learner", HEAD, head_bytes(shape, tokens, itemsize)),
    )


def _bank(owner: str, config: Config, shape: ModelShape, slots: int) -> tuple[MemoryPart, ...]:
    """A `populora.engine.model.bank.LoraBank` of ``slots`` slots. An engine's does not learn."""
    itemsize, fp32 = ITEMSIZE[config.base.dtype], slots * adapter_bytes(config, shape, 4)
    copies = [MemoryPart(owner, "adapters as the base computes", slots * adapter_bytes(config, shape, itemsize))] if itemsize < 4 else []
    if owner == "engine":
        return *copies, MemoryPart(owner, "adapters, fp32", fp32)
    return (
        *copies,
        MemoryPart(owner, "adapters and their moments, fp32", 3 * fp32),
        MemoryPart(owner, "gradients of the adapters, fp32", fp32),
    )


def _decoding(config: Config, shape: ModelShape) -> tuple[MemoryPart, ...]:
    """What an in-process sampler needs to decode. On CUDA a token meets the adapters of all slots, weighted."""
    cache = MemoryPart("engine", CACHE, cache_bytes(config, shape))
    if not config.base.device.startswith("cuda"):
        return (cache,)
    ranks = engine_slots(config) * config.lora.rank * len(shape.adapted(config.lora.targets)) // shape.layers
    layer = kept_bytes(shape, ranks, ITEMSIZE[config.base.dtype], "none", True)
    return cache, MemoryPart("engine", GRAPHS, graph_bytes(config, shape, layer))


def _cache_shares(config: Config, shape: ModelShape) -> int:
    """Return into how many parts vLLM spreads keys and values: with fewer heads than GPUs each GPU has one, and some have the same."""
    return min(config.engine.tensor_parallel, shape.kv_heads)


def check_vllm_cache(config: Config, shape: ModelShape) -> None:
    """Raise `ConfigError` unless the cache holds one prompt and response. vLLM caches prompts as well."""
    play = config.selfplay
    longest = (play.max_prompt_tokens + play.max_response_tokens) * shape.kv_bytes(ITEMSIZE[config.base.dtype])
    if (needed := -(-longest // _cache_shares(config, shape) >> 20)) > config.engine.cache_mb:
        raise ConfigError(
            f"engine.cache_mb is {config.engine.cache_mb}: a prompt and a response of full length, {play.max_prompt_tokens} + "
            f"{play.max_response_tokens} tokens, need {needed}. Raise it or lower selfplay's limits."
        )
