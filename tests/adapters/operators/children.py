"""Breeding in one line, for the tests of operators."""

from collections.abc import Sequence
from dataclasses import dataclass

from populora.adapters.adapter import Adapter
from populora.adapters.operators.breeding import breed
from populora.core.types import Lineage


@dataclass(frozen=True)
class Child:
    adapter: Adapter
    norm_ratio: float
    cosines: tuple[float, ...]
    effective_rank: float


def child_of(
    parents: Sequence[Adapter], operator: str, seed: int = 0, refactor: str = "", allow_copy: bool = False, **strength: float | str
) -> Child:
    plan = Lineage("child", operator=operator, seed=seed, stream=("breed",), refactor=refactor, strength=strength)
    adapter, record = breed(parents, plan, allow_copy=allow_copy)
    return Child(adapter, record.norm_ratio, record.cosines, record.effective_rank)
