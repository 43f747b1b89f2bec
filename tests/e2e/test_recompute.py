"""The numbers of whole runs, computed again by scripts that know nothing but the files (examples/recompute.py, examples/regrade.py)."""

import ast
import json
import runpy
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest
from mixed_run import MIXED, write_run
from report_runs import rewrite
from small_run import SMALL, Silent

from populora.cli.report import read_study
from populora.core.config import EvaluationConfig, PopulationConfig
from populora.report.figure import Figure
from populora.report.figures import make_figures
from populora.training.loop import train

EXAMPLES = Path(__file__).parents[2] / "examples"
WITHOUT_POPULORA = "import runpy, sys; sys.modules['populora'] = None; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"
FIVE_STEPS = replace(SMALL, steps=5, evaluation=EvaluationConfig(), league=replace(SMALL.league, unsolved="nobody"))
AGENT = replace(
    FIVE_STEPS,
    population=PopulationConfig(single_agent=True),
    learner=replace(SMALL.learner, whitening="per_type", role_weights="equal", loss_aggregation="sequence_mean", base_kl=0.02),
    rewards=replace(SMALL.rewards, boundary=-0.5, valid_proposal="learnability"),
    tasks=replace(SMALL.tasks, extraction="lenient"),
    selfplay=replace(SMALL.selfplay, buffer_share=0.4, train_problems=SMALL.selfplay.prompts_per_type + 1),
)


CONFIGS = {  # a population with two evolutions, two that are culled by other rules, one of two agents, and the single agent
    "population": FIVE_STEPS,
    "random": replace(FIVE_STEPS, evolution=replace(SMALL.evolution, cull="random")),
    "reward": replace(FIVE_STEPS, evolution=replace(SMALL.evolution, teacher_fitness="reward", broken_valid_rate=0.0)),
    "shared": replace(
        FIVE_STEPS, population=PopulationConfig(2, 2, shared_adapters=True), evolution=replace(SMALL.evolution, broken_valid_rate=0.95)
    ),
    "agent": AGENT,
}
DOMAIN_CONFIGS = {
    "mixed": MIXED,
    "sql": replace(MIXED, domains=("sql",)),
    "single": replace(MIXED, population=PopulationConfig(single_agent=True)),
}


@pytest.fixture(scope="module")
def make_run(tmp_path_factory):
    """Return a function that makes a run once, and returns its folder and that of the numbers of its figures."""

    @cache
    def folders(name):
        run, figures = tmp_path_factory.mktemp("recomputed") / name, tmp_path_factory.mktemp("figures")
        if name in CONFIGS:
            train(CONFIGS[name], run, Silent())
        else:
            write_run(run, DOMAIN_CONFIGS[name])
        for figure in make_figures(read_study([run])):
            if isinstance(figure, Figure):
                (figures / f"{figure.name}.csv").write_text(figure.csv(), encoding="utf-8", newline="")
        return run, figures

    return folders


@pytest.fixture
def copied(make_run, tmp_path):
    run, figures = make_run("population")
    shutil.copytree(run, tmp_path / "population", symlinks=True)
    shutil.copytree(figures, tmp_path / "population_figures")
    return tmp_path


@pytest.fixture
def mixed(make_run, tmp_path):
    return Path(shutil.copytree(make_run("mixed")[0], tmp_path / "mixed"))


