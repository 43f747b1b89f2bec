"""``populora evaluate WHAT --suite …``: generate, grade and tabulate; ``generate``, ``grade``, ``table`` and ``compare`` do one of these.

Generation loads the model in this process (or asks an endpoint); grading is a process of its own, without torch. Both go on item by
item where they were stopped. Exit codes: 0; 1 if completions had faults; 3 if a benchmark or a source had to be skipped; 2 for an error.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module

from populora.evals.data import MissingDataError

PARTS = {
    "generate": "evaluate_generate",
    "grade": "evaluate_grade",
    "table": "evaluate_table",
    "compare": "evaluate_compare",
}
"""What may follow ``evaluate``, with its module in `populora.commands`; anything else names what is to be evaluated."""

SKIPPED = 3


def main(arguments: Sequence[str]) -> int:
    """Run the part that is asked for, or all of them; returns the exit code. Raises `PopuloraError`."""
    try:
        if arguments and arguments[0] in PARTS:
            return import_module(f"populora.commands.{PARTS[arguments[0]]}").main(arguments[1:])
        return _all(arguments)
    except MissingDataError as error:
        sys.stderr.write(f"populora evaluate: skipped {error}\n")
        return SKIPPED


def _all(arguments: Sequence[str]) -> int:
    from populora.commands.evaluate_generate import generate_into, parsed

    chosen = parsed(arguments, "evaluate")
    folder, generated = generate_into(chosen)
    # In a process of its own: what a model wrote is graded where no model, GPU or torch is.
    weak = ["--allow-weak"] if chosen.allow_weak else []
    grading = [sys.executable, "-m", "populora.cli", "evaluate", "grade", str(folder), "--workers", str(chosen.workers), *weak]
    graded = subprocess.run(grading, check=False).returncode  # noqa: S603 - our own command line
    if graded not in (0, 1):
        return graded
    from populora.commands.evaluate_table import tabulate

    tabulate([folder], folder, chosen.published)
    return generated or graded
