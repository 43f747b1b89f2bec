"""``populora evaluate``: generate, grade and compare; each of them is a command of its own too."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from populora.evals.data import MissingDataError

PARTS = {"grade": "evaluate_grade"}
"""What may follow ``evaluate``, with its module; anything else names what is to be evaluated."""


def main(arguments: Sequence[str]) -> int:
    """Run the part that is asked for; returns its exit code. Raises `PopuloraError`."""
    first = arguments[0] if arguments else ""
    try:
        return import_module(f"populora.commands.{PARTS[first]}").main(arguments[1:])
    except MissingDataError as error:
        sys.stderr.write(f"populora evaluate: skipped {error}\n")
        return 3
