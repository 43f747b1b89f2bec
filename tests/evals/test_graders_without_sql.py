"""Suites without SQL need neither SQLite nor its parser, which a Python or an installation may lack."""

import subprocess
import sys
from dataclasses import replace

import pytest

from populora.core.errors import ConfigError
from populora.evals.benchmarks import BENCHMARKS
from populora.evals.graders import execution, tiny_suite
from populora.evals.grading import GRADERS, settings_of

TINY_SQL = replace(BENCHMARKS["tiny"], name="tiny_sql")
BLOCKED = """
import sys
sys.modules.update(dict.fromkeys(("sqlite3", "_sqlite3", "sqlglot")))
from populora.core.config import BaseConfig
from populora.engine.model.loading import base_folder
from populora.evals.benchmarks import BENCHMARKS
from populora.evals.eval_records import Item
from populora.evals.grading import open_grader, settings_of
import json

benchmark = BENCHMARKS["tiny"]
rows = map(json.loads, (base_folder(BaseConfig()) / "held_out.jsonl").read_text().splitlines())
fields = next(row for row in rows if row["task"] == "code_o")
answer = "so</think><answer>```output\\n" + fields["shown"][0]["output"] + "\\n```</answer>"
with open_grader(benchmark, 1, allow_weak=True) as pool:
    grade = settings_of(benchmark).grade(pool.judge, benchmark, Item(fields["id"], fields), answer)
print(grade.reason or grade.correct, *(name for name in ("sqlite3", "sqlglot") if sys.modules[name]))
"""


@pytest.mark.slow
def test_a_suite_of_python_is_graded_without_sqlite_and_its_parser():
    done = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_a_suite_with_sql_needs_them(monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlite3", None)
    for benchmark in (TINY_SQL, BENCHMARKS["spider"]):
        with pytest.raises(ConfigError, match="the domain of SQL needs sqlglot and a Python with sqlite3"):
            settings_of(benchmark)


def test_the_versions_that_decide_verdicts_of_sql_are_facts_of_its_suites():
    for benchmark, runners in ((TINY_SQL, ["sql"]), (BENCHMARKS["spider"], [execution.FILE])):
        settings = settings_of(benchmark)
        assert [runner.domain for runner in settings.limits.runners] == runners and settings.facts.keys() == {"sqlglot", "sqlite"}
    settings = settings_of(BENCHMARKS["tiny"])
    assert (settings.facts, settings.limits) == ({}, tiny_suite.LIMITS) and GRADERS["execution"].limits.runners == ()
