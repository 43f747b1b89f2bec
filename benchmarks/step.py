"""A whole step of 4T+4S on the tiny base, measured: beside the plain composition, and for each adapter beside 1T+1S.

    python benchmarks/step.py [--rounds 5] [--threads 1]        writes speed/step.json; about half an hour on two quiet cores

The plain composition does the same step with PEFT, transformers and a process a program (`speed/composition.py` says where it is
favoured); the benchmark stops if its adapters come out elsewhere. Every round replays the same step of a real run, from the same
adapters, moments, ratings and buffer. Arms take turns within a round, and a ratio is the median over the rounds of the ratio within a
round, with the smallest and the largest beside it. Seconds are wall time, and CPU time with all processes below.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "speed"
CONFIGS = Path(__file__).parents[1] / "configs"
sys.path += [str(HERE), str(HERE.parent / "sandbox")]

warnings.filterwarnings("ignore", module="transformers|peft")

from adapter_steps import adapter_steps, name_of  # noqa: E402
from machine import machine  # noqa: E402
from side_by_side import side_by_side  # noqa: E402

from populora.core.config import Config  # noqa: E402
from populora.core.config_file import load_config, to_mapping  # noqa: E402

PARTS = ("plain composition", "adapter steps")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="torch's threads; everything is measured with each")
    parser.add_argument("--step", type=int, default=3, help="the step of the run that is measured: adapters and moments are trained before")
    parser.add_argument("--only", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--toy", action="store_true", help="a few short prompts, to see that it works: the figures mean nothing")
    parser.add_argument("--out", type=Path, default=HERE / "step.json")
    chosen = parser.parse_args(arguments)
    many, one = (load_config(CONFIGS / file) for file in ("tiny_4t4s.toml", "tiny_1t1s.toml"))
    if chosen.toy:
        many, one = toy(many), toy(one)
    facts = {name: value for name, value in machine().items() if name != "threads"}
    found: dict[str, Any] = {"machine": facts, "rounds": chosen.rounds, "toy": chosen.toy, "settings": to_mapping(many)}
    for threads in chosen.threads:
        for part in chosen.only:
            measured = measure(part, replace(many, threads=threads), replace(one, threads=threads), chosen.step, chosen.rounds)
            name = f"{part}, {name_of(many)}, threads {threads}"
            found[name] = measured
            print(name, json.dumps(measured, indent=1), flush=True)
    chosen.out.write_text(json.dumps(found, indent=1) + "\n")


def measure(part: str, many: Config, one: Config, step: int, rounds: int) -> dict[str, Any]:
    if part == "adapter steps":
        return adapter_steps(many, one, step, rounds)
    return side_by_side(many, step, rounds)


def toy(config: Config) -> Config:
    """Of the same make, done in seconds. So few tokens have many gradients that cancel: epsilon keeps AdamW from magnifying them."""
    small = replace(config.selfplay, prompts_per_type=1, rho_samples=2, max_response_tokens=48, seeds=16)
    teachers = (config.population.teachers + 1) // 2
    population, learner = replace(config.population, teachers=teachers, students=teachers), replace(config.learner, epsilon=1e-5)
    sandbox = replace(config.sandbox, cpu_seconds=2.0)  # on a busy machine too, a replay must meet the same verdicts
    return replace(config, selfplay=small, population=population, learner=learner, sandbox=sandbox)


if __name__ == "__main__":
    main()
