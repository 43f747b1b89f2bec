"""The tables of a step by column, with their schemas; `populora.runs.tables` keeps them in files.

``proposals`` has a column for each complexity metric of the run's domains; it is null for programs of other domains. In a run of several
domains ``matchups`` says where a rating comes from: ``mean_rho_sql`` over the teacher's ``problems_sql`` rated problems, for each domain.
``problems`` holds every problem that the step's attempts or valid proposals name, older ones from the buffer too; the others refer to it by
``problem_id``.
"""

import json
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import pyarrow as pa

from populora.core.types import Attempt, Proposal
from populora.domains.registry import load_domain
from populora.runs.step_record import StepRecord

Columns = dict[str, list[Any]]
"""A table by column."""

_RESPONSE = [
    ("text", pa.string()), ("prompt_tokens", pa.int32()), ("response_tokens", pa.int32()), ("stopped", pa.bool_()),
    ("entropy", pa.float64()), ("mean_logprob", pa.float64()), ("formatted", pa.bool_()),
]  # fmt: skip
_EXAMPLES = pa.list_(pa.struct([("inputs", pa.string()), ("output", pa.string())]))

SCHEMAS = {
    "proposals": pa.schema([
        ("step", pa.int32()), ("author", pa.string()), ("task", pa.string()), ("group", pa.int32()), *_RESPONSE,
        ("valid", pa.bool_()), ("rejection", pa.string()), ("problem_id", pa.string()), ("rho", pa.float64()),
        ("reward", pa.float64()), ("advantage", pa.float64()), ("fingerprint", pa.string()), ("repeat", pa.bool_()),
    ]),
    "problems": pa.schema([
        ("step", pa.int32()), ("problem_id", pa.string()), ("author", pa.string()), ("born", pa.int32()), ("task", pa.string()),
        ("program", pa.string()), ("message", pa.string()), ("shown", _EXAMPLES), ("hidden", _EXAMPLES),
    ]),
    "attempts": pa.schema([
        ("step", pa.int32()), ("student", pa.string()), ("author", pa.string()), ("task", pa.string()), ("problem_id", pa.string()),
        *_RESPONSE, ("correct", pa.bool_()), ("reason", pa.string()), ("void", pa.bool_()), ("filled", pa.bool_()),
        ("lenient", pa.bool_()), ("trained", pa.bool_()), ("reward", pa.float64()), ("advantage", pa.float64()),
    ]),
    "matchups": pa.schema([
        ("step", pa.int32()), ("teacher", pa.string()), ("student", pa.string()), ("expected", pa.float64()),
        ("mean_rho", pa.float64()), ("outcome", pa.string()),
    ]),
    "ratings": pa.schema([
        ("step", pa.int32()), ("member", pa.string()), ("role", pa.string()), ("slot", pa.int32()), ("mu", pa.float64()),
        ("sigma", pa.float64()), ("generation", pa.int32()), ("born", pa.int32()), ("protected_until", pa.int32()),
    ]),
    "children": pa.schema([
        ("step", pa.int32()), ("member", pa.string()), ("generation", pa.int32()), ("born", pa.int32()), ("operator", pa.string()),
        ("parents", pa.list_(pa.string())), ("stream", pa.string()),  # the stream's name as a JSON list
        ("norm_ratio", pa.float64()), ("cosines", pa.list_(pa.float64())), ("effective_rank", pa.float64()),
        ("basis_cosine", pa.float64()),
        ("strength", pa.string()), ("refactor", pa.string()), ("seed", pa.int64()), ("fingerprint", pa.string()),  # strength as JSON
    ]),
}  # fmt: skip
"""Columns of each table, but for those that `schema_of` adds for the domains."""


def schema_of(name: str, domains: Sequence[str]) -> pa.Schema:
    """Return the schema of a table in a run of these domains: complexity metrics follow ``advantage``, a matchup's sources come last."""
    fields = list(SCHEMAS[name])
    if name == "proposals":
        metrics = dict.fromkeys(metric for domain in domains for metric in load_domain(domain).metric_names)
        place = SCHEMAS[name].get_field_index("advantage") + 1
        fields[place:place] = [pa.field(metric, pa.int32()) for metric in metrics]
    if name == "matchups" and len(domains) > 1:
        sources = (("mean_rho", pa.float64()), ("problems", pa.int32()))
        fields += [pa.field(f"{source}_{domain}", kind) for domain in domains for source, kind in sources]
    return pa.schema(fields)


