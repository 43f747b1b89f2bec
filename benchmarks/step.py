"""Measure a whole step of 4T+4S on the tiny base: beside the plain step, and for each adapter beside 1T+1S.

    python -m benchmarks.step [--rounds 5]        writes speed/step.json; about half an hour on two quiet cores

The plain step does the same work with PEFT, transformers and a process a program (`speed/plain_step.py`); the benchmark stops if its
adapters differ. Every round replays the same step of a real run. Seconds are wall time, and CPU time with all processes below.
"""

import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from benchmarks.measuring import ROOT, columns, machine, noise, options, ratio, spread, take_turns, timed, write_results
from benchmarks.speed.plain_step import PlainModel, Responses, plain_model, run_all, sample, train
from benchmarks.speed.replay import Replay, ReplayedStep, before_step, check_same

from populora.core.config import Config
from populora.core.config_file import load_config
from populora.domains.registry import sandbox_limits

TOLERANCE = 1e-4
"""Largest distance of the two steps' adapters, as a share of the update's length. Single weights differ by more of theirs: where a
gradient is a sum that cancels, AdamW turns its rounding into a step."""
ROWS = 128
"""Responses in one ``generate``: on the machine of step.json the fastest of 512 (all that a member has), 128, 64 and 32."""
STEP = 3
"""The step of the run that is measured: adapters and moments are trained before."""
Phases = dict[str, float]
"""Wall seconds, and ``cpu`` seconds of the whole."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__, Path(__file__).parent / "speed" / "step.json", rounds=5)
    parser.add_argument("--toy", action="store_true", help="a few short prompts, to see that it works: the figures mean nothing")
    args = parser.parse_args(arguments)
    warnings.filterwarnings("ignore", module="transformers|peft")
    configs = [load_config(ROOT / "configs" / name) for name in ("tiny_4t4s.toml", "tiny_1t1s.toml")]
    many, single = map(toy, configs) if args.toy else configs
    results = {
        "machine": machine("torch", "transformers", "peft"), "rounds": args.rounds, "toy": args.toy,
        "plain step": compare_with_plain(many, args.rounds), "adapter steps": compare_populations(many, single, args.rounds),
    }  # fmt: skip
    write_results(args.out, results)


def toy(config: Config) -> Config:
    """Shrink a run to seconds. So few tokens have many gradients that cancel: epsilon keeps AdamW from magnifying them."""
    small = replace(config.selfplay, prompts_per_type=1, rho_samples=2, max_response_tokens=48, seeds=16)
    teachers = (config.population.teachers + 1) // 2
    population, learner = replace(config.population, teachers=teachers, students=teachers), replace(config.learner, epsilon=1e-5)
    sandbox = replace(config.sandbox, cpu_seconds=2.0)  # on a busy machine too, a replay must get the same verdicts
    evaluation = replace(config.evaluation, every=0)
    return replace(config, selfplay=small, population=population, learner=learner, sandbox=sandbox, evaluation=evaluation)


def compare_with_plain(config: Config, rounds: int) -> dict[str, Any]:
    """Replay a step with populora and with the plain step, which take turns in beginning."""
    with before_step(config, STEP) as replay:
        first = replay.once()
        responses, plain = responses_by_slot(first), plain_model(config, replay.run.bank)
        distances: list[float] = []

        def ours() -> Phases:
            again = replay.once()
            check_same(first, again)
            return {**again.seconds, "cpu": again.cpu}

        def theirs() -> Phases:
            phases = plain_step(plain, replay, first, responses)
            distances.append(distance(plain.weights(), replay, first))
            return phases

        times, disturbance = noise(lambda: take_turns({"ours": ours, "plain": theirs}, rounds))
    return {
        "threads": config.threads, "step": STEP, "responses a generate": ROWS,
        "work": {"responses": sum(map(len, responses.values())), "sampled tokens": first.sampled, "programs": len(programs_of(first))},
        "distance / update": max(distances),
        "seconds": {arm: columns(rows) for arm, rows in times.items()},
        "plain / ours": {
            phase: ratio({arm: [row[phase] for row in rows] for arm, rows in times.items()}, "plain", "ours")
            for phase in ("whole", "cpu", "sample", "train")
        },
        "noise": disturbance,
    }  # fmt: skip


def responses_by_slot(step: ReplayedStep) -> Responses:
    """Return all responses of the step by slot, those with short prompts first."""
    slots = {member.id: member.slot for member in step.record.members}
    responses: Responses = {slot: [] for slot in slots.values()}
    for proposal in step.record.proposals:
        responses[slots[proposal.author]].append(proposal.generation)
    for attempt in step.record.attempts:
        responses[slots[attempt.student]].append(attempt.generation)
    return {slot: sorted(generations, key=lambda generation: len(generation.prompt_tokens)) for slot, generations in responses.items()}


def programs_of(step: ReplayedStep) -> list[Any]:
    return [job for job in step.jobs if job.mode == "run"]


def plain_step(plain: PlainModel, replay: Replay, step: ReplayedStep, responses: Responses) -> Phases:
    """Do the plain step, with one process a program where populora has two."""
    config = replay.run.config
    plain.restore(replay.adapters)
    phases = {
        "sample": timed(lambda: sample(plain, responses, ROWS, config.selfplay.max_response_tokens)),
        "verify": timed(lambda: run_all(programs_of(step), config.sandbox.workers, sandbox_limits(config))),
        "train": timed(lambda: train(plain, step.rows, config.learner)),
    }
    seconds = {phase: wall for phase, (_, wall, _) in phases.items()}
    return {**seconds, "whole": sum(seconds.values()), "cpu": sum(cpu for _, _, cpu in phases.values())}


def distance(weights: torch.Tensor, replay: Replay, step: ReplayedStep) -> float:
    """Return the largest distance of the two steps' adapters over their update. Stops if they cannot come from the same work."""
    distances, updates = (weights - step.after).norm(dim=1), (step.after - replay.adapters["master"]).norm(dim=1)
    if not bool((distances <= TOLERANCE * updates).all()):
        raise SystemExit(f"the adapters are {distances.tolist()} apart after updates of {updates.tolist()}: not the same work")
    return float((distances / updates.clamp(min=1e-30)).max())


