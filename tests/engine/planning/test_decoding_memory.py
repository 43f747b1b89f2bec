"""The count of keys and values beside the pools that decoding on CUDA allocates, here on a CPU for made-up lengths; and captured graphs."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from populora.core.config import BaseConfig, Config, EngineConfig, SelfplayConfig
from populora.engine.model import decode_cache
from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.model.base_shape import read_base_shape
from populora.engine.model.loading import load_base
from populora.engine.model.paged import PagedDecodeAttention
from populora.engine.native.compiled import load
from populora.engine.native.decoder import NativeDecoder, prepare
from populora.engine.planning.assumptions import Assumptions
from populora.engine.planning.decoding_memory import (
    CUDA_PAGE,
    PAGE,
    cache_bytes,
    graph_bytes,
    graph_sizes,
    inprocess_rows,
    page_tokens,
)
from populora.engine.planning.memory import GRAPHS, plan_memory
from populora.engine.sampling.decoder_pool import DecoderPool

SHAPE = read_base_shape(BaseConfig())
PROMPT, RESPONSE = 250, 220
CONFIG = Config(
    base=BaseConfig(device="cuda"), engine=EngineConfig(rows=512, cache_mb=16),
    selfplay=SelfplayConfig(max_prompt_tokens=PROMPT, max_response_tokens=RESPONSE, samples_per_prompt=8, rho_samples=8),
)  # fmt: skip


@dataclass
class Trace:
    """A cache that is driven like a decoder's, and the most bytes that its pools had."""

    cache: PagedDecodeAttention
    peak: float = 0.0

    def begin(self, prompts: list[int], samples: int) -> None:
        """Add prompts of these lengths, with rows of each."""
        kept = {layer: (torch.zeros(len(prompts), SHAPE.kv_heads, max(prompts), SHAPE.head_size),) * 2 for layer in range(SHAPE.layers)}
        numbers = self.cache.add_prompts(kept, prompts)
        self.cache.add_rows([number for number in numbers for _ in range(samples)])

    def step(self) -> None:
        generation = self.cache.generation
        self.cache.step(self.cache.live)
        pools = [pool.nbytes for pair in self.cache._pools.values() for pool in pair]
        twice = max(pools) if self.cache.generation != generation else 0  # no more than this was there in addition while they grew
        self.peak = max(self.peak, sum(pools) + twice)


def make_trace(config: Config) -> Trace:
    pages = (config.engine.cache_mb << 20) // (CUDA_PAGE * SHAPE.kv_bytes(4))
    return Trace(PagedDecodeAttention(torch.device("cpu"), config.engine.rows, PROMPT + RESPONSE, pages))


