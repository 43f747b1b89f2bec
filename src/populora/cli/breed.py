"""``populora breed A [B ...] --operator NAME -o OUT``: one child of any PEFT LoRA folders, without a base model."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich import box
from rich.table import Column, Table
from rich.text import Text

from populora.cli.arguments import parse
from populora.core.config import EvolutionConfig
from populora.core.errors import ConfigError
from populora.core.files import disk_errors
from populora.core.output import OutputConsole
from populora.core.types import Lineage


@dataclass(frozen=True)
class Breed:
    """Breed a child of PEFT LoRA folders. Needs no base model and no GPU.

    The child has the rank, the modules and the settings of its first parent, in fp32, and a `lineage.json`: `populora
    replay OUT` breeds it again. docs/breed.md says which adapters can be bred.
    """

    parents: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="A [B ...]")] = ()
    """PEFT folders: one for a mutation, two for a crossover, two or more for `soup`."""
    operator: Annotated[str, tyro.conf.arg(metavar="NAME")] = ""
    """Such as `m1` or `svd_structured`; `--list` explains all."""
    strength: Annotated[tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]], tyro.conf.arg(metavar="NAME=VALUE ...")] = ()
    """Strengths of the operator to override, such as `epsilon=0.2`."""
    refactor: Literal["revive", "balanced"] = "revive"
    """Split of zero singular components into factors: trainable again, or frozen at zero as in the paper."""
    seed: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """The same seed gives the same bytes."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="OUT")] = None
    """Folder to write; it must not exist yet, or be empty."""
    allow_other_base: tyro.conf.FlagCreatePairsOff[bool] = False
    """Accept parents whose settings name different bases: two names of the same weights."""
    list: tyro.conf.FlagCreatePairsOff[bool] = False
    """Explain every operator, and breed nothing."""


def main(arguments: Sequence[str]) -> int:
    """Breed, write and print the summary, or print the list; returns 0. Raises `PopuloraError`, with nothing written."""
    args = parse(Breed, arguments, "breed")
    console = OutputConsole()
    if args.list:
        console.print(operator_table())
        return 0
    out = _check_out(args)
    from populora.adapters.operators.breeding import basis_warning, breed_folders

    child, lineage = breed_folders(args.parents, _plan(args), out, args.allow_other_base)
    console.print(_child_table(args.out or out, args.parents, lineage, len(child.modules)))
    if warning := basis_warning(lineage):
        console.print(Text(warning, "yellow"))
    return 0


def operator_table() -> Table:
    """List every operator with its strengths. Raises `ConfigError` for a third-party one that does not load."""
    from populora.adapters.operators import available_operators

    operators = available_operators()
    refactored = [name for name, operator in operators.items() if operator.takes_refactor]
    caption = f"By default evolution draws from {', '.join(EvolutionConfig().operators)}. --refactor is for {', '.join(refactored)}."
    columns = (Column("operator", no_wrap=True), Column("parents", justify="right"), Column("strengths", no_wrap=True), "child")
    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, caption=caption, caption_justify="left")
    for name, operator in operators.items():
        label = Text.assemble((name, "bold"), f"\n{operator.alias}" if operator.alias != name else "")
        strengths = "\n".join(f"{strength}={value}" for strength, value in operator.strengths.items())
        table.add_row(label, f"{operator.arity}{'+' * operator.takes_more}", Text(strengths), Text(operator.summary))
    return table


def _check_out(args: Breed) -> Path:
    """Return the folder to write, after all checks that need no torch."""
    if not args.parents:
        raise ConfigError("expected PEFT folders, got none: `populora breed A [B ...] --operator NAME -o OUT`")
    if not args.operator:
        raise ConfigError("expected --operator NAME: `populora breed --list` explains every operator")
    if args.out is None:
        raise ConfigError("expected -o OUT: a folder that does not exist yet")
    out = args.out.resolve()
    with disk_errors(out, "read"):
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ConfigError(f"'{args.out}' exists already: choose a folder that does not, or an empty one (`-o OUT`)")
    return out


def _plan(args: Breed) -> Lineage:
    from populora.adapters.operators import get_operator
    from populora.adapters.operators.registry import parse_strengths

    operator = get_operator(args.operator)
    operator.check_arity(len(args.parents))
    operator.check_refactor("" if args.refactor == "revive" else args.refactor)
    strength = parse_strengths(chain.from_iterable(args.strength), "--strength")
    return Lineage("child", 1, 0, operator.name, stream=("breed",), strength=strength, refactor=args.refactor, seed=args.seed)


def _child_table(out: Path, parents: Sequence[Path], lineage: Lineage, modules: int) -> Table:
    """Show how the child was bred and how far it is from its parents."""
    table = Table.grid(padding=(0, 2))
    strength = ", ".join(f"{name}={value}" for name, value in lineage.strength.items())
    table.add_row(Text(str(out), "bold"), Text(" ".join((lineage.operator, strength))), Text(f"refactor {lineage.refactor}", "dim"))
    table.add_row("norm ratio", f"{lineage.norm_ratio:.4f}", Text("norm of its delta over the mean of its parents'", "dim"))
    for parent, cosine in zip(parents, lineage.cosines, strict=True):
        table.add_row("cosine", f"{cosine:.4f}", Text(f"to {parent}", "dim"))
    table.add_row("effective rank", f"{lineage.effective_rank:.2f}", Text(f"mean over {modules} modules", "dim"))
    table.add_row("fingerprint", lineage.fingerprint[:16], Text(f"generation {lineage.generation}, seed {lineage.seed}", "dim"))
    return table
