"""``populora evaluate compare A B …``: evaluations against the first, with intervals and paired tests (`populora.evals.comparison`)."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from populora.cli.arguments import QUIET, parse
from populora.cli.evaluate_generate import say
from populora.core.errors import ConfigError
from populora.evals.benchmarks import BENCHMARKS, suite
from populora.evals.comparison import ComparedArm, compare, comparison_tables, read_arm
from populora.evals.eval_records import PRIMARY, EvalModel, modes_of
from populora.evals.folder import read_evaluation, settings_diff, settings_of
from populora.evals.text_table import print_table, write_tables


@dataclass(frozen=True)
class Compare:
    """Compare evaluations item by item with the first one: differences, 95 % intervals over items, a paired test for each benchmark.

    An arm is a folder without its bare base, or some of its models: `runs/a/evaluations/step_00200:students`, `…:T0,T1`, `…:base`.
    """

    arms: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="FOLDER[:MODELS] ..."), QUIET] = ()
    """The others are compared with the first."""
    mode: Annotated[str, tyro.conf.arg(metavar="NAME")] = PRIMARY
    """How answers are extracted: `primary` (each benchmark's own), `strict` or `lenient`."""
    suite: Annotated[str, tyro.conf.arg(metavar="NAMES"), QUIET] = ""
    """Only these groups and benchmarks, with commas. By default all that every arm has."""
    seed: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Seed of the resampling."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="DIR"), QUIET] = None
    """Folder for `comparison.md`, `.tex` and `.csv`; without it they are only printed."""


def main(arguments: Sequence[str]) -> int:
    """Print the comparison; returns 0. Raises `PopuloraError`."""
    args = parse(Compare, arguments, "evaluate compare")
    if len(args.arms) < 2:
        raise ConfigError("expected two or more evaluations, or parts of one, such as FOLDER:students FOLDER:base")
    selected = [benchmark.name for benchmark in suite([name.strip() for name in args.suite.split(",")])] if args.suite else []
    arms = [_read_arm(text, args.mode, selected or list(BENCHMARKS)) for text in args.arms]
    differences = compare([arm for arm, *_ in arms], args.seed)
    tables = comparison_tables(differences, _footnotes(arms, selected))
    if args.out:
        files = write_tables(args.out, "comparison", tables, [asdict(difference) for difference in differences])
        say(f"written to {', '.join(map(str, files))}")
    for table in tables:
        print_table(table)
    return 0


def _read_arm(text: str, mode: str, benchmarks: Sequence[str]) -> tuple[ComparedArm, Path, Sequence[EvalModel]]:
    """Read models by name or by role in the plural; without names all, except for the bare base if there are others."""
    path, _, names = text.rpartition(":") if ":" in text and not Path(text).is_dir() else (text, "", "")
    folder, selected = Path(path), [name.strip() for name in names.split(",")] if names else []
    evaluation = read_evaluation(folder)
    possible = dict.fromkeys(name for model in evaluation.models for name in (model.name, f"{model.role}s"))
    if unknown := [name for name in selected if name not in possible]:
        raise ConfigError(f"'{folder}' has no model '{unknown[0]}': expected some of {', '.join(possible)}")
    if mode not in (modes := (PRIMARY, *modes_of([evaluation]))):
        raise ConfigError(f"'{folder}' has no extraction mode '{mode}': expected one of {', '.join(modes)}")
    models = [model for model in evaluation.models if model.name in selected or f"{model.role}s" in selected]
    models = models or [model for model in evaluation.models if model.role != "base"] or evaluation.models
    judged = {model.name for model in models}
    scores = [score for score in evaluation.scores if score.model in judged and score.benchmark in benchmarks]
    scores.sort(key=lambda score: score.graded)  # the last one counts: void items are known from verdicts alone
    sizes = {score.benchmark: score.items for score in scores}
    return read_arm(folder, text, models, sizes, mode), folder, models


def _footnotes(arms: Sequence[tuple[ComparedArm, Path, Sequence[EvalModel]]], selected: Sequence[str]) -> list[str]:
    """Write footnotes on the models of each arm, benchmarks that are not compared, and settings that differ."""
    footnotes = [f"{arm.name}: the mean of {', '.join(model.name for model in models)}." for arm, _, models in arms if len(models) > 1]
    graded = {name for arm, *_ in arms for name in arm.scores}.union(selected)
    absent = [BENCHMARKS[name].title for name in BENCHMARKS if name in graded and not all(name in arm.scores for arm, *_ in arms)]
    footnotes += [f"Not compared, since an arm has no verdicts: {', '.join(absent)}."] if absent else []
    return [*footnotes, *settings_diff({arm.name: settings_of(folder, models, arm.scores) for arm, folder, models in arms})]
