"""``populora breed A [B] --operator NAME -o OUT``: one child of any PEFT LoRA folders, without a base model."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.console import Console
from rich.text import Text

from populora.cli.arguments import parse
from populora.cli.breeding_text import about_bases, explained, summary
from populora.cli.loading import load_torch
from populora.core.errors import ConfigError
from populora.core.files import disk_errors
from populora.core.installed import BREEDING, versions
from populora.core.types import Lineage

if TYPE_CHECKING:
    pass


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
        console.print(explained())
        return 0
    out = _checked_out(chosen)
    load_torch()
    from populora.adapters.operators.lineage import LINEAGE_FILE, bred, lineage_bytes
    from populora.adapters.peft_format import read_folder, save_folder
    from populora.adapters.peft_settings import CONFIG_FILE, check_agreement

    plan = _plan(chosen, out)
    marks.append(time.perf_counter())
    folders = [read_folder(parent) for parent in chosen.parents]
    check_agreement(chosen.parents, [folder.settings for folder in folders], chosen.allow_other_base)
    marks.append(time.perf_counter())
    names = [os.path.relpath(parent, out) for parent in chosen.parents]  # holds as long as the folders move together
    adapters = [folder.adapter for folder in folders]
    child, lineage = bred(plan, list(zip(names, adapters, strict=True)))
    marks.append(time.perf_counter())
    save_folder(child, out, {CONFIG_FILE: folders[0].text, LINEAGE_FILE: lineage_bytes(lineage, versions(BREEDING))})
    marks.append(time.perf_counter())
    console.print(summary(chosen.out or out, chosen.parents, lineage, len(child.modules), marks))
    for note in about_bases(lineage, adapters):
        console.print(Text(note, "yellow"))
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
    from populora.adapters.operators import get_operator
    from populora.adapters.operators.lineage import read_lineage

    operator = get_operator(chosen.operator)
    if len(chosen.parents) != operator.arity:
        raise ConfigError(f"operator '{operator.name}' takes {operator.arity} parent(s), got {len(chosen.parents)}")
    if chosen.refactor != "revive" and not operator.takes_refactor:
        raise ConfigError(f"operator '{operator.name}' splits no singular values: leave --refactor out")
    known = [read_lineage(parent) for parent in chosen.parents]
    generation = 1 + max(lineage.generation if lineage else 0 for lineage, _ in known)
    return Lineage(
        out.name, generation, 0, operator.name, stream=("breed",), strength=_strength(chosen), refactor=chosen.refactor, seed=chosen.seed
    )


def _strength(chosen: Breed) -> dict[str, float | str]:
    from populora.adapters.operators.breeding import parse_strength

    given: dict[str, float | str] = {}
    for text in (text for group in chosen.strength for text in group):
        name, value = parse_strength(text)
        if name in given:
            raise ConfigError(f"--strength: expected each name once, got '{name}' twice")
        given[name] = value
    return given
