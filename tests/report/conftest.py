"""Runs that tests read and do not change, written once."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from report_runs import AGENT, CONFIG, MIXED, SQL, study_of, write_run

from populora.report import page as module
from populora.report.figures import make_figures


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, make_record) -> dict[str, Path]:
    """``pair``, ``pair-1``: 2T+2S in two seeds; ``agent``, ``agent-1``, ``agent-2``: single agents in three. To be read only.

    ``sql``, ``mixed``, ``mixed-1``, ``lost``: 2T+2S of SQL, of Python and SQL, and of both without any valid problem of SQL.
    """
    root = tmp_path_factory.mktemp("runs")
    made = {"pair": CONFIG, "pair-1": replace(CONFIG, seed=1)}
    made |= {"agent": AGENT, "agent-1": replace(AGENT, seed=1), "agent-2": replace(AGENT, seed=2)}
    made |= {"sql": SQL, "mixed": MIXED, "mixed-1": replace(MIXED, seed=1)}
    made = {name: write_run(root / name, make_record, config) for name, config in made.items()}
    return made | {"lost": write_run(root / "lost", make_record, replace(MIXED, seed=2), lost="sql")}


@pytest.fixture
def copied(runs: dict[str, Path], tmp_path: Path) -> Callable[..., Path]:
    """``copied("pair")``: a copy of a run that a test may damage."""

    def copy(name: str = "pair", to: str = "") -> Path:
        return Path(shutil.copytree(runs[name], tmp_path / (to or name)))

    return copy


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return ``reported(run, baselines=(other,))``, which makes the page. Figures are drawn, but not rendered, which takes seconds."""
    monkeypatch.setattr(module, "svg", lambda figure: f"<svg>{len(figure.draw().axes)}</svg>")

    def make(*folders: Path, baselines: tuple[Path, ...] = ()) -> str:
        study = study_of(*folders, baselines=baselines)
        return module.page(study, make_figures(study))

    return make
