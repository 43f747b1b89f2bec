"""docs/records.md explains every metric and every column of a run, and none that does not exist."""

import re
from pathlib import Path

from populora.core.types import CODE_TYPES
from populora.domains.registry import load_domain
from populora.report.figures.compute import PHASES
from populora.runs.metrics import UPDATE, step_metrics, step_timing
from populora.runs.step_columns import SCHEMAS
from populora.runs.tables import step_tables

PAGE = (Path(__file__).parents[2] / "docs" / "records.md").read_text("utf-8")
SECTIONS = {part.partition("\n")[0]: part for part in re.split(r"^##+ ", PAGE, flags=re.MULTILINE)}
SCOPES = {*CODE_TYPES, *"T0 T1 S0 S1 teacher student agent python sql all".split()}
COMPLEXITY = set(load_domain("python").metric_names)


def names_in(heading: str) -> set[str]:
    """The names in the first column of the section whose title begins with ``heading``."""
    (section,) = (text for title, text in SECTIONS.items() if title.startswith(heading))
    rows = re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]*)`", row)}


def plain(metric: str) -> str:
    """A metric's name without whom it is about, and with REASON for a reason."""
    group, name, *scope = metric.split("/")
    if name in ("rejected", "failed"):
        return f"{group}/{name}/REASON"
    if group == "held_out" and name != "accuracy":
        return "held_out/MEMBER/tokens" if scope == ["tokens"] else "held_out/MEMBER/TYPE"
    assert set(scope) <= SCOPES | {"sql_i", "sql_o", "sql_f"}, metric
    return f"{group}/{name}"


def documented() -> set[str]:
    groups = {"teacher": "Proposals", "student": "Answers", "learner": "The learner"}
    named = {f"{group}/{name}" for group, heading in groups.items() for name in names_in(heading)}
    return named | names_in("Other metrics")


def test_every_metric_is_explained_and_no_other(make_record, make_mixed_record):
    held_out = {"S0/code_i": 0.5, "S0/all": 0.5, "S0/tokens": 7.0}
    tokens = dict.fromkeys(("propose", "propose_prompts", "solve", "solve_prompts", "update"), 1)
    coverage = dict.fromkeys(("coverage", "distinct_descriptors", "total_problems", "proxy"), 1.0)
    records = [make_record(held_out=held_out, tokens=tokens, coverage=coverage), make_mixed_record()]
    measured = {plain(name) for record in records for name in step_metrics(record, step_tables(record))}
    sql = {f"teacher/{name}" for name in load_domain("sql").metric_names} - {f"teacher/{name}" for name in COMPLEXITY}
    assert measured - sql <= documented()
    assert documented() - measured <= {f"learner/{name}" for name in UPDATE}
    assert names_in("The learner") == set(UPDATE)


def test_every_column_is_explained_and_no_other():
    for table, schema in SCHEMAS.items():
        columns = set(schema.names) - {"step"} | (COMPLEXITY if table == "proposals" else set())
        assert names_in(f"`{table}`") == columns, table


def test_every_time_is_explained(make_record):
    (row,) = re.findall(r"^\| `seconds/PHASE` .*$", PAGE, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row)) == set(PHASES) - {"write"}
    seconds, tokens = dict.fromkeys(("propose", "solve", "update", "write"), 1.0), dict.fromkeys(("propose", "solve", "update"), 1)
    timing = step_timing(make_record(seconds=seconds, overlapped={"validate": 1.0, "judge": 1.0}, tokens=tokens))
    assert set(timing) - {f"seconds/{phase}" for phase in PHASES} == names_in("Seconds") - {"seconds/PHASE", "seconds/write"}
