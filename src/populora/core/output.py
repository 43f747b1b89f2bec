"""Standard output of the commands, by rich. A pipe that nobody reads any more is an error here; rich would end the process by itself."""

import os
import sys

from rich.console import Console


class OutputConsole(Console):
    """Prints without colours for numbers and words; raises `BrokenPipeError` when a reader such as ``head`` has gone."""

    def __init__(self, *, quiet: bool = False):
        super().__init__(highlight=False, quiet=quiet)

    def on_broken_pipe(self) -> None:
        """Pass on the error, inside of whose handler rich calls this."""
        raise  # noqa: PLE0704


def discard_output() -> None:
    """Send what is still written to standard output nowhere, or the flush at exit would fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