def compare_populations(many: Config, single: Config, rounds: int) -> dict[str, Any]:
    """Replay a step of ``many`` and steps of ``single``, of different seeds, that have as many adapters together.

    The two differ in the population alone, and in the length of their responses, which the ratios for each token take out.
    """
    if replace(many, population=single.population) != single:
        raise SystemExit("the two configurations must agree in everything but the population")
    names = [f"{config.population.teachers}T+{config.population.students}S" for config in (many, single)]
    copies = many.population.teachers // single.population.teachers
    with ExitStack() as stack:
        seeds = {names[0]: [many], names[1]: [replace(single, seed=single.seed + copy) for copy in range(copies)]}
        replays = {name: [stack.enter_context(before_step(config, STEP)) for config in configs] for name, configs in seeds.items()}
        first = {name: [replay.once() for replay in runs] for name, runs in replays.items()}
        cases = {name: lambda name=name: costs(replays[name], first[name]) for name in names}
        rows, disturbance = noise(lambda: take_turns(cases, rounds))
    times = {measure: {name: [row[measure] for row in rows[name]] for name in names} for measure in rows[names[0]][0]}
    return {
        "threads": many.threads, "step": STEP, "tokens of an adapter": {name: tokens_of(steps) for name, steps in first.items()},
        "seconds of an adapter's step": {name: spread(times["wall"][name]) for name in names},
        " / ".join(names): {measure: ratio(seconds, *names) for measure, seconds in times.items()}, "noise": disturbance,
    }  # fmt: skip


def costs(replays: Sequence[Replay], first: Sequence[ReplayedStep]) -> dict[str, float]:
    """Return wall seconds for each adapter, and for each token that was sampled, of one step of each run."""
    steps = [replay.once() for replay in replays]
    for before, again in zip(first, steps, strict=True):
        check_same(before, again)
    wall = sum(step.wall for step in steps)
    return {"wall": wall / adapters_of(steps), "wall, for each token": wall / sum(step.sampled for step in steps)}


def adapters_of(steps: Sequence[ReplayedStep]) -> int:
    return sum(len(step.record.members) for step in steps)


def tokens_of(steps: Sequence[ReplayedStep]) -> float:
    """Return the sampled tokens of an adapter, on average."""
    return round(sum(step.sampled for step in steps) / adapters_of(steps), 1)


if __name__ == "__main__":
    main()
