"""Compare `populora plan` with measured steps of the tiny base on this machine's processor, 1T+1S and 4T+4S.

    python -m benchmarks.plan [--steps 4] [--threads 1]        writes plan/results.json; a few minutes on two quiet cores

Each run does one step that is not counted and then ``--steps`` that are. The plan is made twice: with its own assumptions, and with the
measured lengths and share of valid proposals, which leaves only the rates to be wrong. Measured seconds are wall time.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measuring import ROOT, machine, noise, options, write_results

from populora.core.config import Config
from populora.core.config_file import load_config
from populora.engine.model.base_shape import read_base_shape
from populora.engine.planning.assumptions import Assumptions
from populora.engine.planning.hardware import Hardware
from populora.engine.planning.planner import Plan, make_plan
from populora.engine.sampling.cpu_speed import measure_cpu
from populora.runs.step_record import StepRecord
from populora.training.loop import build_run
from populora.training.seed_buffer import fill_buffer
from populora.training.step import selfplay_step

Row = dict[str, float]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__, Path(__file__).parent / "plan" / "results.json")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args(arguments)
    hardware = measure_cpu(args.threads)
    results: dict[str, Any] = {"machine": machine("torch"), "threads": args.threads, "steps": args.steps, "calibrated": asdict(hardware)}
    for name in ("tiny_1t1s.toml", "tiny_4t4s.toml"):
        config = replace(load_config(ROOT / "configs" / name), threads=args.threads)
        row, disturbance = noise(partial(compare, config, hardware, args.steps))
        results[name] = {**row, "noise": disturbance}
    write_results(args.out, results)


def compare(config: Config, hardware: Hardware, steps: int) -> dict[str, Any]:
    """Measure steps and return them with both plans."""
    measured = measure(config, steps)
    given = make(config, hardware, Assumptions())
    told = make(config, hardware, as_measured(measured))
    return {
        "measured": {name: round(value, 3) for name, value in measured.items()},
        "planned": planned(given),
        "planned with measured lengths": planned(told),
        "measured / planned with measured lengths": ratios(measured, planned(told)),
    }


def measure(config: Config, steps: int) -> Row:
    """Return means over ``steps`` steps, after one that is not counted; seconds are medians."""
    rows: list[Row] = []
    with build_run(config) as run:
        fill_buffer(run)
        selfplay_step(run)
        for _ in range(steps):
            rows.append(row(selfplay_step(run)))
    return {name: (statistics.median if "seconds" in name else statistics.fmean)([row[name] for row in rows]) for name in rows[0]}


def row(record: StepRecord) -> Row:
    """Return one step in the terms of the plan."""
    tokens, seconds = record.tokens, record.seconds
    prompts = len({(p.author, p.group) for p in record.proposals}) + len({(a.student, a.problem.id) for a in record.attempts})
    responses = len(record.proposals) + len(record.attempts)
    return {
        "responses": responses,
        "prompts": prompts,
        "valid": statistics.fmean(proposal.problem is not None for proposal in record.proposals),
        "prompt tokens": (tokens["propose_prompts"] + tokens["solve_prompts"]) / prompts,
        "response tokens": (tokens["propose"] + tokens["solve"]) / responses,
        "longest response": max(len(response.generation.tokens) for response in (*record.proposals, *record.attempts)),
        "trained tokens": tokens["update"],
        "sample seconds": seconds["propose"] + seconds["solve"],
        "wait seconds": seconds["wait"],
        "train seconds": seconds["update"],
        "step seconds": sum(seconds.values()),
    }


def as_measured(measured: Row) -> Assumptions:
    """Return assumptions with measured lengths and validity."""
    return replace(
        Assumptions(), prompt_tokens=measured["prompt tokens"], response_tokens=measured["response tokens"], valid=measured["valid"],
        longest_response=round(measured["longest response"]),
    )  # fmt: skip


def make(config: Config, hardware: Hardware, assumed: Assumptions) -> Plan:
    return make_plan(config, read_base_shape(config.base), hardware, assumed)


def planned(plan: Plan) -> Row:
    """Return a plan in the terms of `row`."""
    seconds = plan.seconds
    found = {
        "responses": plan.work.sampled.rows,
        "prompts": plan.work.sampled.prompts,
        "trained tokens": plan.work.trained.written,
        "sample seconds": seconds.prompts + seconds.decode,
        "train seconds": seconds.train,
        "step seconds": seconds.shortest,
        "tail seconds": seconds.tail,
    }
    return {name: round(value, 3) for name, value in found.items()}


def ratios(measured: Row, plan: Row) -> Row:
    return {name: round(measured[name] / plan[name], 2) for name in plan if name in measured and plan[name]}


if __name__ == "__main__":
    main()
