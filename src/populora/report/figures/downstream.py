"""Downstream scores of evaluation folders: bars by role and by adapter, and the table of `populora evaluate table`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from populora.core.errors import PopuloraError, RunDirectoryError
from populora.core.files import read_json
from populora.evals.aggregates import columns_of
from populora.evals.downstream_table import downstream_tables, score_records
from populora.evals.folder import read_description, read_evaluation
from populora.evals.scores import Evaluation
from populora.report.figure import Absent, Figure, Study
from populora.report.figures.bars import draw_adapters, draw_roles
from populora.runs.directory import CONFIG
from populora.runs.style import printable

FOLDER = "evaluations"
"""Of a run, in which its evaluations lie."""

BARS = ("downstream", "Downstream pass@1", "Figure 2 and Table 3 (downstream pass@1)")
ADAPTERS = ("downstream_adapters", "Downstream pass@1 of each adapter", "Figures: all adapters of a population")
_GREEDY = (
    "Per cent of a benchmark's items that the greedy answer gets right, in the extraction mode of its published score; whole benchmarks "
    "alone."
)


def downstream_figures(study: Study) -> list[Figure | Absent]:
    """Bars of roles with their best adapter, and bars of all adapters; or why there are none."""
    both = (BARS, ADAPTERS)
    if not study.evaluations:
        reason = "give a folder of `populora evaluate` with --evaluation DIR, or let it stand in the run's evaluations/"
        return [Absent(name, title, reason, paper) for name, title, paper in both]
    found, shown, unread = list[Evaluation](), list[str](), list[str]()
    for folder, name in _named(study.evaluations).items():
        try:
            one, runs = _read(folder, name)
            found.append(one)
            shown.append(f"{name}: {len(one.models)} model{'' if len(one.models) == 1 else 's'}, {runs}")
        except PopuloraError as error:
            unread.append(f"{name}: {error}")
    if not found:
        return [Absent(name, title, "; ".join(unread), paper) for name, title, paper in both]
    number = f"{len(found)} evaluation{'' if len(found) == 1 else 's'}"
    text = "; ".join([f"{number}: {shown[0]}", *shown[1:], *(f"left out, {one}" for one in unread)])
    return [_bars(study, found, text), _adapters(found, text)]


def _named(folders: Sequence[Path]) -> dict[Path, str]:
    """Each folder once, and ``4t4s/step_00200`` of ``runs/4t4s/evaluations/step_00200``; where two have the same name, as many of the
    folders above as tell them apart."""
    each = list(dict.fromkeys(folder.resolve() for folder in folders))
    parts = [(*one.parts[:-2], one.name) if one.parent.name == FOLDER else one.parts for one in each]
    names = ["/".join(own[-2 if one.parent.name == FOLDER else -1 :]) for one, own in zip(each, parts, strict=True)]
    for length in range(2, max(map(len, parts)) + 1):
        names = [name if names.count(name) == 1 else "/".join(own[-length:]) for name, own in zip(names, parts, strict=True)]
    return dict(zip(each, map(printable, names), strict=True))


def _read(folder: Path, name: str) -> tuple[Evaluation, str]:
    """An evaluation, and of which runs it is. Raises `PopuloraError` for what is no evaluation, or one of nothing yet."""
    try:
        found, runs = read_evaluation(folder, name), _runs(folder)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RunDirectoryError(
            f"a file in '{folder}' does not hold what `populora evaluate` writes ({type(error).__name__}: {error})"
        ) from error
    if not columns_of([found]).benchmarks:
        raise RunDirectoryError(f"nothing is graded in '{folder}' yet")
    return found, runs


def _runs(folder: Path) -> str:
    """``run 4t4s, seed 0``: the run that the folder lies in, or else those whose members were evaluated, as far as they are still there."""
    beside = [folder.parent.parent] if folder.parent.name == FOLDER else []
    runs = beside or [Path(run) for run in [read_description(folder).get("run")] if run]
    return ", ".join(f"run {printable(run.name)}, seed {_seed(run)}" for run in runs) or "of no run"


def _seed(run: Path) -> str:
    try:
        return str(read_json(run / CONFIG)["seed"])
    except (PopuloraError, KeyError, TypeError):
        return "unknown"


def _bars(study: Study, found: list[Evaluation], shown: str) -> Figure:
    name, title, paper = BARS
    layouts = downstream_tables(found, study.published)
    return Figure(
        name,
        title,
        f"{_GREEDY} A bar is the mean over the members of a role, where all of them have the benchmark, with ± one sample standard "
        "deviation; the pale cap reaches to the best of those members, of each benchmark by itself: it is selected on the test set, and "
        "no one adapter need have it. The table's Best is over both roles.",
        "evaluation folders: verdicts/BENCHMARK/MODEL.jsonl",
        shown,
        score_records(found, study.published),
        lambda: draw_roles(found),
        paper,
        tuple(layouts),
    )


def _adapters(found: list[Evaluation], shown: str) -> Figure:
    name, title, paper = ADAPTERS
    rows = [
        {
            "evaluation": one.name,
            "model": score.model,
            "benchmark": score.benchmark,
            "correct": score.correct,
            "graded": score.graded,
            "items": score.items,
        }
        for one in found
        for score in one.scores
    ]
    shape = "A bar is one adapter, or the bare base (grey)."
    return Figure(
        name,
        title,
        f"{_GREEDY} {shape}",
        "evaluation folders: verdicts/BENCHMARK/MODEL.jsonl",
        shown,
        rows,
        lambda: draw_adapters(found),
        paper,
    )
