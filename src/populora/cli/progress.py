"""Progress of long work: a counting line on a terminal, else a plain line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

PLAIN_SECONDS = 30.0
"""Between two plain lines."""


class Count(Protocol):
    """Reports ``done`` of ``of`` items, and a new title if it changes."""

    def __call__(self, done: int, of: int, what: str = "") -> None: ...


@contextmanager
def counting(title: str) -> Iterator[Count]:
    """Yield a function that reports progress; its last report is shown until the block ends."""
    if not sys.stderr.isatty():
        yield _plainly(title)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, of, what="": progress.update(task, completed=done, total=of, description=what or title)


def _plainly(title: str) -> Count:
    printed_at = time.monotonic()

    def count(done: int, of: int, what: str = "") -> None:
        nonlocal printed_at
        if time.monotonic() - printed_at >= PLAIN_SECONDS:
            printed_at = time.monotonic()
            sys.stderr.write(f"{what or title}: {done} of {of}\n")

    return count
