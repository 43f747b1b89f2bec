"""``populora evaluate compare A B …``: evaluations against the first, with intervals and paired tests (`populora.evals.comparison`)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from populora.cli.arguments import QUIET, parse
from populora.core.errors import ConfigError
from populora.evals.benchmarks import BENCHMARKS, suite
from populora.evals.comparison import ComparedArm, compare, comparison_tables, read_arm
from populora.evals.folder import read_evaluation, read_models, read_settings
from populora.evals.records import EvalModel
from populora.evals.scores import PRIMARY, modes_of
from populora.evals.settings_diff import settings_diff, settings_of
from populora.evals.text_table import print_table, write_tables


@dataclass(frozen=True)
class Compare:
    """Compare evaluations item by item with the first one: differences, 95 % intervals over items, a paired test for each benchmark.

    An arm is a folder without its bare base, or some of its models: `runs/a/evaluations/step_00200:students`, `…:T0,T1`, `…:base`.
    """

    arms: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="FOLDER[:MODELS] ..."), QUIET] = ()
    """The others are compared with the first."""
    mode: Annotated[str, tyro.conf.arg(metavar="NAME")] = PRIMARY
    """How answers are extracted: `primary` (each benchmark's own), `strict`, `lenient` or, for Minerva, `fixed`."""
    suite: Annotated[str, tyro.conf.arg(metavar="NAMES"), QUIET] = ""
    """Only these groups and benchmarks, with commas. By default all that every arm has."""
    seed: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Seed of the resampling."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="DIR"), QUIET] = None
    """Folder for `comparison.md`, `.tex` and `.csv`; without it they are only printed."""


@dataclass(frozen=True)
class ArmArgument:
    """A parsed ``FOLDER[:MODELS]``."""

    text: str
    folder: Path
    models: Sequence[EvalModel]


def main(arguments: Sequence[str]) -> int:
    """Print the comparison; returns 0. Raises `PopuloraError`."""
    args = parse(Compare, arguments, "evaluate compare")
    if len(args.arms) < 2:
        raise ConfigError("expected two or more evaluations, or parts of one, such as FOLDER:students FOLDER:base")
    selected = [one.name for one in suite([name.strip() for name in args.suite.split(",")])] if args.suite else []
    parsed = [_parse_arm(text) for text in args.arms]
    arms = [_read_arm(arm, args.mode, selected or list(BENCHMARKS)) for arm in parsed]
    differences = compare(arms, args.seed)
    tables = comparison_tables(differences, _notes(parsed, arms, selected))
    if args.out:
        written = write_tables(args.out, "comparison", tables, [asdict(one) for one in differences])
        sys.stderr.write(f"populora evaluate: written to {', '.join(map(str, written))}\n")
    console = Console(highlight=False)
    for table in tables:
        print_table(table, console)
    return 0


def _parse_arm(text: str) -> ArmArgument:
    """Select models by name or by role in the plural; without names all, except for the bare base if there are others."""
    path, _, names = text.rpartition(":") if ":" in text and not Path(text).is_dir() else (text, "", "")
    folder = Path(path)
    models = read_models(folder)
    selected = [name.strip() for name in names.split(",")] if names else []
    known = dict.fromkeys(name for model in models for name in (model.name, f"{model.role}s"))
    if unknown := [name for name in selected if name not in known]:
        raise ConfigError(f"'{folder}' has no model '{unknown[0]}': expected some of {', '.join(known)}")
    if not selected:
        return ArmArgument(text, folder, [model for model in models if model.role != "base"] or models)
    return ArmArgument(text, folder, [model for model in models if model.name in selected or f"{model.role}s" in selected])


def _read_arm(arm: ArmArgument, mode: str, benchmarks: Sequence[str]) -> ComparedArm:
    known = (PRIMARY, *modes_of([read_evaluation(arm.folder)]))
    if mode not in known:
        raise ConfigError(f"'{arm.folder}' has no extraction mode '{mode}': expected one of {', '.join(known)}")
    items = {name: facts["items"] for name, facts in read_settings(arm.folder)["benchmarks"].items() if name in benchmarks}
    return read_arm(arm.folder, arm.text, arm.models, items, mode)


def _notes(parsed: Sequence[ArmArgument], arms: Sequence[ComparedArm], selected: Sequence[str]) -> list[str]:
    """Footnotes: the models of each arm, benchmarks that are not compared, and settings that differ."""
    notes = [f"{one.text}: the mean of {', '.join(model.name for model in one.models)}." for one in parsed if len(one.models) > 1]
    some = {name for arm in arms for name in arm.answers}.union(selected)
    absent = [BENCHMARKS[name].title for name in BENCHMARKS if name in some and not all(name in arm.answers for arm in arms)]
    notes += [f"Not compared, since an arm has no verdicts: {', '.join(absent)}."] if absent else []
    settings = {one.text: settings_of(one.folder, one.models, arm.answers) for one, arm in zip(parsed, arms, strict=True)}
    return [*notes, *settings_diff(settings)]
