"""Runs of an installed domain, by itself and together with Python. populora's sources know nothing of it."""

import json
import re
import runpy
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from small_run import SMALL, Silent, contents
from tests.domains.conftest import EXAMPLE, forget_domains
from tests.domains.scripted import script

from populora.cli.main import main
from populora.core.config import BaseConfig, Config, EvaluationConfig
from populora.core.errors import RunDirectoryError
from populora.core.types import Example, Kind, Problem, TaskType, task_types
from populora.domains.registry import load_domain
from populora.engine.model.loading import base_folder
from populora.runs.metrics_log import read_log
from populora.runs.tables import read_table
from populora.training.loop import resume, train

METRICS = ["depth", "operators", "names", "constants"]
PYTHON_METRICS = ["ast_depth", "cyclomatic", "loc", "variables"]


@pytest.fixture
def config(calculator, tmp_path, monkeypatch):
    """Three steps on a base that has no seed problems: it proposes them itself. Figures of a report are not drawn, which takes seconds."""
    monkeypatch.setattr("populora.report.page.svg", lambda figure: f"<svg>{figure.name}</svg>")
    monkeypatch.setattr("populora.training.seed_proposals.PROMPTS_PER_ROUND", 6)
    script(monkeypatch)
    folder = tmp_path / "base"
    shutil.copytree(base_folder(BaseConfig()), folder, ignore=shutil.ignore_patterns("seeds.jsonl", "held_out.jsonl"))
    selfplay = replace(SMALL.selfplay, seeds=4, max_response_tokens=48)
    return replace(
        SMALL, domains=("calculator",), steps=3, base=BaseConfig(path=str(folder)), selfplay=selfplay, evaluation=EvaluationConfig()
    )  # fmt: skip


@pytest.mark.thorough
def test_the_calculator_trains_on_seeds_of_its_own_and_is_shown(config, tmp_path, capsys):
    folder = tmp_path / "run"
    train(config, folder, Silent())
    last = read_log(folder)[-1]
    for task in task_types(["calculator"]):
        assert last[f"teacher/validity/{task}"] == (1.0 if task == "calculator_f" else pytest.approx(2 / 3))
        assert last[f"student/solve_rate/{task}"] == pytest.approx(2 / 3)
    assert last["teacher/rejected/error:division_by_zero"] == 4 and last["student/failed/wrong"] > 0
    assert 1 <= last["teacher/operators"] <= 4 and last["archive/coverage"] > 0

    proposals = read_table(folder, "proposals").to_pylist()
    assert set(METRICS) < set(proposals[0]) and "cyclomatic" not in proposals[0]
    assert {tuple(row[name] for name in METRICS) for row in proposals if row["valid"] and row["task"] != "calculator_f"} == {(3, 4, 2, 2)}
    assert json.loads((folder / "run.json").read_text())["domains"] == "calculator 1"

    assert main(["show", str(folder), "--step", "3", "--limit", "0"]) == 0
    printed = capsys.readouterr().out
    assert "calculator_i" in printed and "depth 3, operators 4, variables 2, constants 2" in printed and "x = 0, y = " in printed


@pytest.mark.slow
def test_a_run_resumes_to_the_same_bytes_and_is_reported(config, tmp_path):
    train(config, tmp_path / "undisturbed", Silent())
    stop_after_a_step(config, tmp_path / "run")
    forget_domains()
    resume(tmp_path / "run", Silent())
    assert contents(tmp_path / "run") == contents(tmp_path / "undisturbed")
    page = report(tmp_path / "run")
    assert {"calculator_f", "operators", "constants"} <= page and not {"cyclomatic", "code_f"} & page
    assert recompute(tmp_path / "run") == 0


@pytest.mark.slow
def test_a_run_does_not_resume_under_another_version(config, calculator, tmp_path, monkeypatch):
    stop_after_a_step(config, tmp_path / "run")
    before = contents(tmp_path / "run")
    for change, there in (({"version": "2"}, "calculator 2"), ({"facts": lambda: {"engine": "3.1"}}, r"calculator 1 \(engine 3.1\)")):
        monkeypatch.setattr("calculator_domain.DOMAIN", replace(calculator, **change))
        load_domain.cache_clear()
        with pytest.raises(RunDirectoryError, match=f"expected domains 'calculator 1' as when it began, got '{there}'"):
            resume(tmp_path / "run", Silent())
        assert contents(tmp_path / "run") == before


@pytest.mark.thorough
def test_members_learn_the_calculator_together_with_python(config, tmp_path, capsys):
    """Seeds of both come from a file next to the base, as a user may write it."""
    seeds = (base_folder(BaseConfig()) / "seeds.jsonl").read_text().splitlines()
    seeds += [json.dumps(asdict(seed(task, number))) for task in task_types(["calculator"]) for number in range(1, 5)]
    (Path(config.base.path) / "seeds.jsonl").write_text("\n".join(seeds))
    folder = tmp_path / "run"
    train(replace(config, domains=("python", "calculator"), steps=2), folder, Silent())
    last = read_log(folder)[-1]
    assert last["teacher/validity/calculator"] == pytest.approx(7 / 9) and last["student/solve_rate/calculator"] == pytest.approx(2 / 3)
    assert 0 < last["teacher/validity/python"] <= 1 and last["archive/coverage/python"] > 0 < last["archive/coverage/calculator"]
    rows = [row for row in read_table(folder, "proposals").to_pylist() if row["valid"]]
    for row in rows:
        of_calculator, of_python = ({row[name] is None for name in names} for names in (METRICS, PYTHON_METRICS))
        assert (of_calculator, of_python) == (({False}, {True}) if row["task"].startswith("calculator") else ({True}, {False}))
    assert {row["task"] for row in rows} > {*task_types(["calculator"])}
    assert json.loads((folder / "run.json").read_text())["domains"] == "python 1, calculator 1"
    assert main(["show", str(folder), "--step", "2", "--task", "calculator_o"]) == 0
    assert "operators" in capsys.readouterr().out
    assert {"calculator_f", "operators", "cyclomatic", "code_f"} <= report(folder)
    assert recompute(folder) == 0


def stop_after_a_step(config: Config, folder: Path) -> None:
    """Not earlier: a stop while the base proposes seeds ends the run before its first step."""
    train(config, folder, Silent(), stop=(folder / "metrics.jsonl").exists)
    assert len(read_log(folder)) == 1


def report(folder: Path) -> set[str]:
    """Write the report and return its words."""
    assert main(["report", str(folder)]) == 0
    return set(re.findall(r"\w+", (folder / "report.html").read_text("utf-8")))


def recompute(folder: Path) -> int:
    """Let the example that knows only the files compute the run's numbers again."""
    return runpy.run_path(str(EXAMPLE.parent / "recompute.py"))["main"](folder)


def seed(task: TaskType, number: int) -> Problem:
    """A problem whose outputs Python has computed."""
    examples = [Example(f"x = {value}", str(value * number - 3)) for value in range(4)]
    shown, hidden = (examples[:2], examples[2:]) if task.kind is Kind.PROGRAM else (examples[:1], [])
    return Problem(f"seed-{task}-{number}", task, f"x * {number} - 3", tuple(shown), tuple(hidden), "linear" if hidden else "", "seed")
