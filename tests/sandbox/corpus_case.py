"""The hostile corpus: requests of `populora verify` in twenty classes, each with every outcome that a sandbox that holds may give.

An outcome is ``verdict kind``, ``ok <literal>`` for a program's value, ``correct`` or ``incorrect`` for an answer; ``not ok`` stands for
every verdict but ok. Programs under ``FILTERED`` would do harm without the system-call filter and are not run in the weak tier.
"""

import textwrap
from dataclasses import dataclass
from typing import Any

CANARY = "swordfish"
"""Stands in the environment and in a file of the machine; no result may ever contain it."""
CANARY_FILE = "/tmp/populora_canary.txt"  # noqa: S108 - a place that every program can guess
ADD = "def f(x):\n    return x + 1"


@dataclass(frozen=True)
class Case:
    """One request and what may come of it."""

    group: str
    name: str
    request: dict[str, Any]
    allowed: frozenset[str]
    filtered: bool = False


CASES: list[Case] = []


def program(group: str, name: str, source: str, *allowed: str, inputs: str = "1", filtered: bool = False) -> None:
    """A request to run ``source``; what is indented in this file is dedented."""
    request = {"role": "program", "program": textwrap.dedent(source).strip("\n"), "inputs": inputs}
    CASES.append(Case(group, name, request, frozenset(allowed), filtered))


def body(group: str, name: str, statement: str, *allowed: str, filtered: bool = False) -> None:
    """A request to run ``def f(x): <statement>``, with the modules that the statement names."""
    modules = "os sys time signal socket threading subprocess ctypes itertools re random hashlib uuid math gc select json datetime"
    used = [module for module in modules.split() if f"{module}." in statement]
    imports = f"import {', '.join(used)}\n" if used else ""
    program(group, name, f"{imports}def f(x):\n    {statement}", *allowed, filtered=filtered)


def answer(group: str, name: str, request: dict[str, Any], *allowed: str) -> None:
    CASES.append(Case(group, name, request, frozenset(allowed)))
