"""Acceptance tests of the tiny base: it proposes valid and varied problems, solves them at every rate, and harder problems pay.

The base itself (an untrained adapter, B = 0) plays one large step against itself. References come from the shipped seeds and from the
held-out suite, so that proposals of every length are requested. Invalid and unsolved proposals count with their rewards.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from populora.core.rng import stream
from populora.core.types import CODE_TYPES, Measures, Problem, Proposal, TaskType
from populora.domains.registry import load_domain
from populora.tasks.parsing import reasons
from populora.training.matchmaking import match
from populora.training.propose import proposal_requests
from populora.training.rewards import cross_evaluate
from populora.training.rollout import rollout
from populora.training.run import Run

CONSTRUCTS = {
    "helper function": r"^def (?!f\()", "branch": r"^ +(if|elif) ", "loop": r"^ +(for|while) ", "comprehension": r"[\[(].* for .* in ",
    "string": r"'", "list": r"(^|[^\w\])])\[", "dict": r"\{|\bd\[", "tuple": r"(return|=) \(\w+, |tuple\(",
}  # fmt: skip
"""How the text of a program shows that it uses each. Programs of a model are never parsed in this process."""
MEASURES = load_domain("python").metric_names
RARE = 0.01


@dataclass(frozen=True)
class Scored:
    """One proposal: lines of code of its program (as written, also when invalid), rho and teacher reward."""

    task: TaskType
    lines: int
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
    """Text and complexity of a valid program that the base wrote itself (code_f describes another's)."""


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
    scored = []
    sources = {(request.author, request.group): request.source.program for request in proposal_requests(run, 1)}
    for p, rho, reward in zip(proposals, outcome.rhos, outcome.teacher_rewards, strict=True):
        if p.problem and p.measures:
            direct, reasoned = (tuple(verdicts.get((p.problem.id, style), ())) for style in (False, True))
            program = None if p.task is TaskType.CODE_F else (p.problem.program, p.measures)
            scored.append(Scored(p.task, p.measures.values[MEASURES.index("loc")], True, "", rho, reward, direct, reasoned, program))
        else:
            scored.append(Scored(p.task, _rejected_lines(p, sources[p.author, p.group]), False, p.rejection, rho, reward))
    return scored


def _rejected_lines(proposal: Proposal, shown: str) -> int:
    """Lines of what was proposed; for code_f, of the program that was ``shown``."""
    text = shown if proposal.task is TaskType.CODE_F else proposal.generation.text.partition("```python\n")[2].partition("```")[0]
    return sum(bool(line.strip()) for line in text.splitlines())


def report(scored: Sequence[Scored], seed: int = 0) -> dict[str, dict]:
    """Per type: validity (all, longest quarter), solve rate, histogram of rho, reward by lines and its slope; and `variety`."""
    by_task = {task: _of_type([item for item in scored if item.task is task], seed) for task in CODE_TYPES}
    return {**by_task, "programs": variety([item.program for item in scored if item.program])}


def variety(written: Sequence[tuple[str, Measures]]) -> dict[str, dict]:
    """Measure valid programs: the share that uses each construct, and the 5 %, 50 % and 95 % quantiles of each measure."""
    shares = {name: np.mean([bool(re.search(pattern, program, re.M)) for program, _ in written]) for name, pattern in CONSTRUCTS.items()}
    return {
        "constructs": {name: round(float(share), 4) for name, share in shares.items()},
        "quantiles": {
            name: [float(q) for q in np.quantile([measures.values[MEASURES.index(name)] for _, measures in written], (0.05, 0.5, 0.95))]
            for name in MEASURES
        },
    }


def _of_type(all_items: Sequence[Scored], seed: int) -> dict:
    items = [item for item in all_items if item.reward is not None]
    rewards = np.array([item.reward for item in items])
    lines = np.array([item.lines for item in items])
    valid = np.array([item.valid for item in items])
    rhos = np.array([item.rho for item in items if item.rho is not None])
    longest = lines >= np.quantile(lines, 0.75)
    low, high = _slope_interval(lines, rewards, seed)
    rejections = Counter(item.rejection for item in items if not item.valid)
    return {
        "proposals": len(items),
        "valid": round(float(valid.mean()), 4),
        "valid_longest_quarter": round(float(valid[longest].mean()), 4),
        "longest_quarter_from_lines": int(lines[longest].min()),
        "mean_lines": round(float(lines.mean()), 3),
        "solve_rate": round(float(rhos.mean()), 4),
        "rho_histogram": np.histogram(rhos, bins=np.linspace(-1 / 16, 17 / 16, 10))[0].tolist(),
        "styles": _styles(items, seed),
        "reward_by_lines": _by_lines(lines, rewards),
        "reward_slope_per_line": round(float(np.polyfit(lines, rewards, 1)[0]), 4),
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


def _by_lines(lines: np.ndarray, rewards: np.ndarray) -> list[dict]:
    edges = np.unique(np.quantile(lines, np.linspace(0, 1, 6)).astype(int))
    groups = [(low, high) for low, high in pairwise(edges)]
    rows = []
    for low, high in groups:
        inside = (lines >= low) & ((lines < high) if high != edges[-1] else (lines <= high))
        rows.append({"from": int(low), "to": int(high), "n": int(inside.sum()), "reward": round(float(rewards[inside].mean()), 4)})
    return rows


def _slope_interval(lines: np.ndarray, rewards: np.ndarray, seed: int, draws: int = 1000) -> tuple[float, float]:
    """95 % bootstrap interval of the least-squares slope of reward over lines."""
    rng = stream(seed, "slope-bootstrap")
    slopes = []
    for _ in range(draws):
        chosen = rng.integers(0, len(lines), len(lines))
        slopes.append(np.polyfit(lines[chosen], rewards[chosen], 1)[0])
    return float(np.quantile(slopes, 0.025)), float(np.quantile(slopes, 0.975))


def passed(results: dict[str, dict]) -> dict[str, bool]:
    """Check the bars, one name each. Programs use every construct in one of a hundred, and reach both ends of every measure."""
    programs = results["programs"]
    checks = {
        "programs use every construct": all(share >= RARE for share in programs["constructs"].values()),
        "programs grow and shrink on every measure": all(low < high for low, _, high in programs["quantiles"].values()),
    }
    for task in CODE_TYPES:
        measured = results[task]
        checks[f"{task} valid >= 0.95"] = measured["valid"] >= 0.95
        checks[f"{task} valid, longest quarter >= 0.90"] = measured["valid_longest_quarter"] >= 0.90
        checks[f"{task} solve rate 0.45 to 0.80"] = 0.45 <= measured["solve_rate"] <= 0.80
        checks[f"{task} problems at every rate"] = all(count > 0 for count in measured["rho_histogram"])
        checks[f"{task} reward rises with lines"] = measured["reward_slope_interval_95"][0] > 0
        if task is not TaskType.CODE_F:  # a function is induced without reasoning
            styles = measured["styles"]
            checks[f"{task} reasoning is a minority habit"] = 0 < styles["reasoning_share"] < 0.5
            checks[f"{task} reasoning is more accurate"] = styles.get("difference_interval_95", [0])[0] > 0
    return checks
