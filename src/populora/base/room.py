"""Ship gate 2 of the tiny base: is there room to learn that greedy decoding shows?

A student adapter is trained alone on a fixed distribution of generated problems (levels 2 to 6, never held out), with the
run's own sampler, verifier and learner. Greedy accuracy and answer length on the held-out suite before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from scipy import stats

from populora.base.build import problem_of
from populora.base.samples import draw_sample
from populora.batches import Sample, member_rows
from populora.config import Config
from populora.heldout import load_held_out
from populora.rl.rewards import student_reward
from populora.rng import stream
from populora.state import Run
from populora.tasks.parsing import reasons
from populora.tasks.render import solve_prompt
from populora.tasks.verifier import AttemptEntry
from populora.training import prepared
from populora.types import TASK_TYPES, Attempt, Problem, Request

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
    attempts = _attempts(run, slot, problems, samples=1, temperature=0.0, name=("greedy",))
    right = {task.value: np.mean([a.correct for a in attempts if a.problem.task is task]) for task in TASK_TYPES}
    accuracy = {name: round(float(value), 4) for name, value in (*right.items(), ("all", np.mean([a.correct for a in attempts])))}
    thinking = [reasons(attempt.generation.text) for attempt in attempts]
    return Score(accuracy, round(float(np.mean([len(a.generation.tokens) for a in attempts])), 2), round(float(np.mean(thinking)), 4))


def _attempts(run: Run, slot: int, problems: Sequence[Problem], samples: int, temperature: float, name: tuple) -> list[Attempt]:
    requests = [Request(solve_prompt(run.prompts, p), slot, samples, (*name, index)) for index, p in enumerate(problems)]
    limit = run.config.selfplay.max_response_tokens
    responses = run.sampler.generate(requests, limit, temperature, run.prompts.stop)
    pairs = zip(problems, responses, strict=True)
    return run.verifier.judge([AttemptEntry("S0", problem, one, False) for problem, many in pairs for one in many])


def train_alone(run: Run, steps: int, per_type: int, samples: int, log: Callable[[dict], None]) -> None:
    """REINFORCE++-baseline on fresh problems of the fixed distribution each step; updates slot 0."""
    for step in range(1, steps + 1):
        rng = stream(run.config.seed, "room", step)
        problems = [
            problem_of(rng, task, f"room-{step}-{task}-{index}", "generator", draw_sample(rng, int(rng.choice(LEVELS))))
            for task in TASK_TYPES
            for index in range(per_type)
        ]
        attempts = _attempts(run, 0, problems, samples, 1.0, ("room", step))
        rewards = [student_reward(attempt.formatted, attempt.correct, run.config.rewards) for attempt in attempts]
        rows = [
            Sample(attempt.generation, reward, attempt.problem.id, "solve", attempt.problem.task)
            for attempt, reward in zip(attempts, rewards, strict=True)
        ]
        run.learner.update(member_rows(0, rows, run.config.learner.whitening))
        log({
            "step": step,
            "solve": round(float(np.mean([a.correct for a in attempts])), 4),
            "tokens": round(float(np.mean([len(a.generation.tokens) for a in attempts])), 2),
        })  # fmt: skip


def measure_room(config: Config, steps: int, per_type: int, samples: int, log: Callable[[dict], None]) -> dict:
    """Greedy scores before and after ``steps`` steps of training alone, with one seed."""
    with prepared(config) as run:
        suite = load_held_out(config.base, per_type=SUITE_PER_TYPE)
        before = greedy_score(run, 0, suite)
        train_alone(run, steps, per_type, samples, log)
        after = greedy_score(run, 0, suite)
    gain = round(after.accuracy["all"] - before.accuracy["all"], 4)
    return {"seed": config.seed, "base_sha256": run.facts["base_sha256"], "before": asdict(before), "after": asdict(after), "gain": gain}


def room_passed(results: Sequence[dict]) -> dict[str, bool]:
    """The gate's bars over the seeds: gain of 10 points, its 95 % interval (Student's t) above 0, longer answers."""
    gains = np.array([result["gain"] for result in results])
    longer = np.array([result["after"]["tokens"] - result["before"]["tokens"] for result in results])
    several = len(gains) >= 2
    low = stats.t.interval(0.95, len(gains) - 1, gains.mean(), max(stats.sem(gains), 1e-9))[0] if several else float("nan")
    return {
        "mean gain >= 0.10": bool(gains.mean() >= 0.10),
        "interval of the gain excludes 0": bool(low > 0),
        "answers are longer": bool((longer > 0).all()),
    }