@pytest.mark.parametrize("rows, samples", [(512, 8), (512, 2), (512, 1), (5, 1), (1, 1)])
def test_pools_of_the_longest_rows_are_as_large_as_planned(rows, samples):
    """Up to the limit if there are few rows, and with the prompts of many beyond it."""
    play = replace(CONFIG.selfplay, samples_per_prompt=samples, rho_samples=samples)
    config = replace(CONFIG, engine=replace(CONFIG.engine, rows=rows), selfplay=play)
    count, trace = inprocess_rows(config, SHAPE), make_trace(config)
    trace.begin([PROMPT] * (count // samples), samples)
    assert trace.cache.live == count
    for _ in range(RESPONSE):
        trace.step()
    planned = cache_bytes(config, SHAPE)
    assert trace.peak <= planned
    assert planned < 1.15 * trace.peak or count < 8, "pools of few pages may have doubled just before"
    assert planned > 16 * 2**20 or rows < 512


def test_pools_of_rows_that_end_at_any_length_are_no_larger():
    draw, trace, samples = np.random.default_rng(0), make_trace(CONFIG), 8
    groups = inprocess_rows(CONFIG, SHAPE) // samples
    left: list[tuple[int, int]] = []  # of each prompt its number and the steps to its end
    for _ in range(600):
        for _ in range(groups - len(left)):
            trace.begin([int(draw.integers(1, PROMPT + 1))], samples)
            left.append((max(trace.cache._prompts), int(draw.integers(1, RESPONSE + 1))))
        trace.step()
        left = [(number, steps - 1) for number, steps in left]
        staying = [index for index, (_, steps) in enumerate(left) if steps]
        trace.cache.keep_rows(np.array([index * samples + sample for index in staying for sample in range(samples)], np.int64))
        trace.cache.drop_prompts([number for number, steps in left if not steps])
        left = [left[index] for index in staying]
    assert 0.4 * cache_bytes(CONFIG, SHAPE) < trace.peak <= cache_bytes(CONFIG, SHAPE)


def test_rows_on_cuda_fill_the_cache_with_its_larger_pages():
    assert (page_tokens("cpu"), page_tokens("cuda"), page_tokens("cuda:1")) == (PAGE, CUDA_PAGE, CUDA_PAGE) == (32, 64, 64)
    longest = replace(CONFIG, selfplay=replace(CONFIG.selfplay, max_response_tokens=193))  # 7 pages of 32 tokens, or 4 of 64
    assert inprocess_rows(longest, SHAPE) == inprocess_rows(CONFIG, SHAPE) == 4096 // 256
    assert inprocess_rows(replace(longest, base=BaseConfig()), SHAPE) == 4096 // 224


@pytest.mark.skipif(isinstance(load(), str), reason=f"the decoder in C: {load()}")
@pytest.mark.parametrize("tokens", [1, 31, 33, 220])
def test_no_cache_on_a_cpu_takes_more_than_is_counted(tokens):
    play = replace(CONFIG.selfplay, max_response_tokens=tokens, max_prompt_tokens=PROMPT, samples_per_prompt=1, rho_samples=1)
    config = replace(CONFIG, base=BaseConfig(), selfplay=play, engine=replace(CONFIG.engine, rows=3))
    cache = NativeDecoder(prepare(AdaptedModel(load_base(BaseConfig())[0], ("q_proj",), 1, 2, 4.0)), 3, tokens, 1).cache
    numbers, _ = cache.add_prompts([PROMPT] * 3)
    cache.add_rows(numbers)
    allocated = 4 * cache._token * (3 * cache.capacity + sum(capacity for *_, capacity in cache._prompts.values()))
    assert allocated <= cache_bytes(config, SHAPE) < allocated + 3 * 2 * PAGE * SHAPE.kv_bytes(4)
    assert PAGE % decode_cache.PAGE == 0


@torch.inference_mode()
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("rows", [5, 8, 12, 40])
def test_graphs_are_counted_for_the_sizes_that_a_decoder_captures(adapted, rows):
    decoder = DecoderPool(adapted, rows, capture=lambda forward: forward).acquire(rows, 8)
    sizes = set()
    numbers, _ = decoder.prefill([[3, 4]], [0])
    for live in range(1, rows + 1):
        decoder.cache.add_rows(numbers)
        decoder([5] * live, [0] * live)
        sizes |= {size for size, _ in decoder._graphs}
    assert sizes == graph_sizes(rows, rows)


def test_captured_graphs_are_a_part_of_an_engine_on_cuda_alone(seven, paper, planned):
    config = paper(backend="inprocess", cache_mb=8192)
    (graphs,) = [part for part in planned(config, gpus=1).memory.parts if part.name == GRAPHS]
    rows = inprocess_rows(config, seven)
    sizes = graph_sizes(rows, 512)
    assert max(sizes) == 1 << math.ceil(math.log2(rows)) and graphs.owner == "engine"
    assert 2 * 22 * 2**20 * len(sizes) < graphs.bytes < 2 * 2**30
    assert graph_bytes(config, seven, 1000.0) == sum(2 * (22 * 2**20 + size * (1000 + 4 * 3584)) for size in sizes)
    cluster = planned(config).memory.parts
    (logits,) = [part for part in cluster if part.name == "logits of a draw"]
    assert logits.bytes == rows * 152_064 * 22 and GRAPHS in {part.name for part in cluster}
    cpu = plan_memory(Config(), SHAPE, Assumptions())
    assert GRAPHS not in {part.name for part in cpu.parts}
