"""How evenly learners share a step, and what a population of 1,000 adapters costs beside sampling and learning.

    python benchmarks/balance.py        writes scale/results.json and the tables of docs/scale.md; about two minutes on one core

`balance` simulates steps of 8 adapters on 8 ranks, 64 on 64 and 1,000 on 64, 256 and 1,000, through the real functions that cut and assign.
`controller` measures the controller's other functions. `traffic` is arithmetic from the assumptions beside it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "scale.md"
sys.path[:0] = [str(HERE / "scale"), str(HERE / "speed")]

from controller import measure  # noqa: E402
from machine import machine  # noqa: E402
from scale_tables import tables, with_tables  # noqa: E402
from simulation import Case, simulate  # noqa: E402
from synthetic import BETWEEN, LONGEST, POPULATIONS, PROMPT_TOKENS, PROMPTS, SAMPLES, WITHIN, rows_of  # noqa: E402
from traffic import assumptions, traffic  # noqa: E402

from populora.core.config import EvolutionConfig, SelfplayConfig  # noqa: E402
from populora.core.types import TASK_TYPES  # noqa: E402
from populora.training.culling import cull_count  # noqa: E402

RANKS, MEMBERS = (64, 256, 1000), (8, 64, 256, 1000)
CASES = [
    *(Case(8, 8, population, 100, None if population == "small step" else 1.05) for population in POPULATIONS),
    *(Case(64, 64, population, 20, None if population == "small step" else 1.08) for population in POPULATIONS),
    *(Case(1000, ranks, population, 3) for population in ("alike", "means x 4") for ranks in RANKS),
]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "scale" / "results.json")
    parser.add_argument("--page", type=Path, default=PAGE)
    chosen = parser.parse_args(arguments)
    measured = [measure(members) for members in MEMBERS]
    found = {
        "machine": machine(),
        "step": step(),
        "balance": [simulate(case) for case in CASES],
        "controller": measured,
        "elsewhere": elsewhere(measured[-1]),
        "assumptions": assumptions(),
        "traffic": {str(ranks): traffic(max(MEMBERS), ranks) for ranks in RANKS},
    }
    chosen.out.write_text(json.dumps(found, indent=1) + "\n")
    chosen.page.write_text(with_tables(chosen.page.read_text(encoding="utf-8"), tables(found)), encoding="utf-8")


def step() -> dict[str, Any]:
    """What the made-up rows are, and the mean length that the cut leaves."""
    lengths = [len(row.tokens) for seed in range(5) for row in rows_of("alike", 8, seed)]
    given = {"prompts": PROMPTS, "samples": SAMPLES, "prompt_tokens": PROMPT_TOKENS, "longest": LONGEST}
    spread = {"log_sd_between_prompts": BETWEEN, "log_sd_within_a_prompt": WITHIN, "populations": POPULATIONS}
    return {**given, **spread, "mean_response": round(statistics.fmean(lengths), 1), "longest_response": max(lengths)}


def elsewhere(largest: Mapping[str, Any]) -> dict[str, float]:
    """One core's seconds of breeding the children of one evolution and of judging one step, from what other benchmarks measured."""
    operators = json.loads((HERE / "operators" / "results.json").read_text())["children"]
    children = 2 * cull_count(largest["members"] // 2, EvolutionConfig().cull_fraction)
    each = statistics.fmean(operators[name]["median"] for name in EvolutionConfig().operators)
    ways = json.loads((HERE / "sandbox" / "results.json").read_text())["speed"]["ways"]
    check = ways["populora, tier full, 1 worker, complete check"]["cpu_ms"]["median"] / 1000
    checks = largest["proposals"] + largest["attempts"]
    return {
        "children": children, "seconds_a_child": round(each, 4), "breeding_seconds": round(children * each, 1),
        "checks": checks, "seconds_a_check": round(check, 4), "checking_seconds": round(checks * check),
        "buffer_turned_over": round(largest["valid"] / (len(TASK_TYPES) * SelfplayConfig().buffer_size), 2),
    }  # fmt: skip


if __name__ == "__main__":
    main()
