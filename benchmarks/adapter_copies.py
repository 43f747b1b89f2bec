"""Simulate how evenly engines share a step, by the number of them that hold each adapter (`cluster.adapter_copies`).

    python -m benchmarks.adapter_copies        writes adapter_copies.json; about a minute on one core

Prompts are assigned by the function of a run, adapter by adapter, and no response ends before all are assigned, as with
``selfplay.overlap = "off"``. Response lengths are made up as in `benchmarks.balance`.
"""

import statistics
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.balance import SAMPLES, SIMULATIONS, Simulation, make_lengths
from benchmarks.measuring import machine, options, write_results

from populora.core.config import ClusterConfig
from populora.engine.cluster.load_balancing import EngineLoads, holders_of

COPIES = (1, 2, 4, 8, 0)
"""Engines that hold each adapter; 0: all."""


def main() -> None:
    args = options(__doc__, Path(__file__).with_suffix(".json")).parse_args()
    cases = {case.name: simulate(case) for case in SIMULATIONS if case.adapters >= 64}
    write_results(args.out, {"machine": machine("numpy"), "largest load over the mean, by copies": cases})


def simulate(case: Simulation) -> dict[str, Any]:
    """Return the largest load of an engine over the mean, median and worst of the seeds, by copies; ``case.ranks`` are the engines."""
    results: dict[str, Any] = {}
    for copies in COPIES:
        cluster = ClusterConfig(engines=case.ranks, adapter_copies=copies)
        ratios = [simulate_step(case, cluster, seed) for seed in range(case.seeds)]
        results[str(copies or "all")] = {"median": round(statistics.median(ratios), 4), "worst": round(max(ratios), 4)}
    return results


def simulate_step(case: Simulation, cluster: ClusterConfig, seed: int) -> float:
    """Assign the prompts of a step to engines. Returns the largest sum of response tokens over the mean."""
    loads, tokens = EngineLoads(holders_of(case.adapters, cluster), cluster.engines), np.zeros(cluster.engines)
    for slot, lengths in enumerate(make_lengths(case.population, case.adapters, seed)):
        for of_prompt in lengths.sum(1):
            tokens[loads.add(slot, SAMPLES)] += of_prompt
    return float(tokens.max() / tokens.mean())


if __name__ == "__main__":
    main()
