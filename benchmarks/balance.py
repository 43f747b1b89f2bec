"""Simulate how evenly learners share a step: makespan over ideal, owners alone and with helpers.

    python -m benchmarks.balance        writes balance.json; about a minute on one core

Steps of 8 adapters on 8 ranks, 64 on 64 and 1,000 on 256, through the functions that split and assign the work of a run. Response
lengths are made up: log-normal, cut at 8,096 tokens. The milliseconds of the planner are CPU time.
"""

import statistics
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.measuring import bar, machine, options, timed, write_results

from populora.core.config import LearnerConfig
from populora.core.rng import stream
from populora.engine.cluster.load_balancing import assign, owners_of
from populora.engine.learning.batching import TrainRow
from populora.engine.learning.work_splitting import WorkItem, split_work
from populora.training.loop import without_long_lived

BUDGET = LearnerConfig().micro_batch_tokens
PROMPTS, SAMPLES, PROMPT_TOKENS, LONGEST = 72, 8, 500, 8096
BETWEEN, WITHIN = 0.5, 0.85
"""Standard deviations of the logarithm of a response's length: between the prompts of an adapter, and within a prompt."""
POPULATIONS = {"alike": 1.0, "means x 4": 4.0}
"""The factor within which the adapters' mean lengths lie, log-uniform around 1,000 tokens."""
RANKS_PER_NODE = 8
HELP_TOKENS, FAR_HELP_TOKENS = 1000.0, 2000.0
"""Cost of a pair of adapter and helper in `assign`, on one node and across nodes."""


@dataclass(frozen=True)
class Simulation:
    """Steps of a population, one a seed; ``goal`` bounds the worst makespan over ideal with helpers."""

    adapters: int
    ranks: int
    population: str
    seeds: int
    goal: float | None = None

    @property
    def name(self) -> str:
        return f"{self.adapters} on {self.ranks}, {self.population}"


SIZES = [(8, 8, 100, 1.05), (64, 64, 20, 1.08), (1000, 256, 3, None)]
SIMULATIONS = [Simulation(adapters, ranks, name, seeds, goal) for adapters, ranks, seeds, goal in SIZES for name in POPULATIONS]


def main() -> None:
    args = options(__doc__, Path(__file__).with_suffix(".json")).parse_args()
    step = {"prompts": PROMPTS, "samples": SAMPLES, "prompt_tokens": PROMPT_TOKENS, "longest": LONGEST}
    about = {"machine": machine("numpy"), "step": step}
    with without_long_lived():
        balance = {case.name: simulate(case) for case in SIMULATIONS}
    write_results(args.out, {**about, "balance": balance})


def simulate(case: Simulation) -> dict[str, Any]:
    """Return median and worst of each figure over the seeds, and whether the worst seed meets the goal."""
    steps = [simulate_step(case, make_rows(case.population, case.adapters, seed)) for seed in range(case.seeds)]
    results: dict[str, Any] = {"seeds": len(steps)}
    for name in steps[0]:
        values = [step[name] for step in steps]
        results[name] = {"median": round(statistics.median(values), 4), "worst": round(max(values), 4)}
    return results | ({} if case.goal is None else {"goal": case.goal, "met": bar(case.goal, results["helped"]["worst"])["met"]})


def make_rows(population: str, adapters: int, seed: int) -> list[TrainRow]:
    """Return the rows of a step, adapter by adapter. Only lengths matter; tokens are placeholders."""
    rows: list[TrainRow] = []
    for slot, lengths in enumerate(make_lengths(population, adapters, seed)):
        for number, sampled in enumerate(lengths.tolist()):
            prompt = array("i", (number, *(0,) * (PROMPT_TOKENS - 1)))
            rows += [TrainRow(slot, prompt, range(length), range(length), 1.0) for length in sampled]
    return rows


def make_lengths(population: str, adapters: int, seed: int, prompts: int = PROMPTS) -> Iterator[np.ndarray]:
    """Yield the tokens of each adapter's responses, [prompts, samples]."""
    rng = stream(seed, "balance", population, adapters)
    means = 1000.0 * POPULATIONS[population] ** rng.uniform(-0.5, 0.5, adapters)
    for mean in means.tolist():
        levels = np.exp(rng.normal(-(BETWEEN**2) / 2, BETWEEN, (prompts, 1)))
        lengths = mean * levels * np.exp(rng.normal(-(WITHIN**2) / 2, WITHIN, (prompts, SAMPLES)))
        yield np.clip(lengths, 1, LONGEST).astype(int)


def simulate_step(case: Simulation, rows: Sequence[TrainRow]) -> dict[str, float]:
    """Split and assign one step. The ideal is the mean load without helpers, or the longest row if that is more."""
    pieces, _, cutting = timed(lambda: split_work(rows, BUDGET, case.adapters))
    owners = owners_of(case.adapters, case.ranks)
    nodes = [rank // RANKS_PER_NODE for rank in range(case.ranks)]
    tokens = {slot: [piece.tokens for piece in of_slot] for slot, of_slot in pieces.items()}
    assignment, _, assigning = timed(lambda: assign(tokens, owners, case.ranks, HELP_TOKENS, nodes, FAR_HELP_TOKENS))
    alone, helped = [0.0] * case.ranks, [0.0] * case.ranks
    for rank in range(case.ranks):
        of_rank = [slot for slot, owner in owners.items() if owner == rank]
        alone[rank] = load(rows, [piece for slot in of_rank for piece in pieces.get(slot, ())])
        kept = [pieces[slot][piece] for slot in of_rank for piece in assignment.kept.get(slot, ())]
        moved = [pieces[slot][piece] for (slot, helper), of_pair in assignment.moved.items() if helper == rank for piece in of_pair]
        helped[rank] = load(rows, [*kept, *moved])
    far = [nodes[owners[slot]] != nodes[helper] for slot, helper in assignment.moved]
    for (_, helper), distant in zip(assignment.moved, far, strict=True):
        helped[helper] += FAR_HELP_TOKENS if distant else HELP_TOKENS
    ideal = max(sum(alone) / case.ranks, *(len(row.prompt_tokens) + len(row.tokens) - 1 for row in rows))
    return {
        "alone": max(alone) / ideal,
        "helped": max(helped) / ideal,
        "pairs": len(far),
        "far_pairs": sum(far),
        "cut_ms": 1000 * cutting,
        "assign_ms": 1000 * assigning,
    }


def load(rows: Sequence[TrainRow], pieces: Iterable[WorkItem]) -> float:
    """Return the tokens of a rank's pieces. A rank computes each prompt of its rows once."""
    chosen = [rows[row] for piece in pieces for row in piece.rows]
    prompts = {(row.slot, row.prompt_tokens[0]): len(row.prompt_tokens) for row in chosen}
    return sum(len(row.tokens) - 1 for row in chosen) + sum(prompts.values())


if __name__ == "__main__":
    main()
