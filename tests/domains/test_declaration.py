"""Declarations: what a `Domain` refuses, and names of metrics that would be mixed with other numbers."""

import sqlite3
from dataclasses import replace
from importlib.metadata import version

import pytest

from populora.core.errors import ConfigError
from populora.domains import Metric
from populora.domains.declaration import TAKEN, fingerprint_of
from populora.domains.registry import BUILT_IN, load_domain, load_domains
from populora.runs.metrics import step_metrics
from populora.runs.step_columns import SCHEMAS
from populora.runs.tables import step_tables
from populora.sandbox.runner import Runner

PYTHON = BUILT_IN["python"]
METRICS = PYTHON.metrics


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "Python"}, "expected lower-case letters and digits"),
        ({"name": "code"}, "expected lower-case letters and digits"),
        ({"runner": Runner("sql", "a.b")}, "its runner is of 'sql'"),
        ({"metrics": METRICS[:3]}, "expected 4 different metrics"),
        ({"metrics": (*METRICS[:3], METRICS[0])}, "expected 4 different metrics"),
        ({"metrics": (*METRICS[:3], Metric("reward", "reward", 0, 1))}, "metric 'reward': expected a name in lower case that no column"),
        ({"metrics": (*METRICS[:3], Metric("a/b", "ratio", 0, 1))}, "metric 'a/b': expected a name in lower case"),
        ({"metrics": (*METRICS[:3], Metric("size", "size", 2, 2))}, "metric 'size': expected low below high, got 2, 2"),
        ({"shown": ("size",)}, "expected names of its metrics in `shown`"),
        ({"shown": ()}, "expected names of its metrics in `shown`"),
        ({"fences": "python"}, "expected `fences` as a tuple of languages in lower case"),
        ({"fences": ()}, r"none of them input, output, message; got \(\)"),
        ({"fences": ("Python",)}, "languages in lower case"),
        ({"fences": ("python", "input")}, "none of them input"),
    ],
)
def test_an_impossible_declaration_is_refused(change, words):
    with pytest.raises(ConfigError, match=words):
        replace(PYTHON, **change)


def test_no_metric_has_the_name_of_a_column_or_of_another_measure_of_proposals(make_record):
    record = make_record()
    measures = {name.split("/")[1] for name in step_metrics(record, step_tables(record)) if name.startswith("teacher/")}
    assert {*SCHEMAS["proposals"].names, *measures} - set(PYTHON.metric_names) <= TAKEN


def test_two_domains_of_a_run_may_not_share_a_metric(install_toy):
    install_toy([("__init__.py", '"names", "variables"', '"loc", "variables"')])
    with pytest.raises(ConfigError, match="'python' and 'toy' both have a metric 'loc'"):
        load_domains(["python", "toy"])
    assert list(load_domains(["sql", "toy"])) == ["sql", "toy"] and load_domain("toy").label("loc") == "variables"


def test_the_fingerprint_of_a_domain_has_the_versions_that_decide_its_verdicts():
    sql, python = load_domain("sql"), load_domain("python")
    assert fingerprint_of([python]) == "python 1"
    assert fingerprint_of([python, sql]) == f"python 1, sql 1 (sqlglot {version('sqlglot')}, sqlite {sqlite3.sqlite_version})"
    assert fingerprint_of([replace(sql, facts=lambda: {"sqlite": "3.99"})]) == "sql 1 (sqlite 3.99)"
