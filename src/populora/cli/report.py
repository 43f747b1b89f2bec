"""``populora report [RUN …] [--baseline RUN …]``: every figure of the paper and more, one HTML file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from populora.cli.arguments import parse
from populora.core.errors import ConfigError
from populora.core.files import disk_errors, write_file
from populora.report.arms import arms_of
from populora.report.figure import Figure, Study
from populora.runs.directory import CONFIG
from populora.runs.metrics_log import latest_run


@dataclass(frozen=True)
class Report:
    """Write one HTML file with every figure of the paper and a run explorer; it needs no network and no server.

    Runs of equal settings but for the seed are one arm. What a run lacks is named in the page.
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN ...")] = ()
    """Run directories, such as `runs/tiny_4t4s`; by default the newest under `runs/`."""
    baseline: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RUN ...")] = ()
    """Runs to draw in black and to compare with; single agents are taken for that without being named."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FILE")] = None
    """The page; by default `report.html` in the first run."""
    figures: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Write each figure there as SVG, PNG and PDF, with its numbers as CSV, and `figures.md`, which says what each shows."""
    evaluation: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="DIR ...")] = ()
    """Folders of `populora evaluate`; by default the newest of each run."""
    retention: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder of `populora retention`."""
    published: tyro.conf.FlagCreatePairsOff[bool] = False
    """Lay the paper's downstream table under ours."""
    smooth: Annotated[int, tyro.conf.arg(metavar="N")] = 5
    """Steps of the trailing means in the figures; 1 draws what was logged."""


def main(arguments: Sequence[str]) -> int:
    """Write the page and the figures; returns 0. Raises `PopuloraError`."""
    chosen = parse(Report, arguments, "report")
    runs = chosen.runs or (latest_run(),)
    study = study_of(runs, chosen.baseline, chosen.evaluation, chosen.retention, chosen.published, chosen.smooth)
    out = chosen.out or runs[0] / "report.html"
    _check_free(out)
    from populora.report.catalogue import figures_of
    from populora.report.listing import LISTING, listing
    from populora.report.page import page
    from populora.report.rendering import save

    figures = figures_of(study)
    write_file(out, page(study, figures).encode("utf-8", "backslashreplace"))
    sys.stdout.write(f"{out}  {out.stat().st_size / 1e6:.1f} MB\n")
    if chosen.figures:
        with disk_errors(chosen.figures):
            chosen.figures.mkdir(parents=True, exist_ok=True)
            written = [file for figure in figures if isinstance(figure, Figure) for file in save(figure, chosen.figures)]
            told = listing(figures, [file.name for file in written])
            written.append(chosen.figures / LISTING)
            written[-1].write_bytes(told.encode("utf-8", "backslashreplace"))
        sys.stdout.write(f"{chosen.figures}/  {len(written)} files\n")
    for run, note in study.missing:
        sys.stderr.write(f"populora: {run}: {note}\n")
    return 0


def study_of(
    runs: Sequence[Path],
    baseline: Sequence[Path] = (),
    evaluation: Sequence[Path] = (),
    retention: Path | None = None,
    published: bool = False,
    smooth: int = 5,
) -> Study:
    """What is asked for, checked. Raises `ConfigError` and `RunDirectoryError`."""
    if smooth < 1:
        raise ConfigError(f"--smooth is {smooth}: expected a number of steps, 1 or more")
    for folder in evaluation:
        _expect(folder / "evaluation.json", "populora evaluate")
    if retention:
        _expect(retention / CONFIG, "populora retention")
    evaluations = tuple(evaluation) or tuple(newest for run in (*baseline, *runs) if (newest := _newest(run)))
    return Study(arms_of(runs, baseline), evaluations, retention, published, smooth)


def _expect(file: Path, command: str) -> None:
    if not file.is_file():
        raise ConfigError(f"'{file.parent}' has no {file.name}: expected a folder that `{command}` wrote")


def _check_free(out: Path) -> None:
    """Raise `ConfigError` where the page would take the place of anything but a page: of a run's own files, above all."""
    if not out.is_file():
        return
    with disk_errors(out, "read"), out.open("rb") as file:
        head = file.read(1000)
    if head and b"<title>populora: " not in head:
        raise ConfigError(f"'{out}' exists and is no report: choose another file (`-o FILE`), or remove it")


def _newest(run: Path) -> Path | None:
    """The evaluation of a run's highest step."""
    found = sorted((run / "evaluations").glob("step_*/evaluation.json"))
    return found[-1].parent if found else None
