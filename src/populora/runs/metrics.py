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
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from math import isfinite
from operator import itemgetter
from statistics import fmean
from typing import Any

from populora.core.types import Kind, TaskType, task_types
from populora.domains.registry import load_domain
from populora.runs.step_columns import Columns
from populora.runs.step_record import StepRecord

UPDATE = (
    "loss", "grad_norm", "entropy", "clip_fraction", "kl", "ess", "mean_difference", "max_difference", "outliers", "base_kl", "skipped",
)  # fmt: skip

Values = Sequence[Any] | Mapping[int, Any]
"""A column, or values by row."""


def step_metrics(record: StepRecord, tables: Mapping[str, Columns]) -> dict[str, float]:
    """Compute all metrics of a step but its timing. ``tables`` are the step's (`step_columns`)."""
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


def _teaching(proposals: Columns, domains: Sequence[str]) -> dict[str, float]:
    everything, tasks, rho = range(len(proposals["author"])), proposals["task"], proposals["rho"]
    scored = [row for row in everything if proposals["reward"][row] is not None]
    rated = [row for row in scored if rho[row] is not None]
    valid = [row for row in everything if proposals["valid"][row]]
    written = [row for row in valid if tasks[row].kind is not Kind.PROGRAM]
    described = [row for row in valid if tasks[row].kind is Kind.PROGRAM]
    equal = _equal_rewards(proposals, scored, "author", "group")
    spread = partial(_spread, proposals, "teacher", "author", domains)
    values = {
        **spread(everything, {
            "validity": proposals["valid"],
            "format_rate": proposals["formatted"],
            "response_length": proposals["response_tokens"],
            "clipped": [not stopped for stopped in proposals["stopped"]],
        }),
        **spread(scored, {"reward": proposals["reward"]}),
        **spread(rated, {
            "difficulty": {row: 1.0 - rho[row] for row in rated},
            "rho_zero": {row: rho[row] == 0.0 for row in rated},
            "rho_one": {row: rho[row] == 1.0 for row in rated},
        }),
        **spread(everything, {"entropy": proposals["entropy"]}, by_token=True),
        **spread([row for row in written if proposals["repeat"][row] is not None], {"duplicates": proposals["repeat"]}),
        **spread(list(equal), {"zero_variance": equal}),
        **_reasons("teacher/rejected", proposals, "rejection", everything, domains),
    }  # fmt: skip
    for name in dict.fromkeys(name for domain in domains for name in load_domain(domain).metric_names):
        column = proposals[name]
        of_kind_f = spread([row for row in described if column[row] is not None], {name: column})
        values |= {key: value for key, value in of_kind_f.items() if key.endswith(f"_{Kind.PROGRAM}")}
        values |= spread([row for row in written if column[row] is not None], {name: column})
    return values


def _solving(attempts: Columns, domains: Sequence[str]) -> dict[str, float]:
    everything, correct = range(len(attempts["student"])), attempts["correct"]
    counted = [row for row in everything if not (attempts["void"][row] or attempts["filled"][row])]
    trained = [row for row in everything if attempts["trained"][row]]
    equal = _equal_rewards(attempts, trained, "student", "problem_id")
    spread = partial(_spread, attempts, "student", "student", domains)
    return {
        **spread(counted, {
            "solve_rate": correct,
            "format_rate": attempts["formatted"],
            # Answers outside their fence, reported whether `tasks.extraction` lets them count or not.
            "lenient": attempts["lenient"],
            "lenient_solved": {row: attempts["lenient"][row] and correct[row] for row in counted},
            "response_length": attempts["response_tokens"],
            "clipped": [not stopped for stopped in attempts["stopped"]],
        }),
        # Format failures by the problem's author: they count as unsolved, so they would pay the teacher.
        **_spread(attempts, "teacher", "author", domains, counted, {"rho_format_fail": [not given for given in attempts["formatted"]]}),
        **spread(counted, {"entropy": attempts["entropy"]}, by_token=True),
        **spread(trained, {"reward": attempts["reward"], "filled": attempts["filled"]}),
        **spread(everything, {"void": attempts["void"]}),
        **spread(list(equal), {"zero_variance": equal}),
        **_reasons("student/failed", attempts, "reason", [row for row in counted if not correct[row]], domains),
    }  # fmt: skip