def run_script(name, *arguments):
    """Run an example in a process that cannot import populora."""
    command = [sys.executable, "-c", WITHOUT_POPULORA, str(EXAMPLES / name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def recompute(*arguments):
    """Run it in this process, which is quicker."""
    return runpy.run_path(str(EXAMPLES / "recompute.py"))["main"](*arguments)


def checked_values(printed):
    """Return how many values each line says that it compared."""
    return {name: int(rest.split()[0]) for name, rest in (line.split(": ", 1) for line in printed.splitlines())}


@pytest.mark.parametrize(
    "name",
    [
        "population",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("random", "reward", "agent")),
        pytest.param("shared", marks=pytest.mark.thorough),
    ],
)
def test_every_number_of_a_run_follows_from_its_files(make_run, name):
    done = run_script("recompute.py", *make_run(name))
    assert (done.returncode, done.stderr) == (0, "") and "DIFFERS" not in done.stdout
    counts = checked_values(done.stdout)
    members, pairs = {"shared": (2, 2), "agent": (1, 1)}.get(name, (4, 2))
    assert counts["ratings.mu"] == 5 * members and counts["matchups.expected"] == 5 * pairs
    assert counts["proposals.reward"] == counts["proposals.advantage"] == 45 * pairs
    assert counts["metrics.jsonl student/solve_rate"] > 20 and counts["complexity.csv teacher/cyclomatic"] > 5
    assert ("children.parents" in counts) is (name != "agent")


@pytest.mark.parametrize(
    "name", [pytest.param("mixed", marks=pytest.mark.slow), *(pytest.param(name, marks=pytest.mark.thorough) for name in ("sql", "single"))]
)
def test_every_number_of_a_run_of_other_domains_follows_from_its_files(make_run, capsys, name):
    assert recompute(*make_run(name)) == 0
    counts = checked_values(capsys.readouterr().out)
    assert counts["metrics.jsonl teacher/joins"] > 20 and counts["matchups.expected"] == {"single": 3}.get(name, 6)
    columns = {column for column in counts if column.startswith("matchups.") and column.endswith(("_python", "_sql"))}
    domains = [] if name == "sql" else ["python", "sql"]
    assert columns == {f"matchups.{column}_{domain}" for column in ("mean_rho", "problems") for domain in domains}
    assert counts["metrics.jsonl archive/total_problems"] == 3 * max(1, len(domains))
    figures = {"sql": "complexity.csv teacher/joins"}.get(name, "complexity_sql.csv teacher/joins")
    assert counts[figures] > 5 and (name != "mixed" or counts["rating_sources.csv matchup/mean_rho"] == 6)


@pytest.mark.parametrize(
    ("table", "column", "change", "named"),
    [
        ("matchups", "mean_rho_sql", lambda value: value + 1e-6, "matchups.mean_rho_sql"),
        ("matchups", "problems_python", lambda value: value + 1, "matchups.problems_python"),
        ("proposals", "joins", lambda value: 9 if value is None else None, "metrics.jsonl teacher/joins"),
        ("proposals", "valid", lambda value: not value, "metrics.jsonl teacher/validity"),
    ],
)
@pytest.mark.slow
def test_a_changed_value_of_a_domain_is_found(mixed, capsys, table, column, change, named):
    rewrite(mixed, table, 2, changed(column, change))
    assert recompute(mixed) == 1
    assert f"{named}: " in "".join(line for line in capsys.readouterr().out.splitlines(keepends=True) if "DIFFERS" in line)


@pytest.mark.slow
def test_answers_in_sql_get_their_verdicts_again_also_with_rows_in_another_order(make_run):
    done = run_script("regrade.py", make_run("mixed")[0])
    assert done.returncode == 0, done.stdout
    assert done.stderr.count("populora verify: domain ") == 2 and min(checked_values(done.stdout).values()) > 100


@pytest.mark.slow
def test_a_changed_verdict_and_a_changed_output_of_sql_are_found(mixed):
    rewrite(mixed, "attempts", 1, changed("correct", lambda value: not value))
    rewrite(mixed, "problems", 2, changed("shown", lambda pairs: [{**pair, "output": pair["output"] + "\n7"} for pair in pairs]))
    done = run_script("regrade.py", mixed)
    lines = {line.partition(":")[0]: line for line in done.stdout.splitlines() if line[0] != " "}
    assert done.returncode == 1 and lines["attempts.correct"].endswith(" 1 differ") and lines["problems.output"].endswith(" 1 differ")
    assert "'role': 'solution'" in done.stdout and "SELECT" in done.stdout


def changed(column, change):
    """Return a change of a table in one column: of its last row, or of the last attempt that metrics of answers count."""

    def apply(table):
        values, uncounted = table[column].to_pylist(), [False] * len(table)
        if "filled" in table.column_names:
            uncounted = [filled or void for filled, void in zip(table["filled"].to_pylist(), table["void"].to_pylist(), strict=True)]
        row = max(row for row, left_out in enumerate(uncounted) if not left_out)
        values[row] = change(values[row])
        return table.set_column(table.column_names.index(column), column, pa.array(values, table.schema.field(column).type))

    return apply


@pytest.mark.parametrize(
    ("table", "column", "step", "change", "named"),
    [
        ("proposals", "reward", 1, lambda value: value + 0.25, "proposals.reward"),
        ("proposals", "rho", 2, lambda value: 1.0 - (value or 0.0), "proposals.rho"),
        ("proposals", "advantage", 3, lambda value: value + 1e-6, "proposals.advantage"),
        ("attempts", "reward", 1, lambda value: -value, "attempts.reward"),
        ("attempts", "advantage", 5, lambda value: None if value is not None else 0.0, "attempts.advantage"),
        ("attempts", "formatted", 4, lambda value: not value, "metrics.jsonl student/format_rate"),
        ("matchups", "expected", 2, lambda value: value + 1e-6, "matchups.expected"),
        ("matchups", "outcome", 3, lambda value: "student" if value != "student" else "teacher", "matchups.outcome"),
        ("ratings", "mu", 5, lambda value: value + 1e-6, "ratings.mu"),
        ("ratings", "protected_until", 3, lambda value: value + 1, "ratings.protected_until"),
        ("children", "parents", 2, lambda value: [parent.replace("#0", "#7") for parent in value], "children.parents"),
    ],
)
def test_a_changed_value_is_found_and_its_table_named(copied, capsys, table, column, step, change, named):
    rewrite(copied / "population", table, step, changed(column, change))
    assert recompute(copied / "population") == 1
    assert f"{named}: " in "".join(line for line in capsys.readouterr().out.splitlines(keepends=True) if "DIFFERS" in line)


def test_rounding_is_no_difference(copied, capsys):
    rewrite(copied / "population", "ratings", 5, changed("mu", lambda value: value * (1 + 1e-12)))
    assert recompute(copied / "population") == 0
    assert "ratings.mu: 20 values, largest difference 1.0e-12\n" in capsys.readouterr().out


def test_a_child_that_nobody_made_way_for_is_found(copied, capsys):
    rewrite(copied / "population", "children", 2, lambda table: table.slice(1))
    assert recompute(copied / "population") == 1
    assert "children.member: 5 values, largest difference 1.0e+00  DIFFERS in step 2" in capsys.readouterr().out


def test_a_changed_log_and_a_changed_figure_are_found(copied, capsys):
    log = copied / "population" / "metrics.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    lines[2]["teacher/validity/T1"] += 0.01
    del lines[3]["student/solve_rate"]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    figure = copied / "population_figures" / "trueskill.csv"
    figure.write_text(figure.read_text().rstrip().rpartition(",")[0] + ",0.123\n")
    assert recompute(copied / "population", copied / "population_figures") == 1
    differing = [line.partition(": ")[0] for line in capsys.readouterr().out.splitlines() if "DIFFERS" in line]
    assert differing == ["metrics.jsonl teacher/validity", "trueskill.csv matchup/student_wins", "metrics.jsonl"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["population", "agent"])
def test_problems_and_answers_get_their_outputs_and_verdicts_again(make_run, name):
    done = run_script("regrade.py", make_run(name)[0])
    assert done.returncode == 0, done.stdout + done.stderr
    counts = checked_values(done.stdout)
    assert counts.keys() == {"problems.output", "attempts.formatted", "attempts.lenient", "attempts.correct"} and min(counts.values()) > 100


@pytest.mark.slow
def test_a_verdict_or_an_output_that_was_changed_is_found(copied):
    def other_output(hidden_or_shown):
        return [{**pair, "output": pair["output"] + "0"} for pair in hidden_or_shown]

    rewrite(copied / "population", "attempts", 1, changed("correct", lambda value: not value))
    rewrite(copied / "population", "problems", 2, changed("shown", other_output))
    done = run_script("regrade.py", copied / "population")
    assert done.returncode == 1
    assert "attempts.correct: " in done.stdout and " 0 differ" in done.stdout
    lines = {line.partition(":")[0]: line for line in done.stdout.splitlines() if line[0] != " "}
    assert lines["attempts.formatted"].endswith(" 0 differ")
    assert not lines["attempts.correct"].endswith(" 0 differ") and not lines["problems.output"].endswith(" 0 differ")


@pytest.mark.parametrize("name", ["recompute.py", "regrade.py"])
def test_the_scripts_are_short_and_import_numpy_and_pyarrow_at_most(name):
    source = (EXAMPLES / name).read_text("utf-8")
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {module.partition(".")[0] for module in modules} <= {*sys.stdlib_module_names, "numpy", "pyarrow"}
    assert len(source.splitlines()) <= 220
