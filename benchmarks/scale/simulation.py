"""Makespan over ideal of made-up steps: owners alone, and with helpers, through the real `split_work` and `assign`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from synthetic import rows_of
from traffic import FAR_HELP_TOKENS, GRADIENT_GB, HELP_TOKENS, RANKS_PER_NODE, WEIGHTS_GB

from populora.core.config import LearnerConfig
from populora.engine.cluster.load_balancing import Assignment, assign, owners_of
from populora.engine.learning.batching import TrainRow
from populora.engine.learning.work_splitting import WorkItem, split_work

BUDGET = LearnerConfig().micro_batch_tokens


@dataclass(frozen=True)
class Case:
    """``goal`` bounds the median and the worst seed of makespan over ideal with helpers."""

    adapters: int
    ranks: int
    population: str
    seeds: int
    goal: float | None = None


def simulate(case: Case) -> dict[str, Any]:
    """Median and worst over the seeds."""
    return summary(case, [played(case, rows_of(case.population, case.adapters, seed)) for seed in range(case.seeds)])


def played(case: Case, rows: Sequence[TrainRow]) -> dict[str, float]:
    """One step. The ideal is the mean load without helpers, or the longest row if that is more."""
    started = time.process_time()
    pieces = split_work(rows, BUDGET, case.adapters)
    cutting = time.process_time() - started
    work = {slot: [piece.tokens for piece in own] for slot, own in pieces.items()}
    owners = owners_of(case.adapters, case.ranks)
    nodes = [rank // RANKS_PER_NODE for rank in range(case.ranks)]
    started = time.process_time()
    assignment = assign(work, owners, case.ranks, HELP_TOKENS, nodes, FAR_HELP_TOKENS)
    assigning = time.process_time() - started
    alone = computed(rows, pieces, {rank: [] for rank in range(case.ranks)} | _by_owner(pieces, owners))
    shared = computed(rows, pieces, _by_rank(assignment, owners, case.ranks))
    costs = [0.0] * case.ranks
    far = 0
    for slot, helper in assignment.moved:
        distant = nodes[owners[slot]] != nodes[helper]
        far += distant
        costs[helper] += FAR_HELP_TOKENS if distant else HELP_TOKENS
    ideal = max(sum(alone) / case.ranks, *(len(row.prompt_tokens) + len(row.tokens) - 1 for row in rows))
    return {
        "alone": max(alone) / ideal,
        "helped": max(tokens + cost for tokens, cost in zip(shared, costs, strict=True)) / ideal,
        "alone_by_node": _by_node(alone),
        "pairs": len(assignment.moved),
        "far_pairs": far,
        "gigabytes": len(assignment.moved) * (WEIGHTS_GB + GRADIENT_GB),
        "prompts_again_percent": 100 * (sum(shared) / sum(alone) - 1),
        "assign_ms": 1000 * assigning,
        "cut_ms": 1000 * cutting,
    }


def computed(
    rows: Sequence[TrainRow], pieces: Mapping[int, Sequence[WorkItem]], shares: Mapping[int, Sequence[tuple[int, int]]]
) -> list[float]:
    """Tokens by rank, ``shares`` being its pieces as (slot, index): each prompt once a rank, as in its micro-batches."""
    loads: list[float] = []
    for rank in sorted(shares):
        chosen = [rows[row] for slot, piece in shares[rank] for row in pieces[slot][piece].rows]
        prompts = {(row.slot, row.prompt_tokens[0]): len(row.prompt_tokens) for row in chosen}
        loads.append(sum(len(row.tokens) - 1 for row in chosen) + sum(prompts.values()))
    return loads


def _by_node(loads: Sequence[float]) -> float:
    """The most loaded node over the mean of them: what sampling has where each node's engines hold the adapters of its ranks."""
    nodes = [sum(loads[first : first + RANKS_PER_NODE]) for first in range(0, len(loads), RANKS_PER_NODE)]
    return max(nodes) / statistics.fmean(nodes)


def _by_owner(pieces: Mapping[int, Sequence[WorkItem]], owners: Mapping[int, int]) -> dict[int, list[tuple[int, int]]]:
    shares: dict[int, list[tuple[int, int]]] = {}
    for slot, own in pieces.items():
        shares.setdefault(owners[slot], []).extend((slot, index) for index in range(len(own)))
    return shares


def _by_rank(assignment: Assignment, owners: Mapping[int, int], ranks: int) -> dict[int, list[tuple[int, int]]]:
    shares: dict[int, list[tuple[int, int]]] = {rank: [] for rank in range(ranks)}
    for (slot, helper), pieces in assignment.moved.items():
        shares[helper] += [(slot, piece) for piece in pieces]
    for slot, pieces in assignment.kept.items():
        shares[owners[slot]] += [(slot, piece) for piece in pieces]
    return shares


def summary(case: Case, steps: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Median and largest of each figure, and whether the goal is met in the worst seed."""
    found: dict[str, Any] = {"adapters": case.adapters, "ranks": case.ranks, "population": case.population, "seeds": len(steps)}
    for name in steps[0]:
        values = [step[name] for step in steps]
        found[name] = {"median": round(statistics.median(values), 4), "worst": round(max(values), 4)}
    return found | ({} if case.goal is None else {"goal": case.goal, "met": found["helped"]["worst"] <= case.goal})
