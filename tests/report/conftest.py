"""Runs that tests read and do not change, written once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from report_runs import AGENT, CONFIG, write_run


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, make_record) -> dict[str, Path]:
    """``pair``, ``pair-1``: 2T+2S in two seeds; ``agent``, ``agent-1``, ``agent-2``: single agents in three. To be read only."""
    root = tmp_path_factory.mktemp("runs")
    made = {"pair": CONFIG, "pair-1": replace(CONFIG, seed=1)}
    made |= {"agent": AGENT, "agent-1": replace(AGENT, seed=1), "agent-2": replace(AGENT, seed=2)}
    return {name: write_run(root / name, make_record, config) for name, config in made.items()}


@pytest.fixture
def copied(runs: dict[str, Path], tmp_path: Path) -> Callable[..., Path]:
    """``copied("pair")``: a copy of a run that a test may damage."""

    def copy(name: str = "pair", to: str = "") -> Path:
        return Path(shutil.copytree(runs[name], tmp_path / (to or name)))

    return copy
