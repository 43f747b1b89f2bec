"""The live table of a run: progress of the step, metrics with their trends, ratings and matchups.

The matchups (`populora.runs.live_matchups`) are next to the metrics if the terminal is wide enough, else below them.
"""

import re
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from rich import box
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from populora.core.types import Matchup, Member, Role, task_types
from populora.domains.registry import load_domain
from populora.runs.display import Eta
from populora.runs.highlights import Log
from populora.runs.live_matchups import draw_matchups
from populora.runs.step_record import StepRecord
from populora.runs.style import CAPTIONS, PHASES, describe_evolution, format_duration, format_metric, sparkline
from populora.runs.summary import Summary, print_summary
from populora.sandbox.runner import PYTHON

FIRST = ("student/solve_rate", "teacher/difficulty", "teacher/validity")
LAST = ("teacher/response_length", "student/response_length")
"""Metrics above and below the complexity metrics of the domains. The coverage of each domain comes last."""
TREND = 10
"""Cells of a sparkline."""
OF_MEMBER = re.compile(r"/[TSA]\d+(/|$)")


@dataclass(frozen=True)
class View:
    """The state of the screen, with the metrics of the finished steps and the seconds that are left."""

    folder: Path
    steps: int
    history: tuple[Mapping[str, float], ...] = ()
    phase: str = ""
    elapsed: float = 0.0
    left: float | None = None
    members: tuple[Member, ...] = ()
    matchups: tuple[Matchup, ...] = ()
    births: tuple[str, ...] = ()
    stopping: bool = False
    domains: tuple[str, ...] = (PYTHON,)

    def __rich__(self) -> RenderableType:
        """Draw the whole screen, for any width from 60 columns on."""
        parts = [*_heading(self), _phases(self)]
        if not self.history:
            return Group(*parts, Text("\nThe table opens when the first step is finished.", "dim"))
        return Group(
            *parts,
            Columns([_metrics(self), draw_matchups(self.members, self.matchups, self.history)], padding=(0, 4)),
            *(Text(line, "dim") for line in self.births),
        )


class LiveDisplay(AbstractContextManager):
    """Draws the live table twice a second until it is closed."""

    def __init__(
        self, folder: Path, steps: int, history: Log, stopping: Callable[[], bool], console: Console, domains: tuple[str, ...] = (PYTHON,)
    ):
        self._view = View(folder, steps, tuple(map(_of_all, history)), domains=domains)
        self._eta, self._stopping, self._console = Eta(steps), stopping, console
        self._started = time.monotonic()
        self._live = Live(console=console, refresh_per_second=2, transient=True, get_renderable=self._now)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def phase(self, name: str) -> None:
        self._view = replace(self._view, phase=name)

    def remark(self, text: str) -> None:
        self._console.print(f"populora: {text}", markup=False, highlight=False)

    def step(self, record: StepRecord, metrics: Mapping[str, float]) -> None:
        earlier = tuple(line for line in self._view.history if line["step"] < record.step)
        births = tuple(f"step {record.step}: {event}" for event in describe_evolution(record.evolution))
        self._view = replace(
            self._view, history=(*earlier, {"step": record.step, **_of_all(metrics)}), left=self._eta.left(record), members=record.members,
            matchups=record.matchups, births=(births + self._view.births)[:4], phase="",
        )  # fmt: skip

    def close(self, summary: Summary) -> None:
        self._live.stop()
        print_summary(self._console, summary)

    def _now(self) -> View:
        return replace(self._view, elapsed=time.monotonic() - self._started, stopping=self._stopping())


def _of_all(line: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics that are drawn: without those of single members, which are gigabytes in a long run of many."""
    return {name: value for name, value in line.items() if not OF_MEMBER.search(name)}


def _heading(view: View) -> list[RenderableType]:
    sizes = " + ".join(f"{count}{role.value[0].upper()}" for role in Role if (count := sum(m.role is role for m in view.members)))
    step, left = int(view.history[-1]["step"]) if view.history else 0, "…" if view.left is None else format_duration(view.left)
    line = Table.grid("", Column(justify="right"), expand=True)
    title = Text.assemble(("populora", "bold"), f"  {view.folder}", (f"  {sizes}", "dim"), overflow="ellipsis", no_wrap=True)
    line.add_row(title, Text(f"step {step} of {view.steps}   {format_duration(view.elapsed)}   left {left}", no_wrap=True))
    return [line, Padding(ProgressBar(view.steps, step, complete_style="green", finished_style="green"), 0)]


def _phases(view: View) -> Text:
    if view.stopping:
        return Text("stopping: this step is finished and checkpointed first (Ctrl-C again stops at once)", "bold yellow")
    if view.phase not in PHASES:
        return Text(view.phase, "bold")
    text, current = Text(overflow="ellipsis", no_wrap=True), PHASES.index(view.phase)
    for index, name in enumerate(PHASES):
        text.append(f"{name}  ", "bold" if index == current else "dim" if index > current else "")
    return text


def _metrics(view: View) -> Table:
    tasks, domains = task_types(view.domains), [load_domain(name) for name in view.domains]
    columns = [Column(caption, justify="right", min_width=7) for caption in ("all", *tasks)]
    table = Table(Column(no_wrap=True), *columns, Column(" trend", no_wrap=True), box=box.SIMPLE_HEAD, pad_edge=False, padding=0)
    latest = view.history[-1]
    captions = {name: CAPTIONS[name] for name in FIRST}
    captions |= {f"teacher/{metric}": domain.label(metric) for domain in domains for metric in domain.shown}
    captions |= {name: CAPTIONS[name] for name in LAST}
    several = [(f"/{domain.name}", f" of {domain.name}") for domain in domains] if len(domains) > 1 else [("", "")]
    captions |= {f"archive/coverage{ending}": CAPTIONS["archive/coverage"] + subject for ending, subject in several}
    for name, caption in captions.items():
        trace = [line[name] for line in view.history if name in line]
        names = (name, *(f"{name}/{task}" for task in tasks))
        values = (format_metric(name, latest[key]) if key in latest else "" for key in names)
        table.add_row(caption, *values, f" {sparkline(trace, TREND)}")
    return table
