"""``populora evaluate``: generate, grade and compare; each of them is a command of its own too."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

PARTS = {"grade": "evaluate_grade"}
"""What may follow ``evaluate``, with its module; anything else names what is to be evaluated."""


def main(arguments: Sequence[str]) -> int:
    """Run the part that is asked for; returns its exit code. Raises `PopuloraError`."""
    first = arguments[0] if arguments else ""
    return import_module(f"populora.commands.{PARTS[first]}").main(arguments[1:])