def step_columns(record: StepRecord) -> dict[str, Columns]:
    """Return the tables of a step as lists of plain values, by column; keys are those of `SCHEMAS`, without the column ``step``."""
    ratings = [
        {
            "member": m.id, "role": m.role.value, "slot": m.slot, "mu": m.rating.mu, "sigma": m.rating.sigma,
            "generation": m.lineage.generation, "born": m.lineage.born, "protected_until": m.protected_until,
        }
        for m in record.members
    ]  # fmt: skip
    children = [
        {**vars(child), "stream": json.dumps(child.stream), "strength": json.dumps(child.strength)} for child in record.evolution.children
    ]
    matchups = [{**vars(matchup), **_sources(matchup.teacher, record)} for matchup in record.matchups]
    return {
        "proposals": _proposals(record),
        "problems": _problems(record),
        "attempts": _attempts(record),
        "matchups": _columns(matchups, schema_of("matchups", record.domains)),
        "ratings": _columns(ratings, SCHEMAS["ratings"]),
        "children": _columns(children, SCHEMAS["children"]),
    }


def _proposals(record: StepRecord) -> Columns:
    proposals = record.proposals
    return {
        "author": [p.author for p in proposals],
        "task": [p.task for p in proposals],
        "group": [p.group for p in proposals],
        **_responses(proposals),
        "valid": [p.problem is not None for p in proposals],
        "rejection": [p.rejection for p in proposals],
        "problem_id": [p.problem.id if p.problem else None for p in proposals],
        "rho": list(record.rhos),
        "reward": list(record.teacher_rewards),
        "advantage": list(record.teacher_advantages),
        **_measures(proposals, record.domains),
        "repeat": [p.problem.id in record.repeats if p.problem else None for p in proposals],
    }


def _problems(record: StepRecord) -> Columns:
    named = [p.problem for p in record.proposals if p.problem] + [a.problem for a in record.attempts]
    problems = list({problem.id: problem for problem in named}.values())
    return {
        "problem_id": [p.id for p in problems],
        "author": [p.author for p in problems],
        "born": [p.step for p in problems],
        "task": [p.task for p in problems],
        "program": [p.program for p in problems],
        "message": [p.message for p in problems],
        "shown": [list(map(vars, p.shown)) for p in problems],
        "hidden": [list(map(vars, p.hidden)) for p in problems],
    }


def _attempts(record: StepRecord) -> Columns:
    attempts = record.attempts
    return {
        "student": [a.student for a in attempts],
        "author": [a.problem.author for a in attempts],
        "task": [a.problem.task for a in attempts],
        "problem_id": [a.problem.id for a in attempts],
        **_responses(attempts),
        "correct": [a.correct for a in attempts],
        "reason": [a.reason for a in attempts],
        "void": [a.void for a in attempts],
        "filled": [a.from_buffer for a in attempts],
        "lenient": [a.lenient for a in attempts],
        "trained": list(record.trained),
        "reward": list(record.student_rewards),
        "advantage": list(record.student_advantages),
    }


def _columns(rows: Sequence[dict[str, Any]], schema: pa.Schema) -> Columns:
    return {name: [row[name] for row in rows] for name in schema.names if name != "step"}


def _responses(samples: Sequence[Proposal | Attempt]) -> Columns:
    generations = [sample.generation for sample in samples]
    return {
        "text": [g.text for g in generations],
        "prompt_tokens": [len(g.prompt_tokens) for g in generations],
        "response_tokens": [len(g.tokens) for g in generations],
        "stopped": [g.stopped for g in generations],
        "entropy": [g.entropy for g in generations],
        "mean_logprob": [sum(g.logprobs) / len(g.tokens) if g.tokens else None for g in generations],
        "formatted": [sample.formatted for sample in samples],
    }


def _measures(proposals: Sequence[Proposal], domains: Sequence[str]) -> Columns:
    """Return a column for each metric of the domains, None for programs of others, and that of fingerprints."""
    names = {domain: load_domain(domain).metric_names for domain in domains}
    measured = [dict(zip(names[p.task.domain], p.measures.values, strict=True)) if p.measures else {} for p in proposals]
    columns: Columns = {
        metric: [values.get(metric) for values in measured]
        for metric in dict.fromkeys(metric for metrics in names.values() for metric in metrics)
    }
    return {**columns, "fingerprint": [p.measures.fingerprint if p.measures else None for p in proposals]}


def _sources(teacher: str, record: StepRecord) -> dict[str, Any]:
    """Return the mean rho and the number of a teacher's problems in each domain of several; of one domain ``mean_rho`` tells it."""
    sources: dict[str, Any] = {}
    for domain in record.domains if len(record.domains) > 1 else ():
        rated = (pair for pair in zip(record.proposals, record.rhos, strict=True) if pair[0].author == teacher)
        rhos = [rho for proposal, rho in rated if rho is not None and proposal.task.domain == domain]
        sources |= {f"mean_rho_{domain}": fmean(rhos) if rhos else None, f"problems_{domain}": len(rhos)}
    return sources
