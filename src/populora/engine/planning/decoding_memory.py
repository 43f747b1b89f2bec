"""Memory of the in-process sampler: the rows that fit, their keys and values, and the graphs that are captured on CUDA.

Keys and values are in pages, as `populora.engine.native.cache` stores them, and on CUDA `populora.engine.model.paged`, whose pools grow in
steps. The tests compare the count with these pools.
"""

from populora.core.config import Config
from populora.core.errors import ConfigError
from populora.engine.planning.model_shape import ITEMSIZE, ModelShape

PREFILL_TOKENS = 16384
"""Prompts that the in-process sampler computes in one forward, in tokens. A longer prompt is computed alone."""
PAGE, CUDA_PAGE = 32, 64
"""Tokens of a page. On a CPU that of `decode.c` with AVX-512; other instructions and torch have smaller ones."""
SMALLEST_GRAPH = 8
"""Rows of the smallest graph (`populora.engine.sampling.graph_decoder`). Fewer take as long."""
SEGMENTS = (2 + 20) << 20
"""Bytes that torch's allocator takes at least for small and for large tensors of a memory pool (torch 2.13, `CUDACachingAllocator`)."""


def page_tokens(device: str) -> int:
    """Return the tokens of a page on this device."""
    return CUDA_PAGE if device.startswith("cuda") else PAGE


def in_whole_pages(tokens: int, page: int) -> int:
    """Return the tokens of the pages that hold ``tokens`` tokens."""
    return -(-tokens // page) * page


def rows_at_a_time(rows: int, cache_mb: int, shape: ModelShape, itemsize: int, tokens: int, page: int = PAGE) -> int:
    """Return how many responses of ``tokens`` tokens, ``rows`` at most, fit into the in-process sampler's cache of ``cache_mb`` MiB, which
    is allocated in pages of ``page`` tokens. Raises `ConfigError` if none does."""
    size = shape.kv_bytes(itemsize) * in_whole_pages(tokens, page)
    if size > cache_mb << 20:
        raise ConfigError(
            f"engine.cache_mb is {cache_mb}: one response of {tokens} tokens needs {-(-size >> 20)}. Raise it or lower "
            "selfplay.max_response_tokens."
        )
    return min(rows, (cache_mb << 20) // size)


def inprocess_rows(config: Config, shape: ModelShape) -> int:
    """Return `rows_at_a_time` of a run with these settings."""
    engine, page = config.engine, page_tokens(config.base.device)
    return rows_at_a_time(engine.rows, engine.cache_mb, shape, ITEMSIZE[config.base.dtype], config.selfplay.max_response_tokens, page)


def cache_bytes(config: Config, shape: ModelShape) -> float:
    """Count the keys and values of as many of the longest responses as ``engine.rows`` and ``engine.cache_mb`` allow, and of their
    prompts."""
    play, rows = config.selfplay, inprocess_rows(config, shape)
    token = shape.kv_bytes(ITEMSIZE[config.base.dtype])
    prompts = -(-rows // min(play.samples_per_prompt, play.rho_samples, play.previous_step_attempts or play.rho_samples))
    if not config.base.device.startswith("cuda"):
        return token * (rows * in_whole_pages(play.max_response_tokens, PAGE) + prompts * in_whole_pages(play.max_prompt_tokens, PAGE))
    pages = 1 + rows * -(-play.max_response_tokens // CUDA_PAGE) + prompts * -(-play.max_prompt_tokens // CUDA_PAGE)
    limit = (config.engine.cache_mb << 20) // (CUDA_PAGE * token)
    grown = max(pages + pages // 8, min(2 * pages, limit))  # pools double up to the limit, and grow by an eighth beyond
    return token * CUDA_PAGE * grown * (1 + 1 / (2 * shape.layers))  # while they grow, the keys or the values of one layer are there twice


def graph_sizes(live: int, rows: int) -> set[int]:
    """Return the numbers of rows of the graphs that a decoder for ``rows`` rows captures if it has up to ``live`` of them."""
    return {min(rows, max(SMALLEST_GRAPH, 1 << (count - 1).bit_length())) for count in range(1, live + 1)}


def graph_bytes(config: Config, shape: ModelShape, layer_bytes: float) -> float:
    """Estimate the memory of all captured graphs, given the bytes of a token's tensors in one layer.

    Each number of rows has a graph with adapters and one of the bare base, and each graph a memory pool of its own for as long as it lives.
    In it are one layer's tensors and the hidden states before and after. No GPU has confirmed this yet.
    """
    token = layer_bytes + 2 * ITEMSIZE[config.base.dtype] * shape.hidden
    return sum(2 * (SEGMENTS + size * token) for size in graph_sizes(inprocess_rows(config, shape), config.engine.rows))
