"""Seconds of a step for each adapter: many adapters in one run beside the smallest population."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from processes import noise
from replay import Replay, Taken, before_step, check_same
from side_by_side import take_turns
from timing import ratio, spread

from populora.core.config import Config


def adapter_steps(many: Config, one: Config, step: int, rounds: int) -> dict[str, Any]:
    """One step of ``many`` beside as many steps of ``one``, of different seeds, as have as many adapters together.

    The arms differ in the population alone, and in how much their adapters happen to write: that is told, and taken out in the ratios
    for each token.
    """
    if replace(many, population=one.population) != one:
        raise SystemExit("the two configurations must agree in everything but the population")
    names, copies = (name_of(many), name_of(one)), members(many) // members(one)
    with ExitStack() as stack:
        runs = {
            names[0]: [stack.enter_context(before_step(many, step))],
            names[1]: [stack.enter_context(before_step(replace(one, seed=one.seed + copy), step)) for copy in range(copies)],
        }
        first = {name: [replay.once() for replay in replays] for name, replays in runs.items()}
        rows: dict[str, list[dict[str, float]]] = {name: [] for name in names}

        def arm(name: str) -> None:
            rows[name].append(costs(runs[name], first[name]))

        _, disturbed = noise(lambda: take_turns([lambda name=name: arm(name) for name in names], rounds))
    times = {clock: {name: [row[clock] for row in rows[name]] for name in names} for clock in rows[names[0]][0]}
    return {
        "threads": many.threads, "step": step, "tokens of an adapter": {name: tokens_of(takens) for name, takens in first.items()},
        "seconds of an adapter's step": {clock: {name: spread(times[clock][name]) for name in names} for clock in ("wall", "cpu")},
        " / ".join(names): {clock: ratio(found, *names) for clock, found in times.items()}, "noise": disturbed,
    }  # fmt: skip


def costs(replays: list[Replay], first: list[Taken]) -> dict[str, float]:
    """Seconds for each adapter, and for each token that was sampled, of one step of each run."""
    found = [replay.once() for replay in replays]
    for before, again in zip(first, found, strict=True):
        check_same(before, again)
    adapters, tokens = sum(len(taken.record.members) for taken in found), sum(map(sampled, found))
    wall, cpu = sum(taken.wall for taken in found), sum(taken.cpu for taken in found)
    return {"wall": wall / adapters, "cpu": cpu / adapters, "wall, for each token": wall / tokens, "cpu, for each token": cpu / tokens}


def tokens_of(takens: list[Taken]) -> dict[str, float]:
    """Sampled and trained tokens of an adapter, on average."""
    adapters = sum(len(taken.record.members) for taken in takens)
    trained = sum(taken.record.tokens["update"] for taken in takens)
    return {"sampled": round(sum(map(sampled, takens)) / adapters, 1), "trained": round(trained / adapters, 1)}


def sampled(taken: Taken) -> int:
    return taken.record.tokens["propose"] + taken.record.tokens["solve"]


def members(config: Config) -> int:
    return config.population.teachers + config.population.students


def name_of(config: Config) -> str:
    return f"{config.population.teachers}T+{config.population.students}S"
