"""The paper's metrics of one step (Figures 3 to 5 and the appendices on coverage, types, diagnostics, length): pure.

The vocabulary is fixed: ``group/metric``, then ``/type``, ``/member`` or ``/member/type``, as in ``student/solve_rate/S1/code_o``. A run of
several domains also has ``/domain`` and ``/member/domain``, as in ``teacher/validity/sql``. Complexity metrics have their domain's names.
``teacher/…`` is about proposing and ``student/…`` about solving: the single agent ``A0`` appears under both. A metric that is undefined in
a step is omitted, such as the difficulty of a teacher without valid problems. A metric over all members is the mean over their samples.

Readings: metrics of answers count the attempts at the step's own problems (``rho``'s attempts), without void ones and without those
that only fill a batch. Difficulty is 1 - mean rho over the teacher's valid problems. Complexity and duplicates (programs that the buffer
held already) count the programs that were written in the step. Kind ``f`` is given its program, so it has entries of its own (``/code_f``).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import isfinite
from operator import itemgetter
from statistics import fmean
from typing import Any

from populora.core.types import Kind, TaskType, task_types
from populora.domains.registry import load_domain
from populora.runs.step_record import StepRecord

UPDATE = ("loss", "grad_norm", "entropy", "clip_fraction", "kl", "ess", "mean_difference", "max_difference", "base_kl", "skipped")

Row = Mapping[str, Any]


def step_metrics(record: StepRecord, tables: Mapping[str, Sequence[Row]]) -> dict[str, float]:
    """Compute all metrics of a step but its timing. ``tables`` are the step's rows."""
    values = {**_teaching(tables["proposals"], record.domains), **_solving(tables["attempts"], record.domains)}
    values |= _matchups(tables["matchups"], record.domains)
    values |= {**_ratings(tables["ratings"]), **_evolution(record), **_learning(record)}
    values |= {f"archive/{name}": value for name, value in record.coverage.items()}
    values |= _held_out(record)
    values |= {f"tokens/{phase}": float(count) for phase, count in record.tokens.items()}
    return {name: float(value) for name, value in values.items() if isfinite(value)}


def step_timing(record: StepRecord) -> dict[str, float]:
    """Return the seconds per phase and of the whole step, and sampled or trained tokens per second where a phase has them."""
    timing = {f"seconds/{phase}": seconds for phase, seconds in record.seconds.items()}
    timing["seconds/step"] = sum(record.seconds.values())
    timing |= {f"seconds_beside/{phase}": seconds for phase, seconds in record.overlapped.items()}
    rates = {phase: count / record.seconds[phase] for phase, count in record.tokens.items() if record.seconds.get(phase)}
    return timing | {f"tokens_per_second/{phase}": rate for phase, rate in rates.items()}


def _teaching(proposals: Sequence[Row], domains: Sequence[str]) -> dict[str, float]:
    scored = [row for row in proposals if row["reward"] is not None]
    rated = [row for row in scored if row["rho"] is not None]
    valid = [row for row in proposals if row["valid"]]
    written = [row for row in valid if row["task"].kind is not Kind.PROGRAM]
    described = [row for row in valid if row["task"].kind is Kind.PROGRAM]
    spread = partial(_spread, "teacher", "author", domains)
    values = {
        **spread("validity", proposals, lambda row: row["valid"]),
        **spread("format_rate", proposals, lambda row: row["formatted"]),
        **spread("reward", scored, lambda row: row["reward"]),
        **spread("difficulty", rated, lambda row: 1.0 - row["rho"]),
        **spread("rho_zero", rated, lambda row: row["rho"] == 0.0),
        **spread("rho_one", rated, lambda row: row["rho"] == 1.0),
        **spread("response_length", proposals, lambda row: row["response_tokens"]),
        **spread("entropy", proposals, lambda row: row["entropy"], by_token=True),
        **spread("clipped", proposals, lambda row: not row["stopped"]),
        **spread("duplicates", [row for row in written if row["repeat"] is not None], lambda row: row["repeat"]),
        **spread("zero_variance", _groups(scored, "author", "group"), lambda row: row["equal"]),
        **_reasons("teacher/rejected", "rejection", proposals, domains),
    }
    for name in dict.fromkeys(name for domain in domains for name in load_domain(domain).metric_names):
        of_kind_f = spread(name, [row for row in described if row.get(name) is not None], itemgetter(name))
        values |= {key: value for key, value in of_kind_f.items() if key.endswith(f"_{Kind.PROGRAM}")}
        values |= spread(name, [row for row in written if row.get(name) is not None], itemgetter(name))
    return values


def _solving(attempts: Sequence[Row], domains: Sequence[str]) -> dict[str, float]:
    counted = [row for row in attempts if not (row["void"] or row["filled"])]
    trained = [row for row in attempts if row["trained"]]
    spread = partial(_spread, "student", "student", domains)
    return {
        **spread("solve_rate", counted, lambda row: row["correct"]),
        # Format failures by the problem's author: they count as unsolved, so they would pay the teacher.
        **_spread("teacher", "author", domains, "rho_format_fail", counted, lambda row: not row["formatted"]),
        **spread("format_rate", counted, lambda row: row["formatted"]),
        # Answers outside their fence, reported whether `tasks.extraction` lets them count or not.
        **spread("lenient", counted, lambda row: row["lenient"]),
        **spread("lenient_solved", counted, lambda row: row["lenient"] and row["correct"]),
        **spread("response_length", counted, lambda row: row["response_tokens"]),
        **spread("entropy", counted, lambda row: row["entropy"], by_token=True),
        **spread("clipped", counted, lambda row: not row["stopped"]),
        **spread("reward", trained, lambda row: row["reward"]),
        **spread("filled", trained, lambda row: row["filled"]),
        **spread("void", attempts, lambda row: row["void"]),
        **spread("zero_variance", _groups(trained, "student", "problem_id"), lambda row: row["equal"]),
        **_reasons("student/failed", "reason", [row for row in counted if not row["correct"]], domains),
    }


