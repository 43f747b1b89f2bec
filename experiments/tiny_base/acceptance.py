"""Acceptance tests of the tiny base: it proposes valid and varied problems, solves them at every rate, and harder problems pay.

The base itself (an untrained adapter, B = 0) plays one large step against itself. References come from the shipped seeds and from the
held-out suite, so that proposals of every size are requested. Invalid and unsolved proposals count with their rewards.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from experiments.tiny_base.subjects import SUBJECTS

from populora.core.rng import stream
from populora.core.types import Kind, Measures, Problem, Proposal, TaskType, task_types
from populora.domains.registry import load_domain
from populora.tasks.parsing import reasons
from populora.training.matchmaking import match
from populora.training.propose import proposal_requests
from populora.training.rewards import cross_evaluate
from populora.training.rollout import rollout
from populora.training.run import Run

RARE = 0.01


@dataclass(frozen=True)
class Scored:
    """One proposal: the size of its program (as written, also when invalid), rho and teacher reward."""

    task: TaskType
    size: int
    valid: bool
    rejection: str
    rho: float | None
    reward: float | None
    """None where the problem was void."""
    direct: tuple[bool, ...] = ()
    """Verdicts of the attempts that answered at once."""
    reasoned: tuple[bool, ...] = ()
    """Verdicts of the attempts that reasoned first."""
    program: tuple[str, Measures] | None = None
    """Text and complexity of a valid program that the base wrote itself (those of kind ``f`` describe another's)."""


def play(run: Run, references: Sequence[Problem]) -> list[Scored]:
    """Propose, solve and score once, with references from ``references`` beside the seeds."""
    measures = run.verifier.measures(references)
    for problem, measure in zip(references, measures, strict=True):
        run.buffer.add(problem, measure.fingerprint)
    matchups = match(run.population, run.config, 1)
    rollouts = rollout(run, 1, matchups)
    proposals, attempts = rollouts.proposals, rollouts.attempts
    outcome = cross_evaluate(run.config, matchups, proposals, attempts, rollouts.trained)
    verdicts: dict[tuple[str, bool], list[bool]] = {}
    for attempt in attempts:
        verdicts.setdefault((attempt.problem.id, reasons(attempt.generation.text)), []).append(attempt.correct)
    scored: list[Scored] = []
    sources = {(request.author, request.group): request.source.program for request in proposal_requests(run, 1)}
    for p, rho, reward in zip(proposals, outcome.rhos, outcome.teacher_rewards, strict=True):
        if p.problem and p.measures:
            direct, reasoned = (tuple(verdicts.get((p.problem.id, style), ())) for style in (False, True))
            program = None if p.task.kind is Kind.PROGRAM else (p.problem.program, p.measures)
            size = SUBJECTS[p.task.domain].size(p.problem.program)
            scored.append(Scored(p.task, size, True, "", rho, reward, direct, reasoned, program))
        else:
            scored.append(Scored(p.task, _rejected_size(p, sources[p.author, p.group]), False, p.rejection, rho, reward))
    return scored


def _rejected_size(proposal: Proposal, shown: str) -> int:
    """The size of what was proposed; for kind ``f``, of the program that was ``shown``."""
    subject = SUBJECTS[proposal.task.domain]
    written = proposal.generation.text.partition(f"```{subject.fence}\n")[2].partition("```")[0]
    return subject.size(shown if proposal.task.kind is Kind.PROGRAM else written)


def report(scored: Sequence[Scored], domain: str, seed: int = 0) -> dict[str, dict]:
    """Per type: validity (all, longest quarter), solve rate, histogram of rho, reward by size and its slope; and `variety`."""
    unit = SUBJECTS[domain].unit
    by_task = {task: _of_type([item for item in scored if item.task is task], unit, seed) for task in task_types([domain])}
    return {**by_task, "programs": variety([item.program for item in scored if item.program], domain)}


def variety(written: Sequence[tuple[str, Measures]], domain: str) -> dict[str, dict]:
    """Measure valid programs: the share that uses each construct, and the 5 %, 50 % and 95 % quantiles of each measure."""
    patterns = SUBJECTS[domain].constructs
    shares = {name: np.mean([bool(re.search(pattern, program, re.M)) for program, _ in written]) for name, pattern in patterns.items()}
    return {
        "constructs": {name: round(float(share), 4) for name, share in shares.items()},
        "quantiles": {
            name: [float(q) for q in np.quantile([measures.values[place] for _, measures in written], (0.05, 0.5, 0.95))]
            for place, name in enumerate(load_domain(domain).metric_names)
        },
    }


def _of_type(all_items: Sequence[Scored], unit: tuple[str, str], seed: int) -> dict:
    items = [item for item in all_items if item.reward is not None]
    rewards = np.array([item.reward for item in items])
    sizes = np.array([item.size for item in items])
    valid = np.array([item.valid for item in items])
    rhos = np.array([item.rho for item in items if item.rho is not None])
    longest = sizes >= np.quantile(sizes, 0.75)
    low, high = _slope_interval(sizes, rewards, seed)
    rejections = Counter(item.rejection for item in items if not item.valid)
    return {
        "proposals": len(items),
        "valid": round(float(valid.mean()), 4),
        "valid_longest_quarter": round(float(valid[longest].mean()), 4),
        f"longest_quarter_from_{unit[1]}": int(sizes[longest].min()),
        f"mean_{unit[1]}": round(float(sizes.mean()), 3),
        "solve_rate": round(float(rhos.mean()), 4),
        "rho_histogram": np.histogram(rhos, bins=np.linspace(-1 / 16, 17 / 16, 10))[0].tolist(),
        "styles": _styles(items, seed),
        f"reward_by_{unit[1]}": _by_size(sizes, rewards),
        f"reward_slope_per_{unit[0]}": round(float(np.polyfit(sizes, rewards, 1)[0]), 4),
        "reward_slope_interval_95": [round(low, 4), round(high, 4)],
        "rejections": dict(rejections.most_common()),
    }


def _styles(items: Sequence[Scored], seed: int, draws: int = 1000) -> dict:
    """Share of attempts that reason, accuracy of both styles, and a 95 % interval of their difference (bootstrap over problems)."""
    rows = [(sum(item.direct), len(item.direct), sum(item.reasoned), len(item.reasoned)) for item in items if item.valid]
    counts = np.array(rows, dtype=float).reshape(-1, 4)
    right_direct, direct, right_reasoned, reasoned = counts.sum(0)
    if not direct or not reasoned:
        return {"reasoning_share": float(reasoned > 0)}
    rng, differences = stream(seed, "style-bootstrap"), []
    for _ in range(draws):
        a, b, c, d = counts[rng.integers(0, len(counts), len(counts))].sum(0)
        differences.append(c / max(d, 1) - a / max(b, 1))
    return {
        "reasoning_share": round(float(reasoned / (direct + reasoned)), 4),
        "accuracy_direct": round(float(right_direct / direct), 4),
        "accuracy_reasoned": round(float(right_reasoned / reasoned), 4),
        "difference_interval_95": [round(float(np.quantile(differences, q)), 4) for q in (0.025, 0.975)],
    }


def _by_size(sizes: np.ndarray, rewards: np.ndarray) -> list[dict]:
    edges = np.unique(np.quantile(sizes, np.linspace(0, 1, 6)).astype(int))
    groups = [(low, high) for low, high in pairwise(edges)]
    rows = []
    for low, high in groups:
        inside = (sizes >= low) & ((sizes < high) if high != edges[-1] else (sizes <= high))
        rows.append({"from": int(low), "to": int(high), "n": int(inside.sum()), "reward": round(float(rewards[inside].mean()), 4)})
    return rows


def _slope_interval(sizes: np.ndarray, rewards: np.ndarray, seed: int, draws: int = 1000) -> tuple[float, float]:
    """95 % bootstrap interval of the least-squares slope of reward over size."""
    rng = stream(seed, "slope-bootstrap")
    slopes = []
    for _ in range(draws):
        chosen = rng.integers(0, len(sizes), len(sizes))
        slopes.append(np.polyfit(sizes[chosen], rewards[chosen], 1)[0])
    return float(np.quantile(slopes, 0.025)), float(np.quantile(slopes, 0.975))


def passed(results: dict[str, dict], domain: str) -> dict[str, bool]:
    """Check the bars, one name each. Programs use every construct in one of a hundred, and reach both ends of every measure."""
    programs, subject = results["programs"], SUBJECTS[domain]
    low, high = subject.solve_rates
    checks = {
        "programs use every construct": all(share >= RARE for share in programs["constructs"].values()),
        "programs grow and shrink on every measure": all(low < high for low, _, high in programs["quantiles"].values()),
    }
    for task in task_types([domain]):
        measured = results[task]
        checks[f"{task} valid >= {subject.valid:.2f}"] = measured["valid"] >= subject.valid
        checks[f"{task} valid, longest quarter >= {subject.valid - 0.05:.2f}"] = measured["valid_longest_quarter"] >= subject.valid - 0.05
        checks[f"{task} solve rate {low:.2f} to {high:.2f}"] = low <= measured["solve_rate"] <= high
        checks[f"{task} problems at every rate"] = all(count > 0 for count in measured["rho_histogram"])
        checks[f"{task} reward rises with {subject.unit[1]}"] = measured["reward_slope_interval_95"][0] > 0
        if task.kind is not Kind.PROGRAM:  # a program is induced without reasoning
            styles = measured["styles"]
            checks[f"{task} reasoning is a minority habit"] = 0 < styles["reasoning_share"] < 0.5
            checks[f"{task} reasoning is more accurate"] = styles.get("difference_interval_95", [0])[0] > 0
    return checks
