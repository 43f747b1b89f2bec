"""The paper's metrics of one step (Figures 3 to 5 and the appendices on coverage, types, diagnostics, length): pure.

The vocabulary is fixed: ``group/metric``, then ``/type``, ``/member`` or ``/member/type`` where it is broken down, as in
``student/solve_rate/S1/code_o``. ``teacher/…`` is about proposing and ``student/…`` about solving, whoever does it: the
single agent ``A0`` appears under both, so both arms have the same names and definitions. What is undefined in a step
(the difficulty of a teacher without valid problems) is absent. A metric over all members is the mean over their samples.

Readings: what is about answers counts the attempts at the step's own problems (``rho``'s attempts) without void ones and without those
that only fill a batch. Difficulty is 1 - mean rho over the teacher's valid problems. Complexity and duplicates (programs that the buffer
held already) are about programs that were written in the step: code_f, which is given its program, has entries of its own (``/code_f``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from math import isfinite
from statistics import fmean
from typing import Any

from populora.core.types import TaskType
from populora.runs.step_record import StepRecord

COMPLEXITY = ("ast_depth", "cyclomatic", "loc", "variables")
UPDATE = ("loss", "grad_norm", "entropy", "clip_fraction", "kl", "ess", "mean_difference", "max_difference", "skipped")

Row = Mapping[str, Any]
Samples = Iterable[tuple[str, str, float]]
"""(member, task type, value) of one sample each."""


def step_metrics(record: StepRecord, tables: Mapping[str, Sequence[Row]]) -> dict[str, float]:
    """Compute all metrics of a step but its timing. ``tables`` are the step's rows."""
    values = {**_teaching(tables["proposals"]), **_solving(tables["attempts"]), **_matchups(tables["matchups"])}
    values |= {**_ratings(tables["ratings"]), "evolution/children": float(len(tables["children"])), **_learning(record)}
    values |= {f"archive/{name}": value for name, value in record.coverage.items()}
    values |= {f"held_out/{name}": value for name, value in record.held_out.items()}
    values |= _mean("held_out/accuracy", (value for name, value in record.held_out.items() if name.endswith("/all")))
    values |= {f"tokens/{phase}": float(count) for phase, count in record.tokens.items()}
    return {name: float(value) for name, value in values.items() if isfinite(value)}


def step_timing(record: StepRecord) -> dict[str, float]:
    """Return the seconds per phase and of the whole step, and sampled or trained tokens per second where a phase has them."""
    timing = {f"seconds/{phase}": seconds for phase, seconds in record.seconds.items()}
    timing["seconds/step"] = sum(record.seconds.values())
    timing |= {f"seconds_beside/{phase}": seconds for phase, seconds in record.overlapped.items()}
    rates = {phase: count / record.seconds[phase] for phase, count in record.tokens.items() if record.seconds.get(phase)}
    return timing | {f"tokens_per_second/{phase}": rate for phase, rate in rates.items()}


def _teaching(proposals: Sequence[Row]) -> dict[str, float]:
    scored = [row for row in proposals if row["reward"] is not None]
    valid = [row for row in proposals if row["valid"]]
    written = [row for row in valid if row["task"] != TaskType.CODE_F]
    described = [row for row in valid if row["task"] == TaskType.CODE_F]
    rated = [row for row in scored if row["rho"] is not None]
    values = {
        **_spread("teacher/validity", (_proposed(row, row["valid"]) for row in proposals)),
        **_spread("teacher/format_rate", (_proposed(row, row["formatted"]) for row in proposals)),
        **_spread("teacher/reward", (_proposed(row, row["reward"]) for row in scored)),
        **_spread("teacher/difficulty", (_proposed(row, 1.0 - row["rho"]) for row in rated)),
        **_spread("teacher/rho_zero", (_proposed(row, row["rho"] == 0.0) for row in rated)),
        **_spread("teacher/rho_one", (_proposed(row, row["rho"] == 1.0) for row in rated)),
        **_spread("teacher/response_length", (_proposed(row, row["response_tokens"]) for row in proposals)),
        **_per_token("teacher/entropy", ((row["author"], row) for row in proposals)),
        **_spread("teacher/clipped", (_proposed(row, not row["stopped"]) for row in proposals)),
        **_spread("teacher/duplicates", (_proposed(row, row["repeat"]) for row in written if row["repeat"] is not None)),
        **_zero_variance("teacher", (((row["author"], row["group"]), *_proposed(row, row["reward"])) for row in scored)),
        **_reasons("teacher/rejected", (row["rejection"] for row in proposals if row["rejection"])),
    }
    for name in COMPLEXITY:
        of_code_f = _spread(f"teacher/{name}", (_proposed(row, row[name]) for row in described))
        values |= {key: value for key, value in of_code_f.items() if key.endswith(TaskType.CODE_F.value)}
        values |= _spread(f"teacher/{name}", (_proposed(row, row[name]) for row in written))
    return values


