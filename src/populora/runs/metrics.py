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
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from populora.core.types import Kind, TaskType, task_types
from populora.domains.registry import load_domain
from populora.runs.groups import Groups, Mask, floats, keys_of_pairs, pairs_of, truths
from populora.runs.step_record import StepRecord

UPDATE = (
    "loss", "grad_norm", "entropy", "clip_fraction", "kl", "ess", "mean_difference", "max_difference", "outliers", "base_kl", "skipped",
)  # fmt: skip


def step_metrics(record: StepRecord, tables: Mapping[str, pa.Table]) -> dict[str, float]:
    """Compute all metrics of a step but its timing. ``tables`` are the step's (`populora.runs.tables.step_tables`)."""
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


def _teaching(proposals: pa.Table, domains: Sequence[str]) -> dict[str, float]:
    groups = Groups.of(proposals, "author", domains)
    reward, rho, repeat = (floats(proposals[name]) for name in ("reward", "rho", "repeat"))
    everything, valid, scored = np.ones(len(reward), dtype=bool), truths(proposals["valid"]), ~np.isnan(reward)
    given = np.array([TaskType(task).kind is Kind.PROGRAM for task in proposals["task"].to_pylist()], dtype=bool)
    described, written = valid & given, valid & ~given
    rated = scored & ~np.isnan(rho)
    equal, first = _equal_rewards(proposals, reward, scored, "author", "group")
    means = partial(groups.means, "teacher")
    values = {
        **means(everything, {
            "validity": valid,
            "format_rate": truths(proposals["formatted"]),
            "response_length": floats(proposals["response_tokens"]),
            "clipped": ~truths(proposals["stopped"]),
        }),
        **means(scored, {"reward": reward}),
        **means(rated, {"difficulty": 1.0 - rho, "rho_zero": rho == 0.0, "rho_one": rho == 1.0}),
        **means(everything, {"entropy": floats(proposals["entropy"])}, by_token=True),
        **means(written & ~np.isnan(repeat), {"duplicates": repeat}),
        **means(first, {"zero_variance": equal}),
        **_reasons("teacher/rejected", proposals, "rejection", everything, domains),
    }  # fmt: skip
    for name in dict.fromkeys(name for domain in domains for name in load_domain(domain).metric_names):
        column = floats(proposals[name])
        of_kind_f = means(described & ~np.isnan(column), {name: column})
        values |= {key: value for key, value in of_kind_f.items() if key.endswith(f"_{Kind.PROGRAM}")}
        values |= means(written & ~np.isnan(column), {name: column})
    return values


def _solving(attempts: pa.Table, domains: Sequence[str]) -> dict[str, float]:
    correct, formatted, lenient, void, filled, trained = (
        truths(attempts[name]) for name in ("correct", "formatted", "lenient", "void", "filled", "trained")
    )
    counted, reward = ~(void | filled), floats(attempts["reward"])
    equal, first = _equal_rewards(attempts, reward, trained, "student", "problem_id")
    means = partial(Groups.of(attempts, "student", domains).means, "student")
    return {
        **means(counted, {
            "solve_rate": correct,
            "format_rate": formatted,
            # Answers outside their fence, reported whether `tasks.extraction` lets them count or not.
            "lenient": lenient,
            "lenient_solved": lenient & correct,
            "response_length": floats(attempts["response_tokens"]),
            "clipped": ~truths(attempts["stopped"]),
        }),
        # Format failures by the problem's author: they count as unsolved, so they would pay the teacher.
        **Groups.of(attempts, "author", domains).means("teacher", counted, {"rho_format_fail": ~formatted}),
        **means(counted, {"entropy": floats(attempts["entropy"])}, by_token=True),
        **means(trained, {"reward": reward, "filled": filled}),
        **means(np.ones_like(void), {"void": void}),
        **means(first, {"zero_variance": equal}),
        **_reasons("student/failed", attempts, "reason", counted & ~correct, domains),
    }  # fmt: skip


def _matchups(table: pa.Table, domains: Sequence[str]) -> dict[str, float]:
    matchups: dict[str, list[Any]] = table.to_pydict()
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


def _ratings(table: pa.Table) -> dict[str, float]:
    ratings: dict[str, list[Any]] = table.to_pydict()
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


def _equal_rewards(table: pa.Table, reward: NDArray[np.float64], rows: Mask, member: str, group: str) -> tuple[Mask, Mask]:
    """Tell for each prompt group of two or more ``rows``, by its first, whether all have one reward: they teach nothing. Also returns which
    rows are first."""
    chosen, keys = np.flatnonzero(rows), keys_of_pairs(table, member, group)[0]
    _, first, codes, sizes = np.unique(keys[chosen], return_index=True, return_inverse=True, return_counts=True)
    differs = np.bincount(codes, reward[chosen] != reward[chosen][first][codes])
    equal, firsts = np.zeros_like(rows), np.zeros_like(rows)
    equal[chosen[first]], firsts[chosen[first]] = differs == 0, sizes > 1
    return equal, firsts


def _reasons(name: str, table: pa.Table, column: str, rows: Mask, domains: Sequence[str]) -> dict[str, float]:
    """Count by reason, such as ``error:exception``, without a third part (which exception). Of several ``domains`` each is counted, too."""
    counts: Counter[str] = Counter()
    codes, kinds = pairs_of(table, column, "task")
    for (reason, task), count in zip(kinds, np.bincount(codes[rows], minlength=len(kinds)).tolist(), strict=True):
        if reason and count:
            domain = TaskType(task).domain
            short = ":".join(reason.split(":")[:2]).replace(" ", "_")
            counts.update(dict.fromkeys([short, f"{short}/{domain}"] if len(domains) > 1 else [short], count))
    return {f"{name}/{reason}": float(count) for reason, count in counts.items()}


def _mean(name: str, values: Iterable[float]) -> dict[str, float]:
    samples = [float(value) for value in values]
    return {name: fmean(samples)} if samples else {}
