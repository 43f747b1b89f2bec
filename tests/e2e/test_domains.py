"""Runs in SQL and in both languages on the embedded base: equal bytes, resumed runs, per-domain values, and what is refused."""

from dataclasses import replace
from itertools import pairwise

import pytest
from small_run import SMALL, Silent, contents

from populora.core.config import BaseConfig, EvaluationConfig
from populora.core.errors import ConfigError
from populora.core.types import Kind, TaskType, task_types
from populora.domains.registry import load_domain
from populora.runs.metrics_log import read_log
from populora.runs.tables import read_table
from populora.training.loop import build_run, resume, train
from populora.training.seed_buffer import fill_buffer

BOTH = ("python", "sql")
SQL = replace(SMALL, domains=("sql",), base=BaseConfig(path="tiny_sql"))
MIXED = replace(SQL, domains=BOTH, steps=3)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixed") / "run"
    train(MIXED, folder, Silent())
    return folder


@pytest.mark.thorough
def test_a_resumed_mixed_run_has_the_bytes_of_an_undisturbed_one(mixed, tmp_path):
    train(MIXED, tmp_path / "run", Silent(), stop=iter([False, True]).__next__)
    resume(tmp_path / "run", Silent())
    assert contents(tmp_path / "run") == contents(mixed)


@pytest.mark.slow
def test_a_mixed_run_has_values_of_each_type_and_of_each_domain(mixed):
    log = read_log(mixed)
    proposals = read_table(mixed, "proposals").to_pylist()
    assert {row["task"] for row in proposals} == set(task_types(BOTH))
    for line in log:
        for domain in BOTH:
            shares = [line[f"teacher/validity/{task}"] for task in task_types([domain])]
            assert line[f"teacher/validity/{domain}"] == pytest.approx(sum(shares) / 3)
        assert {f"archive/coverage/{domain}" for domain in BOTH} < set(line) and "archive/coverage" not in line


@pytest.mark.slow
def test_metrics_of_complexity_are_those_of_the_program_s_domain(mixed):
    for row in read_table(mixed, "proposals").to_pylist():
        task = TaskType(row["task"])
        for domain in BOTH:
            values = [row[name] for name in load_domain(domain).metric_names]
            assert all((value is not None) == (row["valid"] and task.domain == domain) for value in values), row


@pytest.mark.slow
def test_each_domain_counts_its_own_programs_in_its_archive(mixed):
    log, proposals = read_log(mixed), read_table(mixed, "proposals").to_pylist()
    void = {row["problem_id"] for row in read_table(mixed, "attempts").to_pylist() if row["void"]}
    for domain in BOTH:
        written = [
            row
            for row in proposals
            if row["valid"] and row["problem_id"] not in void
            if (task := TaskType(row["task"])).domain == domain and task.kind is not Kind.PROGRAM
        ]
        totals = [line[f"archive/total_problems/{domain}"] for line in log]
        assert totals[-1] == len(written) and all(earlier <= later for earlier, later in pairwise(totals))


def test_references_are_of_the_proposer_s_own_domain(tmp_path):
    with build_run(MIXED) as run:
        fill_buffer(run)
        from populora.training.propose import proposal_requests

        for request in proposal_requests(run, 1):
            assert request.source.task.domain == request.task.domain
            assert f"<{request.task}>" in request.prompt


@pytest.mark.slow
def test_a_run_in_sql_alone_has_the_names_of_a_run_in_python(tmp_path):
    train(replace(SQL, steps=1), tmp_path / "run", Silent())
    (line,) = read_log(tmp_path / "run")
    assert {"archive/coverage", "teacher/validity/sql_f", "held_out/accuracy"} <= set(line)
    assert not any("code_" in name or name.endswith(("/sql", "/python")) for name in line)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"base": BaseConfig(path="tiny"), "evaluation": EvaluationConfig(every=0)}, "no problem of sql_i: choose a base that knows"),
        ({"base": BaseConfig(path="tiny")}, "held-out suite of 'tiny' has no sql_i"),
        ({"domains": ("sqll",)}, "no domain 'sqll'. Did you mean 'sql'?"),
    ],
)
def test_a_base_or_a_name_that_does_not_fit_the_domain_is_refused_before_a_run_begins(tmp_path, changes, words):
    with pytest.raises(ConfigError) as refusal:
        train(replace(SQL, **changes), tmp_path / "run", Silent())
    assert words in str(refusal.value).replace("‘", "'") and not (tmp_path / "run").exists()
