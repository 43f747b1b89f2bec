"""A line that counts, on a terminal; without one, nothing but the result."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class Count(Protocol):
    """Is told how many are done of how many, and of what if that changes."""

    def __call__(self, done: int, of: int, what: str = "") -> None: ...


@contextmanager
def counting(title: str) -> Iterator[Count]:
    """A function that is told how far the work is; what it was told last is shown until the block ends."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True, disable=not sys.stderr.isatty()) as shown:
        task = shown.add_task(title, total=None)

        def count(done: int, of: int, what: str = "") -> None:
            shown.update(task, completed=done, total=of, description=what or title)

        yield count
