"""Execution accuracy: a statement is right if its result on the database is that of the gold statement.

Both run in the sandbox, each in a child of its own, under the guard of the domain of SQL (`populora.domains.sql.runner.sqlite_file`). Rows
compare as in training: as a multiset, or in order if the gold statement orders its result, and 1 equals 1.0. Deviations from the official
evaluations: BIRD compares sets of rows, so that neither number nor order counts; Spider removes DISTINCT, accepts columns in any
order, and for a gold statement with ORDER BY also a statement without that has the rows in order.

A question whose gold statement fails, or whose database is too large, is void: nothing is said about the model.
"""

from contextlib import closing
from dataclasses import replace
from functools import cache

from populora.core.config import TasksConfig
from populora.core.types import task_types
from populora.domains.sql import DOMAIN, REASONS
from populora.evals.benchmarks import Benchmark
from populora.evals.eval_records import Grade, Item
from populora.evals.graders.harness_call import grade_of, run_jobs
from populora.evals.sql_suite import LARGEST_MB, database_text, file_text, is_too_large
from populora.sandbox.pool import Judge
from populora.sandbox.protocol import Job, Limits, Verdict
from populora.sandbox.runner import Runner
from populora.tasks.attempts import explain_mismatch
from populora.tasks.jobs import key_of, reason_of
from populora.tasks.parsing import answer_text, parse_solution, unfenced

FILE = "sqlite"
"""The name under which the sandbox has the runner of SQLite files. It is no domain of training."""
_PROGRAM_TASK = task_types([DOMAIN.name])[-1]


LIMITS = Limits(
    cpu_seconds=60.0, wall_seconds=120.0, memory_mb=4096, max_output_chars=1 << 24, max_source_chars=3 * LARGEST_MB << 19,
)  # fmt: skip
"""The guard's steps decide. The CPU limit is for statements that compare long texts in each step."""


@cache
def limits() -> Limits:
    """Return the limits with the runner of SQLite files. Only here is SQLite needed."""
    import sqlite3

    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript("CREATE TABLE t(a); INSERT INTO t VALUES (1)")
        control = "SELECT a FROM t", file_text(connection.serialize())
    return replace(LIMITS, runners=(Runner(FILE, "populora.domains.sql.runner.sqlite_file", DOMAIN.runner.packages, REASONS, control),))


def extract_statements(completion: str) -> dict[str, str]:
    """Extract the last fence of SQL (``strict``), or where there is none the last of any, or all that follows the reasoning
    (``lenient``).
    """
    content = answer_text(completion) if "<answer>" in completion else completion.rpartition("</think>")[2]
    strict = parse_solution(_PROGRAM_TASK, content) or ""
    return {"strict": strict, "lenient": strict or unfenced(content)}


def grade_execution(pool: Judge, benchmark: Benchmark, item: Item, completion: str) -> Grade:
    """Grade a completion. Reasons: ``no_answer``, ``wrong``, ``wrong_width``, the sandbox's; of a void item ``gold_failed:…`` or
    ``database_too_large``. Raises `SandboxFault`.
    """
    if is_too_large(item.fields["path"]):
        return Grade(item.id, False, "database_too_large", void=True)
    gold = _run(pool, item, item.fields["query"])
    if not gold.ok:
        return Grade(item.id, False, f"gold_failed:{reason_of(gold)}", void=True)
    return grade_of(item, benchmark.primary, extract_statements(completion), lambda text: _reason(pool, item, text, gold))


def _reason(pool: Judge, item: Item, statement: str, gold: Verdict) -> str:
    if not statement:
        return "no_answer"
    return explain_mismatch(_PROGRAM_TASK, _run(pool, item, statement), gold.values, key_of(TasksConfig()))


def _run(pool: Judge, item: Item, statement: str) -> Verdict:
    (verdict,) = run_jobs(pool, [Job("run", statement, (database_text(item.fields["path"]),), domain=FILE)])
    return verdict
