"""Figures of a report, and the runs that they are made from."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from populora.evals.text_table import TextTable
from populora.report.arms import Arm
from populora.runs.style import plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Figure:
    """One figure of a report."""

    name: str
    """Name of its files and its anchor in the page."""
    title: str
    paper: str
    """Its name in the paper; empty if the paper has none."""
    definition: str
    """The caption: the plotted quantities, in full sentences."""
    source: str
    """The columns of the run directory that it is computed from."""
    runs: str
    rows: Sequence[Record]
    """The numbers as records with equal keys."""
    drawing: Callable[[], Drawing]
    tables: tuple[TextTable, ...] = ()
    domain: str = ""
    """The domain of a figure about one of several."""

    def draw(self) -> Drawing:
        """Draw it anew, with the fonts and colours of the page."""
        from matplotlib import rc_context

        from populora.report.drawing import STYLE

        with rc_context(STYLE):
            return self.drawing()

    def csv(self) -> str:
        """Return the records as CSV with a header. Lines end with CR LF, so that carriage returns in programs are quoted."""
        text = io.StringIO()
        writer = csv.DictWriter(text, list(self.rows[0]) if self.rows else [])
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue()


@dataclass(frozen=True)
class MissingFigure:
    """A figure that cannot be made, and the reason."""

    name: str
    title: str
    paper: str
    reason: str
    domain: str = ""


@dataclass(frozen=True)
class Study:
    """The arms, folders of evaluations and of a retention grid, and options of a report (`populora.cli.report`)."""

    arms: tuple[Arm, ...]
    evaluations: tuple[Path, ...] = ()
    retention: Path | None = None
    published: bool = False
    smooth: int = 5

    @property
    def populations(self) -> tuple[Arm, ...]:
        return tuple(arm for arm in self.arms if not arm.single_agent)

    @property
    def begun(self) -> Study:
        """The study of the runs that have a step."""
        arms = [replace(arm, runs=tuple(run for run in arm.runs if run.metrics.last_step)) for arm in self.arms]
        return replace(self, arms=tuple(arm for arm in arms if arm.runs))

    @property
    def not_begun(self) -> str:
        """A sentence that names the other runs, empty if there are none."""
        names = ", ".join(run.name for arm in self.arms for run in arm.runs if not run.metrics.last_step)
        return f" Left out, because they have no step: {names}." if names else ""

    @property
    def domains(self) -> tuple[str, ...]:
        """The domains of all runs."""
        return tuple(dict.fromkeys(domain for arm in self.arms for run in arm.runs for domain in run.config.domains))

    def within(self, identity: tuple[str, str, str], domain: str) -> tuple[tuple[str, str, str], str]:
        """Return name, title and paper's name of a figure about one domain, and its section: as given and none if there is no other."""
        name, title, paper = identity
        return ((f"{name}_{domain}", f"{title}: {domain}", paper), domain) if len(self.domains) > 1 else (identity, "")

    @property
    def main(self) -> Arm | None:
        """The arm of the figures about one population: the largest that has a step, a baseline only if there is no other."""
        return max(
            self.populations, key=lambda arm: (any(run.metrics.last_step for run in arm.runs), not arm.baseline, arm.adapters), default=None
        )


def describe_runs(arms: Sequence[Arm]) -> str:
    """Return a text such as ``baseline (1 agent): 2 runs, seeds 0, 1; 4T+4S: 1 run, seed 0``."""
    seeds = {arm.label: f"seed{'s' if len(arm.runs) > 1 else ''} {', '.join(map(str, arm.seeds))}" for arm in arms}
    return "; ".join(f"{arm.label}: {plural(len(arm.runs), 'run')}, {seeds[arm.label]}" for arm in arms)


def describe_first_run(arm: Arm) -> str:
    """Return the name and seed of an arm's first run, for a figure about one run."""
    count = len(arm.runs)
    first_of = f" (the first of {count})" if count > 1 else ""
    return f"{arm.label}: run {arm.runs[0].name}, seed {arm.seeds[0]}{first_of}"
