"""``populora report [RUN …] [--baseline RUN …]``: write every figure of the paper and more as one HTML file."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from populora.cli.arguments import parse
from populora.core.config_file import from_mapping
from populora.core.errors import ConfigError
from populora.core.files import disk_errors, read_json, write_file
from populora.report.arms import arms_of, newest_evaluations
from populora.report.figure import Figure, Study
from populora.runs.directory import CONFIG
from populora.runs.metrics_log import latest_run


@dataclass(frozen=True)
class Report:
    """Write one HTML file with every figure of the paper and a run explorer. Runs of equal settings but for the seed are one arm."""

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN ...")] = ()
    """Run directories, such as `runs/tiny_4t4s`; by default the newest under `runs/`."""
    baseline: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RUN ...")] = ()
    """Runs to draw in black and to compare with; runs of a single agent are baselines without being named."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FILE")] = None
    """The page; by default `report.html` in the first run."""
    figures: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Write each figure there as SVG, PNG and PDF, and its numbers as CSV."""
    evaluation: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="DIR ...")] = ()
    """Folders of `populora evaluate`; by default the newest of each run."""
    retention: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder of `populora retention`."""
    published: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print the paper's downstream table under ours."""
    smooth: Annotated[int, tyro.conf.arg(metavar="N")] = 5
    """Steps of the trailing means in the figures; 1 draws what was logged."""


def main(arguments: Sequence[str]) -> int:
    """Write the page and the figures; returns 0. Raises `PopuloraError`."""
    args = parse(Report, arguments, "report")
    runs = runs_or_latest(args.runs, args.baseline)
    study = read_study(runs, args.baseline, args.evaluation, args.retention, args.published, args.smooth)
    out = args.out or runs[0] / "report.html"
    if out.is_dir() or not out.parent.is_dir():  # drawing takes minutes
        raise ConfigError(f"--out is '{out}': expected a file in a folder that exists, such as report.html")
    from populora.report.figures import make_figures
    from populora.report.page import page
    from populora.report.rendering import save_figure

    figures = make_figures(study)
    write_file(out, page(study, figures).encode("utf-8", "backslashreplace"))
    sys.stdout.write(f"{out}  {out.stat().st_size / 1e6:.1f} MB\n")
    if args.figures:
        with disk_errors(args.figures):
            args.figures.mkdir(parents=True, exist_ok=True)
            written = [file for figure in figures if isinstance(figure, Figure) for file in save_figure(figure, args.figures)]
        sys.stdout.write(f"{args.figures}/  {len(written)} files\n")
    return 0


def runs_or_latest(runs: tuple[Path, ...], baseline: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the runs that were named, or else the latest. Raises `ConfigError` if all were read as baselines."""
    if baseline and not runs:
        raise ConfigError("--baseline takes all the runs behind it: name the runs to report before it")
    return runs or (latest_run(),)


def _check_retention(folder: Path) -> None:
    from populora.evals.retention.settings import RetentionConfig

    try:
        from_mapping(read_json(folder / CONFIG), RetentionConfig)
    except ConfigError as error:
        raise ConfigError(f"'{folder}' is no folder that `populora retention` wrote: {error}") from error


def read_study(
    runs: Sequence[Path],
    baseline: Sequence[Path] = (),
    evaluation: Sequence[Path] = (),
    retention: Path | None = None,
    published: bool = False,
    smooth: int = 5,
) -> Study:
    """Check the options, and group the runs into arms. Raises `ConfigError` and `RunDirectoryError`."""
    if smooth < 1:
        raise ConfigError(f"--smooth is {smooth}: expected a number of steps, 1 or more")
    files = [(folder / "evaluation.json", "populora evaluate") for folder in evaluation]
    files += [(retention / CONFIG, "populora retention")] if retention else []
    for file, command in files:
        if not file.is_file():
            raise ConfigError(f"'{file.parent}' has no {file.name}: expected a folder that `{command}` wrote")
    if retention:
        _check_retention(retention)
    return Study(arms_of(runs, baseline), tuple(evaluation) or newest_evaluations([*baseline, *runs]), retention, published, smooth)
