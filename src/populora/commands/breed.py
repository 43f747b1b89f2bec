"""``populora breed A [B] --operator NAME -o OUT``: one child of any PEFT LoRA folders, without a base model."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from populora.commands.arguments import parse
from populora.commands.loading import load_torch
from populora.errors import ConfigError
from populora.runlog.directory import BREEDING, versions
from populora.runlog.files import disk_errors
from populora.types import Lineage


@dataclass(frozen=True)
class Breed:
    """Breed a child of one or two PEFT LoRA folders. Needs no base model and no GPU.

    The child has the rank, the modules and the settings of its first parent, in fp32, and `lineage.json` beside them: `populora
    replay OUT` breeds it again. docs/breed.md says which adapters can be bred.
    """

    parents: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="A [B]")] = ()
    """PEFT folders: one for a mutation, two for a crossover."""
    operator: Annotated[str, tyro.conf.arg(metavar="NAME")] = ""
    """Such as `m1` or `svd_structured`; `--list` explains all."""
    strength: Annotated[tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]], tyro.conf.arg(metavar="NAME=VALUE ...")] = ()
    """The operator's strengths that shall not have their defaults, such as `epsilon=0.2`."""
    refactor: Literal["revive", "balanced"] = "revive"
    """How singular components without weight are split into factors: able to learn again, or as in the paper, dead for ever."""
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
    marks = [time.perf_counter()]
    chosen = parse(Breed, arguments, "breed")
    console = Console(highlight=False)
    if chosen.list:
        console.print(_listed())
        return 0
    out = _checked_out(chosen)
    load_torch()
    from populora.lora.peft_format import read_folder, save_folder
    from populora.lora.peft_settings import CONFIG_FILE, check_agreement
    from populora.operators.lineage import LINEAGE_FILE, bred, lineage_bytes

    plan = _plan(chosen, out)
    marks.append(time.perf_counter())
    folders = [read_folder(parent) for parent in chosen.parents]
    check_agreement(chosen.parents, [folder.settings for folder in folders], chosen.allow_other_base)
    marks.append(time.perf_counter())
    names = [os.path.relpath(parent, out) for parent in chosen.parents]  # holds as long as the folders move together
    child, lineage = bred(plan, [(name, folder.adapter) for name, folder in zip(names, folders, strict=True)])
    marks.append(time.perf_counter())
    save_folder(child, out, {CONFIG_FILE: folders[0].text, LINEAGE_FILE: lineage_bytes(lineage, versions(BREEDING))})
    marks.append(time.perf_counter())
    console.print(_summary(chosen, lineage, len(child.modules), marks))
    return 0


def _checked_out(chosen: Breed) -> Path:
    """Where to write; all that can be checked before torch is loaded."""
    if len(chosen.parents) not in (1, 2):
        raise ConfigError(f"expected one or two PEFT folders, got {len(chosen.parents)}: `populora breed A [B] --operator NAME -o OUT`")
    if not chosen.operator:
        raise ConfigError("expected --operator NAME: `populora breed --list` explains every operator")
    if chosen.out is None:
        raise ConfigError("expected -o OUT: a folder that does not exist yet")
    out = chosen.out.resolve()
    for parent in chosen.parents:
        if parent.resolve() in (out, *out.parents):
            raise ConfigError(f"'{chosen.out}' lies in the parent '{parent}': choose a folder outside of it (`-o OUT`)")
    with disk_errors(out, "read"):
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ConfigError(f"'{chosen.out}' exists already: choose a folder that does not, or an empty one (`-o OUT`)")
    return out


def _plan(chosen: Breed, out: Path) -> Lineage:
    from populora.operators import get_operator
    from populora.operators.lineage import read_lineage

    arity = get_operator(chosen.operator).arity
    if len(chosen.parents) != arity:
        raise ConfigError(f"operator '{chosen.operator}' takes {arity} parent(s), got {len(chosen.parents)}")
    known = [read_lineage(parent) for parent in chosen.parents]
    generation = 1 + max(lineage.generation if lineage else 0 for lineage, _ in known)
    return Lineage(
        out.name, generation, 0, chosen.operator, stream=("breed",), strength=_strength(chosen), refactor=chosen.refactor, seed=chosen.seed
    )


def _strength(chosen: Breed) -> dict[str, float | str]:
    given: dict[str, float | str] = {}
    for text in (text for group in chosen.strength for text in group):
        name, equals, value = text.partition("=")
        if not (name and equals and value) or name in given:
            raise ConfigError(f"--strength: expected NAME=VALUE, each name once, got '{text}'")
        given[name] = _number(value)
    return given


def _number(text: str) -> float | str:
    """A number, or the word that it is; which of them a strength takes, its operator knows."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def _listed() -> Table:
    load_torch()
    from populora.operators import available_operators

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("operator", no_wrap=True)
    table.add_column("parents", justify="right")
    table.add_column("strengths", no_wrap=True)
    table.add_column("child")
    for name, operator in available_operators().items():
        named = Text.assemble((name, "bold"), f"\n{operator.alias}" if operator.alias != name else "")
        strengths = "\n".join(f"{strength}={value}" for strength, value in operator.strengths.items())
        table.add_row(named, str(operator.arity), Text(strengths), Text(operator.summary))
    return table


def _summary(chosen: Breed, lineage: Lineage, modules: int, marks: Sequence[float]) -> Table:
    table = Table.grid(padding=(0, 2))
    strength = ", ".join(f"{name}={value}" for name, value in lineage.strength.items())
    table.add_row(Text(str(chosen.out), "bold"), Text(" ".join((lineage.operator, strength))), Text(f"refactor {lineage.refactor}", "dim"))
    table.add_row("norm ratio", f"{lineage.norm_ratio:.4f}", Text("norm of its delta over the mean of its parents'", "dim"))
    for parent, cosine in zip(chosen.parents, lineage.cosines, strict=True):
        table.add_row("cosine", f"{cosine:.4f}", Text(f"to {parent}", "dim"))
    table.add_row("effective rank", f"{lineage.effective_rank:.2f}", Text(f"mean over {modules} modules", "dim"))
    for parent, recorded in zip(chosen.parents, lineage.parents, strict=True):
        table.add_row("parent", recorded[-64:][:16], Text(f"{parent}", "dim"))
    table.add_row("child", lineage.fingerprint[:16], Text(f"generation {lineage.generation}", "dim"))
    table.add_row("stream", "/".join(map(str, lineage.stream)), Text(f"seed {lineage.seed}", "dim"))
    spent = [later - earlier for earlier, later in pairwise(marks)]
    parts = ", ".join(f"{name} {seconds:.2f}" for name, seconds in zip(("start", "read", "breed", "write"), spent, strict=True))
    table.add_row("seconds", f"{sum(spent):.2f}", Text(parts, "dim"))
    return table
