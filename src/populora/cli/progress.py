"""Progress of long work: a counting line on a terminal, else a plain line now and then."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

PLAIN_SECONDS = 30.0  # between two plain lines


@contextmanager
def counting(title: str) -> Iterator[Callable[..., None]]:
    """Yield ``count(done, of, what=title)``, which reports progress until the block ends."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    printed_at, terminal = time.monotonic(), sys.stderr.isatty()
    with Progress(*columns, console=Console(file=sys.stderr), transient=True, disable=not terminal) as progress:
        task = progress.add_task(title, total=None)

        def count(done: int, total: int, label: str = title) -> None:
            nonlocal printed_at
            progress.update(task, completed=done, total=total, description=label)
            if not terminal and time.monotonic() - printed_at >= PLAIN_SECONDS:
                printed_at = time.monotonic()
                sys.stderr.write(f"{label}: {done} of {total}\n")

        yield count
