"""What `populora breed` tells: the operators, a child's summary, and what to beware of."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from populora.cli.loading import load_torch
from populora.core.config import EvolutionConfig
from populora.core.types import Lineage

if TYPE_CHECKING:
    from populora.adapters.adapter import Adapter

COMMON_BASIS = 0.5
"""Cosine between the A of two parents from which on their factors count as written in one basis."""


def explained() -> Table:
    """Every operator, with its strengths and what its child is. Raises `ConfigError` for a third-party one that does not load."""
    load_torch()
    from populora.adapters.operators import available_operators

    operators = available_operators()
    caption = (
        f"In the default pool of evolution: {', '.join(EvolutionConfig().operators)}. With --refactor: "
        f"{', '.join(name for name, operator in operators.items() if operator.takes_refactor)}. docs/operators.md has the formulas."
    )
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, caption=caption, caption_justify="left")
    table.add_column("operator", no_wrap=True)
    table.add_column("parents", justify="right")
    table.add_column("strengths", no_wrap=True)
    table.add_column("child")
    for name, operator in operators.items():
        named = Text.assemble((name, "bold"), f"\n{operator.alias}" if operator.alias != name else "")
        strengths = "\n".join(f"{strength}={value}" for strength, value in operator.strengths.items())
        table.add_row(named, str(operator.arity), Text(strengths), Text(operator.summary))
    return table


def about_bases(lineage: Lineage, parents: Sequence[Adapter]) -> list[str]:
    """A warning where factors are mixed that have nothing to do with each other."""
    from populora.adapters.operators import get_operator
    from populora.adapters.operators.breeding import basis_cosine

    operator = get_operator(lineage.operator)
    if not operator.mixes_factors or lineage.strength.get("space") == "delta" or (cosine := basis_cosine(*parents)) > COMMON_BASIS:
        return []
    warning = f"The parents' A have a cosine of {cosine:.2f}: their factors share no basis, and {operator.name} mixes them entry by entry."
    return [f"{warning} x2, x3, and x1 with space=delta do not need one."]


def summary(out: Path, parents: Sequence[Path], lineage: Lineage, modules: int, marks: Sequence[float]) -> Table:
    """How the child was bred and how far it is from its parents; ``marks`` are the clock before and after each phase."""
    table = Table.grid(padding=(0, 2))
    strength = ", ".join(f"{name}={value}" for name, value in lineage.strength.items())
    table.add_row(Text(str(out), "bold"), Text(" ".join((lineage.operator, strength))), Text(f"refactor {lineage.refactor}", "dim"))
    table.add_row("norm ratio", f"{lineage.norm_ratio:.4f}", Text("norm of its delta over the mean of its parents'", "dim"))
    for parent, cosine in zip(parents, lineage.cosines, strict=True):
        table.add_row("cosine", f"{cosine:.4f}", Text(f"to {parent}", "dim"))
    table.add_row("effective rank", f"{lineage.effective_rank:.2f}", Text(f"mean over {modules} modules", "dim"))
    for parent, recorded in zip(parents, lineage.parents, strict=True):
        table.add_row("parent", recorded[-64:][:16], Text(f"{parent}", "dim"))
    table.add_row("child", lineage.fingerprint[:16], Text(f"generation {lineage.generation}", "dim"))
    table.add_row("stream", "/".join(map(str, lineage.stream)), Text(f"seed {lineage.seed}", "dim"))
    spent = [later - earlier for earlier, later in pairwise(marks)]
    parts = ", ".join(f"{name} {seconds:.2f}" for name, seconds in zip(("start", "read", "breed", "write"), spent, strict=True))
    table.add_row("seconds", f"{sum(spent):.2f}", Text(parts, "dim"))
    return table
