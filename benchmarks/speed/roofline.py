"""What a card can do, measured and by its data sheet, and what a step of a model asks of it.

Model FLOPs count the work that the result needs, once: what checkpointing computes again is not counted, nor is work on padding. The
base is frozen, so a weight costs 2 FLOPs a token forward and 2 backward (the gradient of its input), where full training costs 6.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from timing import Case, Times, spread

NOMINAL = {"H100 PCIe": 756.0, "H100 NVL": 835.0, "H100": 989.0, "H200": 989.0, "B200": 2250.0, "A100": 312.0, "L40S": 362.0}
"""TFLOP/s in bf16 without sparsity, from the data sheets, by a part of the card's name; the first that fits."""
REPEATS = 20  # so that starting the clock does not count


@dataclass(frozen=True)
class Base:
    """A Qwen2: ``widths`` are hidden size, layers, inner size of the MLP, heads, key-value heads."""

    widths: tuple[int, int, int, int, int]
    vocabulary: int
    tied: bool
    itemsize: int
    """Bytes of a weight."""

    @property
    def linear(self) -> int:
        """Weights of the layers' linear modules."""
        hidden, layers, inner, heads, kv_heads = self.widths
        return layers * hidden * (2 * hidden + 2 * hidden * kv_heads // heads + 3 * inner)

    def adapter(self, rank: int) -> int:
        """Parameters of one adapter on q, k, v and o."""
        hidden, layers, _, heads, kv_heads = self.widths
        return layers * rank * (6 * hidden + 2 * hidden * kv_heads // heads)


def nominal_tflops(card: str) -> float | None:
    """The data sheet's peak; None for a card that is not in the table."""
    return next((peak for name, peak in NOMINAL.items() if name in card), None)


def training_flops(base: Base, rank: int, rows: int, row: int) -> float:
    """Forward and backward of ``rows`` sequences of ``row`` tokens, the latter half of which are learned from.

    Linear modules 4 P a token; adapters 6 (forward, gradients of input and of A and B); attention 12 x heads x head size for each pair of
    tokens that see each other (scores and mixing: 4 forward, 8 backward); the head 4 x hidden x vocabulary for each token learned from.
    """
    hidden, layers, *_ = base.widths
    pairs = rows * row * (row + 1) / 2
    learned = rows * (row + 1 - row // 2)
    return rows * row * (4 * base.linear + 6 * base.adapter(rank)) + 12 * layers * hidden * pairs + 4 * learned * hidden * base.vocabulary


def decoding_bytes(base: Base, rank: int, adapters: int, rows: int, length: float) -> float:
    """What one step has to read: all weights and the adapters once, and the keys and values of ``length`` tokens a row."""
    hidden, layers, _, heads, kv_heads = base.widths
    weights = base.linear + hidden * base.vocabulary + adapters * base.adapter(rank)
    return base.itemsize * (weights + rows * length * 2 * layers * hidden * kv_heads / heads)


def probes(device: str, dtype: str, side: int, mib: int) -> dict[str, Case]:
    """`REPEATS` products of two ``side`` x ``side`` matrices, and as many copies of ``mib`` MiB."""
    left, right = (torch.randn(side, side, device=device, dtype=getattr(torch, dtype)) for _ in range(2))
    product = torch.empty_like(left)
    source = torch.zeros(mib << 20, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return {
        "product": lambda: [torch.mm(left, right, out=product) for _ in range(REPEATS)],
        "copy": lambda: [target.copy_(source) for _ in range(REPEATS)],
    }


def peaks(times: Times, side: int, mib: int) -> dict[str, dict[str, float]]:
    """TFLOP/s and GB/s (read and written) that `probes` reached."""
    return {
        "tflops": spread([REPEATS * 2 * side**3 / seconds / 1e12 for seconds in times["product"]]),
        "gigabytes_per_second": spread([REPEATS * 2 * (mib << 20) / seconds / 1e9 for seconds in times["copy"]]),
    }
