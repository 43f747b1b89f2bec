"""Simulate how evenly engines share a step, by the number of them that hold each adapter (`cluster.adapter_copies`).

    python -m benchmarks.adapter_copies        writes adapter_copies.json; about a minute on one core

In a step with ``selfplay.overlap = "off"`` each teacher first answers 72 prompts eight times, then each student attempts 288 problems
eight times. The function of a run assigns them, member by member. Response lengths are made up as in `benchmarks.balance`. The result is
the busiest engine's tokens over the mean of all engines, both summed over the two phases.
"""

import statistics
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.balance import PROMPTS, SAMPLES, SIMULATIONS, Simulation, make_lengths
from benchmarks.measuring import machine, options, write_results

from populora.core.config import ClusterConfig
from populora.engine.cluster.adapter_holders import EngineLoads, holders_of

COPIES = (1, 2, 4, 8, 0)
"""Engines that hold each adapter; 0: all."""
ROUNDS = (PROMPTS, 4 * PROMPTS)
"""A teacher's prompts and a student's problems: half of eight proposals a prompt are valid."""


def main() -> None:
    args = options(__doc__, Path(__file__).with_suffix(".json")).parse_args()
    about = {"machine": machine("numpy")}
    cases = {case.name: simulate(case) for case in SIMULATIONS if case.adapters >= 64}
    write_results(args.out, {**about, "busiest engine over the mean, by copies": cases})


def simulate(case: Simulation) -> dict[str, Any]:
    """Return median and worst ratio of the seeds, by copies. Half of ``case.adapters`` are teachers; ``case.ranks`` are the engines."""
    results: dict[str, Any] = {}
    for copies in COPIES:
        cluster = ClusterConfig(engines=case.ranks, adapter_copies=copies)
        ratios = [simulate_step(case, cluster, seed) for seed in range(case.seeds)]
        results[str(copies or "all")] = {"median": round(statistics.median(ratios), 4), "worst": round(max(ratios), 4)}
    return results


def simulate_step(case: Simulation, cluster: ClusterConfig, seed: int) -> float:
    """Assign a step's prompts to engines. Returns the busiest engine's tokens over the mean, both summed over the two phases."""
    holders, half = holders_of(case.adapters, cluster), case.adapters // 2
    lengths = list(make_lengths(case.population, case.adapters, seed, ROUNDS[-1]))
    busiest = mean = 0.0
    for prompts, slots in zip(ROUNDS, (range(half), range(half, case.adapters)), strict=True):
        loads, tokens = EngineLoads(holders, cluster.engines), np.zeros(cluster.engines)
        for slot in slots:
            for of_prompt in lengths[slot][:prompts].sum(1):
                tokens[loads.add(slot, SAMPLES)] += of_prompt
        busiest, mean = busiest + tokens.max(), mean + tokens.mean()
    return float(busiest / mean)


if __name__ == "__main__":
    main()