def _matchups(matchups: Columns, domains: Sequence[str]) -> dict[str, float]:
    outcomes = matchups["outcome"]
    played = [row for row, outcome in enumerate(outcomes) if outcome != "none"]

    def mean_of(column: str) -> dict[str, float]:
        name = f"matchup/{column}"
        return _mean(name, (matchups[column][row] for row in played if matchups[column][row] is not None))

    values = _mean("matchup/student_wins", (outcomes[row] == "student" for row in played if outcomes[row] != "neither"))
    values |= _mean("matchup/neither_wins", (outcomes[row] == "neither" for row in played))
    values |= {**mean_of("expected"), **mean_of("mean_rho"), "matchup/played": float(len(played))}
    for domain in domains if len(domains) > 1 else ():  # where the ratings come from
        for source in ("mean_rho", "problems"):
            values |= {f"matchup/{source}/{domain}": value for value in mean_of(f"{source}_{domain}").values()}
    return values


def _ratings(ratings: Columns) -> dict[str, float]:
    return {
        key: value
        for name in ("mu", "sigma")
        for key, value in _per_role(f"rating/{name}", zip(ratings["member"], ratings["role"], ratings[name], strict=True)).items()
    }


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


def _equal_rewards(table: Columns, rows: Iterable[int], member: str, group: str) -> dict[int, bool]:
    """Tell for each prompt group of two or more rows, by its first, whether all have one reward: they teach nothing."""
    groups: Mapping[tuple[str, Any], list[int]] = defaultdict(list)
    for row in rows:
        groups[table[member][row], table[group][row]].append(row)
    return {rows[0]: len({table["reward"][row] for row in rows}) == 1 for rows in groups.values() if len(rows) > 1}


def _reasons(name: str, table: Columns, column: str, rows: Iterable[int], domains: Sequence[str]) -> dict[str, float]:
    """Count by reason, such as ``timeout:cpu``, without a third part (which exception). Of several ``domains`` each is counted, too."""
    counts: Counter[str] = Counter()
    for row in rows:
        if table[column][row]:
            reason = ":".join(table[column][row].split(":")[:2]).replace(" ", "_")
            counts.update([reason, f"{reason}/{table['task'][row].domain}"] if len(domains) > 1 else [reason])
    return {f"{name}/{reason}": float(count) for reason, count in counts.items()}


def _spread(
    table: Columns,
    role: str,
    member: str,
    domains: Sequence[str],
    rows: Iterable[int],
    metrics: Mapping[str, Values],
    by_token: bool = False,
) -> dict[str, float]:
    """Average each metric over all ``rows`` or their tokens: together, by type, by the member in the column ``member``, and by both.

    Where there are several ``domains``, also by domain, and by member and domain."""
    tokens, members, tasks = table["response_tokens"], table[member], table["task"]
    pairs: Mapping[tuple[str, TaskType], list[int]] = defaultdict(list)
    for row in rows:
        if tokens[row] or not by_token:
            pairs[members[row], tasks[row]].append(row)
    groups: Mapping[str, list[int]] = defaultdict(list)
    for (name, task), of_pair in pairs.items():
        for ending in ("", f"/{task}", *([f"/{task.domain}"] if len(domains) > 1 else [])):
            groups[ending] += of_pair
            groups[f"/{name}{ending}"] += of_pair
    means: dict[str, float] = {}
    for ending, of_group in groups.items():
        weights = [tokens[row] for row in of_group] if by_token else None
        pick = itemgetter(*of_group, of_group[0])  # of one row, it would return no tuple
        means |= {f"{role}/{metric}{ending}": fmean(pick(values)[:-1], weights) for metric, values in metrics.items()}
    return means


def _mean(name: str, values: Iterable[float]) -> dict[str, float]:
    samples = [float(value) for value in values]
    return {name: fmean(samples)} if samples else {}
