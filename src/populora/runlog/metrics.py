"""The paper's metrics of one step (Figures 3 to 5 and the appendices on coverage, types, diagnostics, length): pure.

The vocabulary is fixed: ``group/metric``, then ``/type``, ``/member`` or ``/member/type`` where it is broken down, as in
``student/solve_rate/S1/code_o``. ``teacher/…`` is about proposing and ``student/…`` about solving, whoever does it: the
single agent ``A0`` appears under both, so both arms have the same names and definitions. What is undefined in a step
(the difficulty of a teacher without valid problems) is absent. A metric over all members is the mean over their samples.

Readings: solve rate, format rate, length and difficulty count the attempts at the step's own problems (``rho``'s attempts)
without void ones and without those that only fill a batch; difficulty is 1 - mean rho over the teacher's valid problems.
Complexity and duplicates (programs that the buffer held already) are about programs that were written in the step: code_f,
which is given its program, has its own ``/code_f`` entries of complexity and no part in the means. Archive coverage and the
paper's baseline proxy stand side by side, for both arms.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping
from math import isfinite
from statistics import fmean
from typing import TYPE_CHECKING

from populora.types import Attempt, Proposal, TaskType

if TYPE_CHECKING:
    from populora.selfplay import StepRecord

COMPLEXITY = ("ast_depth", "cyclomatic", "loc", "variables")
UPDATE = ("loss", "grad_norm", "entropy", "clip_fraction", "kl", "ess", "mean_difference", "max_difference", "skipped")

Rows = Iterable[tuple[str, str, float]]
"""(member, task type, value) of one sample each."""


def step_metrics(record: StepRecord) -> dict[str, float]:
    """All metrics of a step that do not depend on the clock; equal seeds give equal values."""
    values = {**_teaching(record), **_solving(record), **_matchups(record), **_ratings(record), **_learning(record)}
    values |= {f"archive/{name}": value for name, value in record.coverage.items()}
    values |= {f"held_out/{name}": value for name, value in record.held_out.items()}
    values |= _mean("held_out/accuracy", (value for name, value in record.held_out.items() if name.endswith("/all")))
    values |= {f"tokens/{phase}": float(count) for phase, count in record.tokens.items()}
    values["evolution/children"] = float(len(record.children))
    return {name: float(value) for name, value in values.items() if isfinite(value)}


def step_timing(record: StepRecord) -> dict[str, float]:
    """Seconds per phase and of the whole step, and sampled or trained tokens per second where a phase has them."""
    timing = {f"seconds/{phase}": seconds for phase, seconds in record.seconds.items()}
    timing["seconds/step"] = sum(record.seconds.values())
    timing |= {f"seconds_beside/{phase}": seconds for phase, seconds in record.beside.items()}
    rates = {phase: count / record.seconds[phase] for phase, count in record.tokens.items() if record.seconds.get(phase)}
    return timing | {f"tokens_per_second/{phase}": rate for phase, rate in rates.items()}


def _teaching(record: StepRecord) -> dict[str, float]:
    proposals = record.proposals
    scored = [(p, reward, rho) for p, reward, rho in zip(proposals, record.teacher_rewards, record.rhos, strict=True) if reward is not None]
    written = [p for p in proposals if p.problem and p.task is not TaskType.CODE_F]
    described = [p for p in proposals if p.problem and p.task is TaskType.CODE_F]
    rated = [(p, rho) for p, _, rho in scored if rho is not None]
    values = {
        **_spread("teacher/validity", (_row(p, p.problem is not None) for p in proposals)),
        **_spread("teacher/format_rate", (_row(p, p.formatted) for p in proposals)),
        **_spread("teacher/reward", (_row(p, reward) for p, reward, _ in scored)),
        **_spread("teacher/difficulty", (_row(p, 1.0 - rho) for p, rho in rated)),
        **_spread("teacher/rho_zero", (_row(p, rho == 0.0) for p, rho in rated)),
        **_spread("teacher/rho_one", (_row(p, rho == 1.0) for p, rho in rated)),
        **_spread("teacher/response_length", (_row(p, len(p.generation.tokens)) for p in proposals)),
        **_spread("teacher/clipped", (_row(p, not p.generation.stopped) for p in proposals)),
        **_spread("teacher/duplicates", (_row(p, p.problem.id in record.repeats) for p in written if p.problem)),
        **_zero_variance("teacher", (((p.author, p.group), p.author, p.task, reward) for p, reward, _ in scored)),
        **_reasons("teacher/rejected", (p.rejection for p in proposals if p.rejection)),
    }
    for name in COMPLEXITY:
        given = _spread(f"teacher/{name}", _complexity(record, described, name))
        values |= {key: value for key, value in given.items() if key.endswith(TaskType.CODE_F.value)}
        values |= _spread(f"teacher/{name}", _complexity(record, written, name))
    return values


def _complexity(record: StepRecord, proposals: Iterable[Proposal], name: str) -> Rows:
    for proposal in proposals:
        if proposal.problem:
            yield _row(proposal, getattr(record.measures[proposal.problem.id], name))


def _solving(record: StepRecord) -> dict[str, float]:
    scored = list(zip(record.attempts, record.student_rewards, record.trained, strict=True))
    counted = [a for a in record.attempts if not (a.void or a.filled)]
    trained = [(a, reward) for a, reward, used in scored if used]
    return {
        **_spread("student/solve_rate", (_row(a, a.correct) for a in counted)),
        # Whose problems break the format of those who solve them: it counts as unsolved, so a teacher would be paid for it.
        **_spread("teacher/rho_format_fail", ((a.problem.author, a.problem.task.value, float(not a.formatted)) for a in counted)),
        **_spread("student/format_rate", (_row(a, a.formatted) for a in counted)),
        # Answers that stand outside their fence, and what they solve if `tasks.extraction` lets them count: never hidden in the rate.
        **_spread("student/lenient", (_row(a, a.lenient) for a in counted)),
        **_spread("student/lenient_solved", (_row(a, a.lenient and a.correct) for a in counted)),
        **_spread("student/response_length", (_row(a, len(a.generation.tokens)) for a in counted)),
        **_spread("student/clipped", (_row(a, not a.generation.stopped) for a in counted)),
        **_spread("student/reward", (_row(a, reward) for a, reward in trained)),
        **_spread("student/filled", (_row(a, a.filled) for a, _ in trained)),
        **_spread("student/void", (_row(a, a.void) for a in record.attempts)),
        **_zero_variance("student", (((a.student, a.problem.id), a.student, a.problem.task, reward) for a, reward in trained)),
        **_reasons("student/failed", (a.reason for a in counted if not a.correct and a.reason)),
    }


def _matchups(record: StepRecord) -> dict[str, float]:
    played = [matchup for matchup in record.matchups if matchup.outcome != "none"]
    values = _mean("matchup/student_wins", (matchup.outcome == "student" for matchup in played))
    values |= _mean("matchup/expected", (matchup.expected for matchup in played))
    values |= _mean("matchup/mean_rho", (matchup.mean_rho for matchup in played if matchup.mean_rho is not None))
    return values | {"matchup/played": float(len(played))}


def _ratings(record: StepRecord) -> dict[str, float]:
    values: dict[str, float] = {}
    for name in ("mu", "sigma"):
        of_role = defaultdict(list)
        for member in record.members:
            values[f"rating/{name}/{member.id}"] = getattr(member.rating, name)
            of_role[member.role.value].append(getattr(member.rating, name))
        values |= {f"rating/{name}/{role}": fmean(found) for role, found in of_role.items()}
    return values


def _learning(record: StepRecord) -> dict[str, float]:
    """Diagnostics per member, with means per role over the members that were updated."""
    role = {member.id: member.role.value for member in record.members}
    values: dict[str, float] = {}
    for name in UPDATE:
        of_role = defaultdict(list)
        for member, update in record.updates.items():
            if name == "skipped" or not update.skipped:
                values[f"learner/{name}/{member}"] = float(getattr(update, name))
                of_role[role[member]].append(float(getattr(update, name)))
        values |= {f"learner/{name}/{key}": fmean(found) for key, found in of_role.items()}
    return values


def _zero_variance(role: str, samples: Iterable[tuple[Hashable, str, str, float]]) -> dict[str, float]:
    """Share of prompt groups of two or more whose rewards are all equal: they teach nothing (a group of one is not centred)."""
    rewards, owner = defaultdict(list), {}
    for group, member, task, reward in samples:
        rewards[group].append(reward)
        owner[group] = (member, str(task))
    compared = {group: len(set(found)) == 1 for group, found in rewards.items() if len(found) > 1}
    return _spread(f"{role}/zero_variance", ((*owner[group], float(equal)) for group, equal in compared.items()))


def _reasons(name: str, reasons: Iterable[str]) -> dict[str, float]:
    """Counts by reason, such as ``timeout:cpu``; a third part (which exception) is detail and stays in the records."""
    counts = Counter(":".join(reason.split(":")[:2]).replace(" ", "_") for reason in reasons)
    return {f"{name}/{reason}": float(count) for reason, count in counts.items()}


def _row(sample: Proposal | Attempt, value: float) -> tuple[str, str, float]:
    if isinstance(sample, Proposal):
        return sample.author, sample.task.value, float(value)
    return sample.student, sample.problem.task.value, float(value)


def _spread(name: str, rows: Rows) -> dict[str, float]:
    """Means over all samples, by type, by member, and by both."""
    found: Mapping[str, list[float]] = defaultdict(list)
    for member, task, value in rows:
        for key in (name, f"{name}/{task}", f"{name}/{member}", f"{name}/{member}/{task}"):
            found[key].append(value)
    return {key: fmean(values) for key, values in found.items()}


def _mean(name: str, values: Iterable[float]) -> dict[str, float]:
    found = [float(value) for value in values]
    return {name: fmean(found)} if found else {}
