"""What the user sees while a run goes on: a live table on a terminal, one plain line a step otherwise.

Training knows three methods (`Display`); `open_display` chooses who is behind them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from rich.console import Console

from populora.core.types import TASK_TYPES
from populora.runs.step_record import StepRecord
from populora.runs.style import describe_child, format_duration
from populora.runs.summary import Summary, print_summary


class Display(Protocol):
    """Fed by training."""

    def phase(self, name: str) -> None:
        """A phase of the step under way has begun."""
        ...

    def step(self, record: StepRecord, metrics: Mapping[str, float]) -> None:
        """A step is finished."""
        ...

    def close(self, summary: Summary) -> None:
        """The run has ended; show what came of it."""
        ...


class OpenDisplay(Display, AbstractContextManager, Protocol):
    """A display that the command line opens; leaving the block gives the terminal back, whatever happened."""


def open_display(
    folder: Path,
    steps: int,
    history: Sequence[Mapping[str, float]] = (),
    stopping: Callable[[], bool] = lambda: False,
    console: Console | None = None,
) -> OpenDisplay:
    """Live on a terminal that can draw blocks, else plain lines. ``history`` is the metrics log of a resumed run."""
    console = console or Console(highlight=False)
    if console.is_terminal and not console.is_dumb_terminal and console.encoding.lower().startswith("utf"):
        from populora.runs.live import LiveDisplay

        return LiveDisplay(folder, steps, history, stopping, console)
    return PlainDisplay(folder, steps, stopping, console)


class Eta:
    """Seconds that are left, by the mean of the last ten steps."""

    def __init__(self, steps: int):
        self._steps = steps
        self._recent: deque[float] = deque(maxlen=10)

    def left(self, record: StepRecord) -> float:
        """Count a finished step; the seconds that the remaining ones will take."""
        self._recent.append(sum(record.seconds.values()))
        return sum(self._recent) / len(self._recent) * (self._steps - record.step)


class PlainDisplay(AbstractContextManager):
    """One line of ASCII a step; says first where the run is and what it does, and once that it is stopping."""

    def __init__(self, folder: Path, steps: int, stopping: Callable[[], bool], console: Console):
        self._folder, self._steps, self._stopping, self._console = folder, steps, stopping, console
        self._eta = Eta(steps)
        self._begun = self._told = False

    def phase(self, name: str) -> None:
        if not self._begun:
            self._begun = True
            self._print(f"{self._folder}, {self._steps} steps: {name}")
        if self._stopping() and not self._told:
            self._told = True
            self._print("stopping: this step will be finished and checkpointed (Ctrl-C again stops at once)")

    def step(self, record: StepRecord, metrics: Mapping[str, float]) -> None:
        self._print(step_line(record, metrics, self._steps, self._eta.left(record)))

    def close(self, summary: Summary) -> None:
        print_summary(self._console, summary)

    def __exit__(self, *_: object) -> None:
        return None

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def step_line(record: StepRecord, metrics: Mapping[str, float], steps: int, left: float) -> str:
    """``step  12/30  9.8s  solve 0.52 (i 0.61 o 0.49 f 0.47)  valid 0.93  difficulty 0.48  loc 5.3 …`` in plain ASCII."""

    def shown(name: str, digits: int = 2) -> str:
        return f"{metrics[name]:.{digits}f}" if name in metrics else "-"

    types = " ".join(f"{task.value[-1]} {shown(f'student/solve_rate/{task.value}')}" for task in TASK_TYPES)
    parts = [
        f"step {record.step:>{len(str(steps))}}/{steps}",
        f"{sum(record.seconds.values()):.1f}s",
        f"solve {shown('student/solve_rate')} ({types})",
        f"valid {shown('teacher/validity')}",
        f"difficulty {shown('teacher/difficulty')}",
        f"loc {shown('teacher/loc', 1)}",
        f"tokens T {shown('teacher/response_length', 0)} S {shown('student/response_length', 0)}",
    ]
    if "rating/mu/teacher" in metrics:
        parts.append(f"mu T {shown('rating/mu/teacher', 1)} S {shown('rating/mu/student', 1)}")
    if record.step < steps:
        parts.append(f"left {format_duration(left)}")
    parts += [f"bred {describe_child(child)}" for child in record.children]
    return "  ".join(parts)
