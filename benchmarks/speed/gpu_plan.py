"""The sizes that `benchmarks.gpu` measures, and the work that training and decoding cannot do without.

Model FLOPs count the work that the result needs, once: neither what checkpointing computes again nor padding. The base is frozen, so a
weight costs 2 FLOPs a token forward and 2 backward, where full training costs 6.
"""

from dataclasses import dataclass

import torch

from populora.engine.model.adapted_model import Checkpointing

CONTEXT = 4096


@dataclass(frozen=True)
class Base:
    """A Qwen2: ``widths`` are hidden size, layers, inner size of the MLP, heads, key-value heads."""

    widths: tuple[int, int, int, int, int]
    vocabulary: int
    tied: bool

    @property
    def linear(self) -> int:
        """Weights of the layers' linear modules."""
        hidden, layers, inner, heads, kv_heads = self.widths
        return layers * hidden * (2 * hidden + 2 * hidden * kv_heads // heads + 3 * inner)

    def adapter(self, rank: int) -> int:
        """Return the parameters of one adapter on q, k, v and o."""
        hidden, layers, _, heads, kv_heads = self.widths
        return layers * rank * (6 * hidden + 2 * hidden * kv_heads // heads)


@dataclass(frozen=True)
class Plan:
    """The sizes. Training: micro-batches of ``tokens``, by checkpointing, cut into sequences of ``row``. Decoding: ``rows`` at a time, each
    with a prompt of ``prompt`` tokens and ``new`` ones. Peak: products of matrices of ``side`` x ``side``."""

    device: str
    dtype: str
    bases: dict[str, Base]
    rank: int
    tokens: dict[Checkpointing, tuple[int, ...]]
    row: int
    rows: tuple[int, ...]
    prompt: int
    new: int
    side: int
    adapters: tuple[int, ...] = (1, 8, 16)


QWEN = {
    "Qwen2.5-0.5B": Base((896, 24, 4864, 14, 2), vocabulary=151_936, tied=True),
    "Qwen2.5-7B": Base((3584, 28, 18_944, 28, 4), vocabulary=152_064, tied=False),
}
TOKENS: dict[Checkpointing, tuple[int, ...]] = {"none": (8192, 16_384, 32_768), "mlp": (32_768,), "layer": (32_768,)}
REAL = Plan("cuda", "bfloat16", QWEN, 32, TOKENS, 512, (32, 128), prompt=128, new=128, side=8192)
SMALL: dict[Checkpointing, tuple[int, ...]] = {"none": (256,), "mlp": (256,), "layer": (256,)}
TOY = Plan("cpu", "float32", {"toy": Base((64, 2, 128, 4, 2), 512, True)}, 8, SMALL, 16, (16,), prompt=8, new=8, side=256)


def training_flops(base: Base, rank: int, rows: int, row: int) -> float:
    """Return the model FLOPs of forward and backward of ``rows`` sequences of ``row`` tokens that learn from their latter half.

    Linear modules 4 P a token; adapters 6 (forward, gradients of input and of A and B); attention 12 x heads x head size for each pair of
    tokens that see each other (scores and mixing: 4 forward, 8 backward); the head 4 x hidden x vocabulary for each token learned from.
    """
    hidden, layers, *_ = base.widths
    pairs = rows * row * (row + 1) / 2
    learned = rows * (row + 1 - row // 2)
    return rows * row * (4 * base.linear + 6 * base.adapter(rank)) + 12 * layers * hidden * pairs + 4 * learned * hidden * base.vocabulary


def step_bytes(plan: Plan, base: Base, rows: int, adapters: int) -> float:
    """Return the bytes that a decoding step has to read: weights with the head, adapters, and the keys and values of half-written rows."""
    hidden, layers, _, heads, kv_heads = base.widths
    seen = rows * (plan.prompt + plan.new / 2) * 2 * layers * hidden * kv_heads // heads
    return getattr(torch, plan.dtype).itemsize * (base.linear + hidden * base.vocabulary + adapters * base.adapter(plan.rank) + seen)
