"""A whole step of populora beside the plain composition's, the same step each time, and proof that both did the same work."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from composition import Composition, composition, put_back, weights
from plain_sampling import Responses, drawn, sample
from plain_training import train
from processes import noise, timed
from programs import run_all
from replay import Replay, Taken, before_step, check_same
from timing import ratio, spread

from populora.core.config import Config
from populora.engine.learning.batching import TrainRow
from populora.sandbox.protocol import Job, Limits

TOLERANCE = 1e-4
"""Largest distance of the two arms' adapters, as a share of the update's length. Single weights differ by more of theirs: where a
gradient is a sum that cancels, AdamW makes a step of its rounding."""
BATCHES = (512, 128, 64, 32)
"""Responses in one ``generate``: what is fastest for one teacher and one student is taken. The first is all that a member has."""

Phases = dict[str, float]
"""Seconds of wall time, and ``cpu`` seconds of the whole."""


@dataclass(frozen=True)
class Work:
    """What the plain composition has to do again, and where the adapters must come out."""

    config: Config
    limits: Limits
    before: dict[str, torch.Tensor]
    responses: Responses
    programs: tuple[Job, ...]
    rows: tuple[TrainRow, ...]
    after: torch.Tensor


def work_of(replay: Replay, taken: Taken) -> Work:
    programs = tuple(job for job in taken.judged if job.mode == "run")
    return Work(replay.run.config, replay.limits, replay.adapters, drawn(taken), programs, taken.rows, taken.after)


def side_by_side(config: Config, step: int, rounds: int) -> dict[str, Any]:
    """``rounds`` times both arms, which take turns in beginning."""
    with before_step(config, step) as replay:
        first = replay.once()
        work, made = work_of(replay, first), composition(config, replay.run.bank)
        tried = seconds_by_batch(made, work)
        fastest = min(tried, key=lambda rows: tried[rows])
        times: dict[str, list[Phases]] = {"ours": [], "plain": []}
        differences: list[dict[str, float]] = []

        def ours() -> None:
            taken = replay.once()
            check_same(first, taken)
            times["ours"].append({**taken.seconds, "cpu": taken.cpu})

        def plain() -> None:
            times["plain"].append(plain_step(made, work, fastest))
            differences.append(agreement(weights(made), work))

        _, disturbed = noise(lambda: take_turns([ours, plain], rounds))
    return {
        "threads": config.threads, "step": step, "work": sizes(work, first), "responses a generate": fastest,
        "seconds of two members by responses a generate": {str(rows): round(seconds, 2) for rows, seconds in tried.items()},
        "agreement": {name: max(one[name] for one in differences) for name in differences[0]},
        "seconds": {arm: {phase: spread([one[phase] for one in many]) for phase in many[0]} for arm, many in times.items()},
        "plain / ours": ratios(times), "noise": disturbed,
    }  # fmt: skip


def take_turns(arms: list[Callable[[], None]], rounds: int) -> None:
    for turn in range(rounds):
        for arm in arms[turn % len(arms) :] + arms[: turn % len(arms)]:
            gc.collect()
            arm()


def seconds_by_batch(made: Composition, work: Work) -> dict[int, float]:
    """Seconds of sampling for the first and the last member, by the number of responses in one ``generate``."""
    put_back(made, work.before)
    ends = {slot: work.responses[slot] for slot in (min(work.responses), max(work.responses))}
    most = work.config.selfplay.max_response_tokens
    return {rows: timed(lambda rows=rows: sample(made, ends, rows, most))[1] for rows in BATCHES}


def plain_step(made: Composition, work: Work, rows: int) -> Phases:
    """The plain composition's step. ``verify again`` is a second process for each program, which populora always has; the whole is
    without it."""
    config, workers = work.config, work.config.sandbox.workers
    put_back(made, work.before)
    phases = {
        "sample": timed(lambda: sample(made, work.responses, rows, config.selfplay.max_response_tokens)),
        "verify": timed(lambda: run_all(work.programs, workers, work.limits)),
        "train": timed(lambda: train(made, work.rows, config.learner)),
    }
    again = timed(lambda: run_all(work.programs, workers, work.limits))
    seconds = {phase: wall for phase, (_, wall, _) in phases.items()}
    return {**seconds, "verify again": again[1], "whole": sum(seconds.values()), "cpu": sum(cpu for _, _, cpu in phases.values())}


def agreement(found: torch.Tensor, work: Work) -> dict[str, float]:
    """How far the arms' adapters are apart: a share of the update's length, of the worst member, and the largest difference of one
    weight. Stops if they are too far apart to come from the same work."""
    start = work.before["master"]
    distances, updates = (found - work.after).norm(dim=1), (work.after - start).norm(dim=1)
    for slot, (distance, update) in enumerate(zip(distances.tolist(), updates.tolist(), strict=True)):
        if not distance <= TOLERANCE * update:
            raise SystemExit(f"slot {slot}: the arms' adapters are {distance:.1e} apart after updates of {update:.1e}: not the same work")
    moved = updates > 0
    relative = float((distances[moved] / updates[moved]).max()) if bool(moved.any()) else 0.0
    largest = {"largest difference": float((found - work.after).abs().max()), "largest update": float((work.after - start).abs().max())}
    return {"distance / update": relative, **largest}


def sizes(work: Work, taken: Taken) -> dict[str, int]:
    tokens, responses = taken.record.tokens, [one for own in work.responses.values() for one in own]
    return {
        "members": len(work.responses), "responses": len(responses), "prompt tokens": sum(len(one.prompt_tokens) for one in responses),
        "sampled tokens": tokens["propose"] + tokens["solve"], "trained tokens": tokens["update"],
        "programs": len(work.programs),
    }  # fmt: skip


def ratios(times: dict[str, list[Phases]]) -> dict[str, dict[str, float]]:
    """Medians over the rounds of the ratio within a round."""

    def of(phase: str, *more: str) -> dict[str, float]:
        plain = [sum(one[name] for name in (phase, *more)) for one in times["plain"]]
        return ratio({"plain": plain, "ours": [one[phase] for one in times["ours"]]}, "plain", "ours")

    found = {phase: of(phase) for phase in ("whole", "cpu", "sample", "train")}
    return {**found, "whole, two processes a program": of("whole", "verify again")}