def _solving(attempts: Sequence[Row]) -> dict[str, float]:
    counted = [row for row in attempts if not (row["void"] or row["filled"])]
    trained = [row for row in attempts if row["trained"]]
    return {
        **_spread("student/solve_rate", (_attempted(row, row["correct"]) for row in counted)),
        # Whose problems break the format of those who solve them: it counts as unsolved, so a teacher would be paid for it.
        **_spread("teacher/rho_format_fail", ((row["author"], row["task"], float(not row["formatted"])) for row in counted)),
        **_spread("student/format_rate", (_attempted(row, row["formatted"]) for row in counted)),
        # Answers that stand outside their fence, and what they solve if `tasks.extraction` lets them count: never hidden in the rate.
        **_spread("student/lenient", (_attempted(row, row["lenient"]) for row in counted)),
        **_spread("student/lenient_solved", (_attempted(row, row["lenient"] and row["correct"]) for row in counted)),
        **_spread("student/response_length", (_attempted(row, row["response_tokens"]) for row in counted)),
        **_per_token("student/entropy", ((row["student"], row) for row in counted)),
        **_spread("student/clipped", (_attempted(row, not row["stopped"]) for row in counted)),
        **_spread("student/reward", (_attempted(row, row["reward"]) for row in trained)),
        **_spread("student/filled", (_attempted(row, row["filled"]) for row in trained)),
        **_spread("student/void", (_attempted(row, row["void"]) for row in attempts)),
        **_zero_variance("student", (((row["student"], row["problem_id"]), *_attempted(row, row["reward"])) for row in trained)),
        **_reasons("student/failed", (row["reason"] for row in counted if not row["correct"] and row["reason"])),
    }


def _matchups(matchups: Sequence[Row]) -> dict[str, float]:
    played = [row for row in matchups if row["outcome"] != "none"]
    values = _mean("matchup/student_wins", (row["outcome"] == "student" for row in played))
    values |= _mean("matchup/expected", (row["expected"] for row in played))
    values |= _mean("matchup/mean_rho", (row["mean_rho"] for row in played if row["mean_rho"] is not None))
    return values | {"matchup/played": float(len(played))}


def _ratings(ratings: Sequence[Row]) -> dict[str, float]:
    values: dict[str, float] = {}
    for name in ("mu", "sigma"):
        values |= _per_role(f"rating/{name}", ((row["member"], row["role"], row[name]) for row in ratings))
    return values


def _learning(record: StepRecord) -> dict[str, float]:
    """Compute the update diagnostics of the members that were updated."""
    role = {member.id: member.role.value for member in record.members}
    values: dict[str, float] = {}
    for name in UPDATE:
        updated = {member: update for member, update in record.updates.items() if name == "skipped" or not update.skipped}
        values |= _per_role(f"learner/{name}", ((member, role[member], getattr(update, name)) for member, update in updated.items()))
    return values


def _per_role(name: str, samples: Samples) -> dict[str, float]:
    """Return the values by member, and their means by role; here samples are (member, role, value)."""
    by_key: Mapping[str, list[float]] = defaultdict(list)
    for member, role, value in samples:
        by_key[f"{name}/{member}"].append(float(value))
        by_key[f"{name}/{role}"].append(float(value))
    return {key: fmean(values) for key, values in by_key.items()}


def _zero_variance(role: str, samples: Iterable[tuple[Hashable, str, str, float]]) -> dict[str, float]:
    """Return the share of prompt groups of two or more whose rewards are all equal: they teach nothing (a group of one is not centred)."""
    rewards, owner = defaultdict(list), {}
    for group, member, task, reward in samples:
        rewards[group].append(reward)
        owner[group] = (member, task)
    compared = {group: len(set(paid)) == 1 for group, paid in rewards.items() if len(paid) > 1}
    return _spread(f"{role}/zero_variance", ((*owner[group], float(equal)) for group, equal in compared.items()))


def _reasons(name: str, reasons: Iterable[str]) -> dict[str, float]:
    """Count by reason, such as ``timeout:cpu``, without a third part (which exception)."""
    counts = Counter(":".join(reason.split(":")[:2]).replace(" ", "_") for reason in reasons)
    return {f"{name}/{reason}": float(count) for reason, count in counts.items()}


def _proposed(row: Row, value: float) -> tuple[str, str, float]:
    return row["author"], row["task"], float(value)


def _attempted(row: Row, value: float) -> tuple[str, str, float]:
    return row["student"], row["task"], float(value)


def _spread(name: str, samples: Samples) -> dict[str, float]:
    """Average over all samples, by type, by member, and by both."""
    by_key: Mapping[str, list[float]] = defaultdict(list)
    for member, task, value in samples:
        for key in _keys(name, member, task):
            by_key[key].append(value)
    return {key: fmean(values) for key, values in by_key.items()}


def _per_token(name: str, responses: Iterable[tuple[str, Row]]) -> dict[str, float]:
    """Average ``entropy`` over the tokens of all (member, response), by type, by member, and by both."""
    by_key: Mapping[str, list[Row]] = defaultdict(list)
    for member, row in responses:
        if row["response_tokens"]:
            for key in _keys(name, member, row["task"]):
                by_key[key].append(row)
    return {key: fmean((row["entropy"] for row in rows), [row["response_tokens"] for row in rows]) for key, rows in by_key.items()}


def _keys(name: str, member: str, task: str) -> tuple[str, ...]:
    return name, f"{name}/{task}", f"{name}/{member}", f"{name}/{member}/{task}"


def _mean(name: str, values: Iterable[float]) -> dict[str, float]:
    samples = [float(value) for value in values]
    return {name: fmean(samples)} if samples else {}
