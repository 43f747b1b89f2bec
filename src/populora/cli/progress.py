"""How far long work is: a line that counts on a terminal; without one, a plain line now and then."""

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
    """Is told how many are done of how many, and of what if that changes."""

    def __call__(self, done: int, of: int, what: str = "") -> None: ...


@contextmanager
def counting(title: str) -> Iterator[Count]:
    """A function that is told how far the work is; what it was told last is shown until the block ends."""
    if not sys.stderr.isatty():
        yield _plainly(title)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as shown:
        task = shown.add_task(title, total=None)
        yield lambda done, of, what="": shown.update(task, completed=done, total=of, description=what or title)


def _plainly(title: str) -> Count:
    told = time.monotonic()

    def count(done: int, of: int, what: str = "") -> None:
        nonlocal told
        if time.monotonic() - told >= PLAIN_SECONDS:
            told = time.monotonic()
            sys.stderr.write(f"{what or title}: {done} of {of}\n")

    return count