def _matchups(matchups: Sequence[Row], domains: Sequence[str]) -> dict[str, float]:
    played = [row for row in matchups if row["outcome"] != "none"]
    values = _mean("matchup/student_wins", (row["outcome"] == "student" for row in played if row["outcome"] != "neither"))
    values |= _mean("matchup/neither_wins", (row["outcome"] == "neither" for row in played))
    values |= _mean("matchup/expected", (row["expected"] for row in played))
    values |= _mean("matchup/mean_rho", (row["mean_rho"] for row in played if row["mean_rho"] is not None))
    for domain in domains if len(domains) > 1 else ():  # where the ratings come from
        rhos = (row[f"mean_rho_{domain}"] for row in played)
        values |= _mean(f"matchup/mean_rho/{domain}", (rho for rho in rhos if rho is not None))
        values |= _mean(f"matchup/problems/{domain}", (row[f"problems_{domain}"] for row in played))
    return values | {"matchup/played": float(len(played))}


def _ratings(ratings: Sequence[Row]) -> dict[str, float]:
    values: dict[str, float] = {}
    for name in ("mu", "sigma"):
        values |= _per_role(f"rating/{name}", ((row["member"], row["role"], row[name]) for row in ratings))
    return values


def _held_out(record: StepRecord) -> dict[str, float]:
    values = {f"held_out/{name}": value for name, value in record.held_out.items()}
    parts = {"held_out/accuracy": ("all",)}
    if len(record.domains) > 1:
        parts |= {f"held_out/accuracy/{domain}": task_types([domain]) for domain in record.domains}
    for name, endings in parts.items():
        values |= _mean(name, (value for key, value in record.held_out.items() if key.split("/")[1] in endings))
    return values


def _evolution(record: StepRecord) -> dict[str, float]:
    """Count children, the newborns that were spared though they were at the bottom, and broken teachers."""
    return {f"evolution/{name}": float(len(getattr(record.evolution, name))) for name in ("children", "spared", "broken")}


def _learning(record: StepRecord) -> dict[str, float]:
    """Compute the update diagnostics of the members that were updated."""
    role = {member.id: member.role.value for member in record.members}
    values: dict[str, float] = {}
    for name in UPDATE:
        updated = {member: update for member, update in record.updates.items() if name == "skipped" or not update.skipped}
        known = {member: value for member, update in updated.items() if (value := getattr(update, name)) is not None}
        values |= _per_role(f"learner/{name}", ((member, role[member], value) for member, value in known.items()))
    return values


def _per_role(name: str, samples: Iterable[tuple[str, str, float]]) -> dict[str, float]:
    """Return the values of (member, role, value) by member, and their means by role."""
    by_key: Mapping[str, list[float]] = defaultdict(list)
    for member, role, value in samples:
        by_key[f"{name}/{member}"].append(float(value))
        by_key[f"{name}/{role}"].append(float(value))
    return {key: fmean(values) for key, values in by_key.items()}


def _groups(rows: Iterable[Row], member: str, group: str) -> list[Row]:
    """Return a row for each prompt group of two or more, and whether its rewards are ``equal``: they teach nothing."""
    groups: Mapping[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row[member], row[group]].append(row)
    return [{**rows[0], "equal": len({row["reward"] for row in rows}) == 1} for rows in groups.values() if len(rows) > 1]


def _reasons(name: str, column: str, rows: Iterable[Row], domains: Sequence[str]) -> dict[str, float]:
    """Count by reason, such as ``timeout:cpu``, without a third part (which exception). Of several ``domains`` each is counted, too."""
    counts: Counter[str] = Counter()
    for row in rows:
        if row[column]:
            reason = ":".join(row[column].split(":")[:2]).replace(" ", "_")
            counts.update([reason, f"{reason}/{row['task'].domain}"] if len(domains) > 1 else [reason])
    return {f"{name}/{reason}": float(count) for reason, count in counts.items()}


def _spread(
    role: str, member: str, domains: Sequence[str], metric: str, rows: Iterable[Row], value: Callable[[Row], float], by_token: bool = False
) -> dict[str, float]:
    """Average over all rows or their tokens: together, by type, by the member in the column ``member``, and by both.

    Where there are several ``domains``, also by domain, and by member and domain."""
    by_key: Mapping[str, list[Row]] = defaultdict(list)
    name = f"{role}/{metric}"
    for row in rows:
        if row["response_tokens"] or not by_token:
            task: TaskType = row["task"]
            parts = (task, task.domain) if len(domains) > 1 else (task,)
            for key in (name, f"{name}/{row[member]}"):
                for ending in ("", *(f"/{part}" for part in parts)):
                    by_key[key + ending].append(row)
    return {
        key: fmean([float(value(row)) for row in rows], [row["response_tokens"] for row in rows] if by_token else None)
        for key, rows in by_key.items()
    }


def _mean(name: str, values: Iterable[float]) -> dict[str, float]:
    samples = [float(value) for value in values]
    return {name: fmean(samples)} if samples else {}
