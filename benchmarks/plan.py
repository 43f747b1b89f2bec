"""How far the plan is from measured steps: the tiny base on this machine's processor, 1T+1S and 4T+4S.

    python benchmarks/plan.py [--steps 4] [--threads 1]        writes plan/results.json; a few minutes on two quiet cores

A run of each configuration does one step that is not counted and then ``--steps`` that are. The plan is made twice: as a user has it, with
its own assumptions, and with the lengths and the share of valid proposals that were measured, which leaves only the rates to be wrong.
Every phase is told in measured and planned seconds, and their ratio. Measured seconds are wall time.

Beside them, what training and decoding reach of the calibrated peaks on random bases, one as narrow as the tiny base and one as wide as
Qwen2.5-0.5B, few layers each: which part of the distance is the tiny model's own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CONFIGS = HERE.parent / "configs"
sys.path += [str(HERE / "speed"), str(HERE / "sandbox")]

import card  # noqa: E402
import torch  # noqa: E402
from machine import machine  # noqa: E402
from processes import noise  # noqa: E402
from roofline import Base  # noqa: E402

from populora.core.config import Config, LoraConfig  # noqa: E402
from populora.core.config_file import load_config  # noqa: E402
from populora.engine.model.base_shape import base_shapes  # noqa: E402
from populora.engine.planning.assumptions import Assumptions  # noqa: E402
from populora.engine.planning.hardware import Hardware  # noqa: E402
from populora.engine.planning.model_shape import qwen2  # noqa: E402
from populora.engine.planning.planner import Plan, make_plan  # noqa: E402
from populora.engine.planning.step_time import Texts, decode_seconds  # noqa: E402
from populora.engine.sampling.cpu_speed import measure_cpu  # noqa: E402
from populora.runs.step_record import StepRecord  # noqa: E402
from populora.training.loop import build_run  # noqa: E402
from populora.training.seed_buffer import fill_buffer  # noqa: E402
from populora.training.step import selfplay_step  # noqa: E402

FILES = ("tiny_1t1s.toml", "tiny_4t4s.toml")
Row = dict[str, float]
WIDTHS = {
    "tiny base": Base((128, 4, 512, 4, 4), vocabulary=512, tied=True, itemsize=4),
    "Qwen2.5-0.5B, 4 layers": Base((896, 4, 4864, 14, 2), vocabulary=8192, tied=True, itemsize=4),
}
CARD = card.Plan("cpu", "float32", WIDTHS, 8, (1024,), 64, (64,), prompt=64, new=32, side=0, mib=0, adapters=(1, 8))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--toy", action="store_true", help="a few short prompts, to see that it works: the figures mean nothing")
    parser.add_argument("--out", type=Path, default=HERE / "plan" / "results.json")
    chosen = parser.parse_args(arguments)
    found: dict[str, Any] = {"machine": {**machine(), "threads": chosen.threads}, "toy": chosen.toy, "steps": chosen.steps}
    hardware = measure_cpu(chosen.threads)
    found["calibrated"] = asdict(hardware)
    for file in FILES:
        config = replace(load_config(CONFIGS / file), threads=chosen.threads)
        case = toy(config) if chosen.toy else config
        compare = partial(compared, case, hardware, chosen.steps)
        found[file], disturbed = noise(compare)
        found[file]["noise"] = disturbed
        print(file, json.dumps(found[file], indent=1), flush=True)
    torch.set_num_threads(chosen.threads)
    found["shares of the calibrated peaks"] = {name: shares(base, hardware) for name, base in WIDTHS.items()} if not chosen.toy else {}
    chosen.out.parent.mkdir(exist_ok=True)
    chosen.out.write_text(json.dumps(found, indent=1) + "\n")


def compared(config: Config, hardware: Hardware, steps: int) -> dict[str, Any]:
    """Measured steps beside both plans."""
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
    """Means over ``steps`` steps, after one that is not counted; seconds are medians."""
    rows: list[Row] = []
    with build_run(config) as run:
        fill_buffer(run)
        selfplay_step(run)
        for _ in range(steps):
            rows.append(row(selfplay_step(run)))
    return {name: (statistics.median if "seconds" in name else statistics.fmean)([one[name] for one in rows]) for name in rows[0]}


def row(record: StepRecord) -> Row:
    """One step in the plan's terms."""
    tokens, seconds = record.tokens, record.seconds
    prompts = len({(p.author, p.group) for p in record.proposals}) + len({(a.student, a.problem.id) for a in record.attempts})
    responses = len(record.proposals) + len(record.attempts)
    return {
        "responses": responses,
        "prompts": prompts,
        "valid": statistics.fmean(proposal.problem is not None for proposal in record.proposals),
        "prompt tokens": (tokens["propose_prompts"] + tokens["solve_prompts"]) / prompts,
        "response tokens": (tokens["propose"] + tokens["solve"]) / responses,
        "longest response": max(len(one.generation.tokens) for one in (*record.proposals, *record.attempts)),
        "trained tokens": tokens["update"],
        "sample seconds": seconds["propose"] + seconds["solve"],
        "wait seconds": seconds["wait"],
        "train seconds": seconds["update"],
        "step seconds": sum(seconds.values()),
    }


def as_measured(measured: Row) -> Assumptions:
    """Lengths and validity as they were; rates as assumed."""
    return replace(
        Assumptions(), prompt_tokens=measured["prompt tokens"], response_tokens=measured["response tokens"], valid=measured["valid"],
        longest_response=round(measured["longest response"]),
    )  # fmt: skip


def make(config: Config, hardware: Hardware, assumed: Assumptions) -> Plan:
    return make_plan(config, base_shapes(config.base), hardware, assumed)


def planned(plan: Plan) -> Row:
    """In the terms of `row`."""
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


def shares(base: Base, hardware: Hardware, rounds: int = 3) -> Row:
    """What training (model FLOPs) and decoding (bytes read) of 8 adapters reach on one base."""
    train = card.training(CARD, base, {"calibrated": hardware.teraflops}, rounds)["checkpointing none, 1024 tokens"]["8 adapters"]
    decode = card.decoding(CARD, base, hardware.gigabytes_per_second, rounds)["64 rows"]["8 adapters"]
    hidden, layers, inner, heads, kv_heads = base.widths
    shapes = qwen2("random", hidden, inner, layers, heads, kv_heads, base.vocabulary, base.tied, card.CONTEXT)
    config = Config(lora=LoraConfig(rank=CARD.rank))  # 4 teachers, 4 students
    texts = Texts(CARD.rows[0], CARD.rows[0], CARD.prompt, CARD.new)
    whole = decode_seconds(config, shapes, hardware, Assumptions(), texts, texts.rows)
    return {
        "train, of the FLOP/s": train["model_flop_utilisation"]["calibrated"],
        "decode, of the bandwidth": decode["share_of_bandwidth"],
        "decode, milliseconds a step of 64 rows": decode["step_milliseconds"],
        "decode, planned milliseconds": round(1000 * whole / CARD.new, 3),
    }


def toy(config: Config) -> Config:
    """Of the same make, done in seconds."""
    small = replace(config.selfplay, prompts_per_type=1, rho_samples=2, max_response_tokens=48, seeds=16)
    return replace(config, selfplay=small, sandbox=replace(config.sandbox, cpu_seconds=2.0))


if __name__ == "__main__":
    main()
