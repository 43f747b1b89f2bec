"""The display of a running run: the four methods that training calls, and the display that prints one line a step.

`populora.runs.live` draws a table instead, on a terminal.
"""

import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from rich.console import Console

from populora.core.output import discard_output
from populora.core.types import Role, task_types
from populora.domains.registry import load_domain
from populora.runs.step_record import StepRecord
from populora.runs.style import describe_evolution, format_duration
from populora.runs.summary import Summary, print_summary


class Display(AbstractContextManager, Protocol):
    """Shows the events of a training. Leaving its block restores the terminal, also after an error."""

    def phase(self, name: str) -> None:
        """Show that a phase of the step has begun."""

    def remark(self, text: str) -> None:
        """Show something that the user should know; it stays on the screen."""

    def step(self, record: StepRecord, metrics: Mapping[str, float]) -> None:
        """Show a finished step."""

    def close(self, summary: Summary) -> None:
        """Show the summary of the ended run."""


class Eta:
    """Estimates the seconds that are left, by the mean of the last ten steps."""

    def __init__(self, steps: int):
        self._steps = steps
        self._recent: deque[float] = deque(maxlen=10)

    def left(self, record: StepRecord) -> float:
        """Count a finished step and return the seconds that the remaining ones will take."""
        self._recent.append(sum(record.seconds.values()))
        return sum(self._recent) / len(self._recent) * (self._steps - record.step)


class PlainDisplay(AbstractContextManager):
    """Prints one line of ASCII a step, first the run's folder and phase, and once that it is stopping, as long as somebody reads."""

    def __init__(self, folder: Path, steps: int, stopping: Callable[[], bool], console: Console):
        self._folder, self._steps, self._stopping, self._console = folder, steps, stopping, console
        self._eta = Eta(steps)
        self._started = self._announced_stop = False

    def phase(self, name: str) -> None:
        if not self._started:
            self._started = True
            self._print(f"{self._folder}, {self._steps} steps: {name}")
        if self._stopping() and not self._announced_stop:
            self._announced_stop = True
            self._print("stopping: this step will be finished and checkpointed (Ctrl-C again stops at once)")

    def remark(self, text: str) -> None:
        self._print(f"populora: {text}")

    def step(self, record: StepRecord, metrics: Mapping[str, float]) -> None:
        self._print(step_line(record, metrics, self._steps, self._eta.left(record)))

    def close(self, summary: Summary) -> None:
        with self._unread():
            print_summary(self._console, summary)

    def __exit__(self, *_: object) -> None:
        return None

    def _print(self, line: str) -> None:
        with self._unread():
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def _unread(self) -> Iterator[None]:
        """Go on without printing where nobody reads any more or a disk is full, because hours of training are worth more than lines."""
        try:
            yield
        except OSError:
            self._console.quiet = True
            discard_output()
            with suppress(OSError):  # both streams may have gone to the same reader
                sys.stderr.write(f"populora: the output cannot be written any more; the run in {self._folder} goes on without it\n")


def step_line(record: StepRecord, metrics: Mapping[str, float], steps: int, left: float) -> str:
    """Return ``step  12/30  9.8s  solve 0.52 (i 0.61 o 0.49 f 0.47)  valid 0.93  difficulty 0.48  loc 5.3 …`` in plain ASCII.

    Several domains have their task types in full, and their own shares of valid problems.
    """

    def value(name: str, digits: int = 2) -> str:
        return f"{metrics[name]:.{digits}f}" if name in metrics else "-"

    several = len(record.domains) > 1
    types = " ".join(f"{task if several else task.kind} {value(f'student/solve_rate/{task}')}" for task in task_types(record.domains))
    valid = " ".join(f"{domain} {value(f'teacher/validity/{domain}')}" for domain in record.domains)
    sizes = [load_domain(domain).shown[0] for domain in record.domains]
    parts = [
        f"step {record.step:>{len(str(steps))}}/{steps}",
        f"{sum(record.seconds.values()):.1f}s",
        f"solve {value('student/solve_rate')} ({types})",
        f"valid {value('teacher/validity')}" + (f" ({valid})" if several else ""),
        f"difficulty {value('teacher/difficulty')}",
        *(f"{size} {value(f'teacher/{size}', 1)}" for size in dict.fromkeys(sizes)),
        f"tokens T {value('teacher/response_length', 0)} S {value('student/response_length', 0)}",
    ]
    if "rating/mu/teacher" in metrics:
        parts.append(f"mu T {value('rating/mu/teacher', 1)} S {value('rating/mu/student', 1)}")
    agents = [member.rating.mu for member in record.members if member.role is Role.AGENT]
    if len(agents) > 1:  # the mean of those who play each other hardly moves, and a single agent plays nobody
        parts.append(f"mu A {min(agents):.1f} to {max(agents):.1f}")
    if record.step < steps:
        parts.append(f"left {format_duration(left)}")
    parts += describe_evolution(record.evolution)
    return "  ".join(parts)
