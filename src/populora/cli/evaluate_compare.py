"""``populora evaluate compare A B …``: evaluations against the first, with intervals and paired tests (`populora.evals.comparison`)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from populora.cli.arguments import QUIET, parse
from populora.core.errors import ConfigError
from populora.core.files import disk_errors
from populora.evals.benchmarks import BENCHMARKS, suite
from populora.evals.comparison import Arm, compare, read_arm
from populora.evals.comparison_report import comparisons
from populora.evals.conditions import conditions, differences
from populora.evals.filing import write_tables
from populora.evals.folder import Description, evaluation_of, read_description
from populora.evals.layout import terminal
from populora.evals.results import HEADLINE, Source, readings_of


@dataclass(frozen=True)
class Compare:
    """Compare evaluations item by item with the first one: differences, 95 % intervals over items, a paired test for each benchmark.

    An arm is a folder without its bare base, or some of its sources: `runs/a/evaluations/step_00200:students`, `…:T0,T1`, `…:base`.
    """

    arms: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="FOLDER[:SOURCES] ..."), QUIET] = ()
    """The first is what the others are compared with."""
    reading: Annotated[str, tyro.conf.arg(metavar="NAME")] = HEADLINE
    """How completions are read: `headline` (each benchmark's own), `strict`, `lenient` or, for Minerva, `fixed`."""
    suite: Annotated[str, tyro.conf.arg(metavar="NAMES"), QUIET] = ""
    """Only these groups and benchmarks, with commas. By default all that every arm has."""
    seed: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Of the resampling: the same seed gives the same numbers."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="DIR"), QUIET] = None
    """Where `comparison.md`, `.tex` and `.csv` go; without it they are only printed."""


@dataclass(frozen=True)
class Part:
    """What an arm's text means."""

    text: str
    folder: Path
    description: Description
    sources: Sequence[Source]


def main(arguments: Sequence[str]) -> int:
    """Print the comparison; returns 0. Raises `PopuloraError`."""
    chosen = parse(Compare, arguments, "evaluate compare")
    if len(chosen.arms) < 2:
        raise ConfigError("expected two or more evaluations, or parts of one, such as FOLDER:students FOLDER:base")
    wanted = [one.name for one in suite([name.strip() for name in chosen.suite.split(",")])] if chosen.suite else list(BENCHMARKS)
    parts = [_part(text) for text in chosen.arms]
    arms = [_arm(part, chosen.reading, wanted) for part in parts]
    found = compare(arms, chosen.seed)
    remarks = _remarks(parts, arms, wanted if chosen.suite else [])
    layouts, console = comparisons(found, remarks=remarks), Console(highlight=False)
    if chosen.out:
        with disk_errors(chosen.out, "create"):
            chosen.out.mkdir(parents=True, exist_ok=True)
        written = write_tables(chosen.out, "comparison", layouts, found)
        sys.stderr.write(f"populora evaluate: written to {', '.join(map(str, written))}\n")
    for layout in layouts:
        console.print(terminal(layout, console.width))
    return 0


def _part(text: str) -> Part:
    path, _, names = text.rpartition(":") if ":" in text and not Path(text).is_dir() else (text, "", "")
    folder, found = Path(path), read_description(Path(path))
    return Part(text, folder, found, _chosen(found, names, folder))


def _arm(part: Part, reading: str, wanted: Sequence[str]) -> Arm:
    known = (HEADLINE, *readings_of([evaluation_of(part.folder)]))
    if reading not in known:
        raise ConfigError(f"'{part.folder}' has no reading '{reading}': expected one of {', '.join(known)}")
    items = {name: data.items for name, data in part.description.benchmarks.items() if name in wanted}
    return read_arm(part.folder, part.text, part.sources, items, reading)


def _remarks(parts: Sequence[Part], arms: Sequence[Arm], asked: Sequence[str]) -> list[str]:
    """Who the arms are, what is not compared though some arm has it or it was asked for, and how the arms were not made alike."""
    who = [f"{part.text}: the mean of {', '.join(one.name for one in part.sources)}." for part in parts if len(part.sources) > 1]
    some = {name for arm in arms for name in arm.answers}.union(asked)
    absent = [BENCHMARKS[name].title for name in BENCHMARKS if name in some and not all(name in arm.answers for arm in arms)]
    without = [f"Not compared where an arm has no verdicts: {', '.join(absent)}."] if absent else []
    return [
        *who,
        *without,
        *differences({part.text: conditions(part.folder, part.sources, arm.answers) for part, arm in zip(parts, arms, strict=True)}),
    ]


def _chosen(found: Description, names: str, folder: Path) -> list[Source]:
    """The sources that are named, by themselves or by their role in the plural; without names all, but the bare base only if alone."""
    wanted = [name.strip() for name in names.split(",")] if names else []
    known = dict.fromkeys(name for source in found.sources for name in (source.name, f"{source.role}s"))
    if unknown := [name for name in wanted if name not in known]:
        raise ConfigError(f"'{folder}' has no source '{unknown[0]}': expected some of {', '.join(known)}")
    if not wanted:
        return [source for source in found.sources if source.role != "base"] or list(found.sources)
    return [source for source in found.sources if source.name in wanted or f"{source.role}s" in wanted]
