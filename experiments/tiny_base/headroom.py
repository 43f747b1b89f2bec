"""The headroom test of the tiny base: training raises greedy held-out accuracy.

A student adapter is trained alone on a fixed distribution of generated problems (levels 2 to 6, never held out), with the
run's own sampler, verifier and learner. Greedy accuracy and answer length on the held-out suite before and after.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from experiments.tiny_base.build import problem_of
from experiments.tiny_base.samples import draw_sample
from scipy import stats

from populora.core.config import Config
from populora.core.rng import stream
from populora.core.types import CODE_TYPES, Problem
from populora.tasks.parsing import reasons
from populora.training.evaluation import load_held_out
from populora.training.loop import build_run
from populora.training.run import Run
from populora.training.solve import solve, solve_request
from populora.training.train_rows import train_on_attempts

LEVELS = (2, 3, 4, 5, 6)
SUITE_PER_TYPE = 216


@dataclass(frozen=True)
class Score:
    """Greedy results on a suite: accuracy by task type and over all, mean response tokens, share that reasons."""

    accuracy: dict[str, float]
    tokens: float
    reasoning: float


def greedy_score(run: Run, slot: int, problems: Sequence[Problem]) -> Score:
    """Greedy accuracy of one slot."""
    requests = [solve_request(run, problem, slot, 1, ("greedy", index)) for index, problem in enumerate(problems)]
    attempts = [attempt for (attempt,) in solve(run, requests, temperature=0.0)]
    right = {task: np.mean([a.correct for a in attempts if a.problem.task is task]) for task in CODE_TYPES}
    accuracy = {name: round(float(value), 4) for name, value in (*right.items(), ("all", np.mean([a.correct for a in attempts])))}
    thinking = [reasons(attempt.generation.text) for attempt in attempts]
    return Score(accuracy, round(float(np.mean([len(a.generation.tokens) for a in attempts])), 2), round(float(np.mean(thinking)), 4))


def train_alone(run: Run, steps: int, per_type: int, samples: int, log: Callable[[dict], None]) -> None:
    """REINFORCE++-baseline on fresh problems of the fixed distribution each step; updates slot 0."""
    for step in range(1, steps + 1):
        rng = stream(run.config.seed, "room", step)
        problems = [
            problem_of(rng, task, f"room-{step}-{task}-{index}", "generator", draw_sample(rng, int(rng.choice(LEVELS))))
            for task in CODE_TYPES
            for index in range(per_type)
        ]
        requests = [solve_request(run, problem, 0, samples, ("room", step, index)) for index, problem in enumerate(problems)]
        attempts = [attempt for group in solve(run, requests) for attempt in group]
        train_on_attempts(run, {0: attempts})
        log({
            "step": step,
            "solve": round(float(np.mean([a.correct for a in attempts])), 4),
            "tokens": round(float(np.mean([len(a.generation.tokens) for a in attempts])), 2),
        })  # fmt: skip


def measure_headroom(config: Config, steps: int, per_type: int, samples: int, log: Callable[[dict], None]) -> dict:
    """Greedy scores before and after ``steps`` steps of training alone, with one seed."""
    with build_run(config) as run:
        suite = load_held_out(config.base, per_type=SUITE_PER_TYPE)
        before = greedy_score(run, 0, suite)
        train_alone(run, steps, per_type, samples, log)
        after = greedy_score(run, 0, suite)
    gain = round(after.accuracy["all"] - before.accuracy["all"], 4)
    return {
        "seed": config.seed,
        "base_sha256": run.fingerprints["base_sha256"],
        "before": asdict(before),
        "after": asdict(after),
        "gain": gain,
    }


def passed(results: Sequence[dict]) -> dict[str, bool]:
    """Check the bars over the seeds: gain of 10 points, its 95 % interval (Student's t) above 0, longer answers."""
    gains = np.array([result["gain"] for result in results])
    longer = np.array([result["after"]["tokens"] - result["before"]["tokens"] for result in results])
    several = len(gains) >= 2
    low = stats.t.interval(0.95, len(gains) - 1, gains.mean(), max(stats.sem(gains), 1e-9))[0] if several else float("nan")
    return {
        "mean gain >= 0.10": bool(gains.mean() >= 0.10),
        "interval of the gain excludes 0": bool(low > 0),
        "answers are longer": bool((longer > 0).all()),
    }
