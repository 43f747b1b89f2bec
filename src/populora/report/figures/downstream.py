"""Downstream scores of evaluation folders: bars by role and by adapter, and the table of `populora evaluate table`."""

from __future__ import annotations

from pathlib import Path

from populora.errors import PopuloraError
from populora.evals.folder import evaluation_of
from populora.evals.report import records, tables
from populora.evals.results import Evaluation
from populora.evals.tables import downstream
from populora.report.figure import Absent, Figure, Study
from populora.report.figures.bars import draw_adapters, draw_roles

BARS = ("downstream", "Downstream pass@1", "Figure 2 and Table 3 (downstream pass@1)")
ADAPTERS = ("downstream_adapters", "Downstream pass@1 of each adapter", "Figures: all adapters of a population")
_GREEDY = (
    "Per cent of a benchmark's items that the greedy answer gets right, in the reading that its published score counts; whole benchmarks "
    "alone."
)


def downstream_figures(study: Study) -> list[Figure | Absent]:
    """Bars of roles with their best adapter, and bars of all adapters; or why there are none."""
    both = (BARS, ADAPTERS)
    if not study.evaluations:
        reason = "give a folder of `populora evaluate` with --evaluation DIR, or let it stand in the run's evaluations/"
        return [Absent(name, title, reason, paper) for name, title, paper in both]
    try:
        found = [evaluation_of(folder, _name(folder)) for folder in study.evaluations]
        if not downstream(found).benchmarks:
            raise PopuloraError("nothing is graded in these evaluations yet")
        return [_bars(study, found), _adapters(study, found)]
    except PopuloraError as error:
        return [Absent(name, title, str(error), paper) for name, title, paper in both]


def _name(folder: Path) -> str:
    """``4t4s/step_00200`` of ``runs/4t4s/evaluations/step_00200``."""
    parents = folder.resolve().parents
    return f"{parents[1].name}/{folder.name}" if parents[0].name == "evaluations" else folder.name


def _bars(study: Study, found: list[Evaluation]) -> Figure:
    name, title, paper = BARS
    layouts = tables(found, with_published=study.published)
    return Figure(
        name,
        title,
        f"{_GREEDY} A bar is the mean over the members of a role, with ± one sample standard deviation; the pale cap reaches to the best "
        "member of each benchmark by itself: it is selected on the test set, and no one adapter has it.",
        "evaluation folders: verdicts/BENCHMARK/SOURCE.jsonl",
        _shown(found),
        records(found, study.published),
        lambda: draw_roles(found),
        paper,
        tuple(layouts),
    )


def _adapters(study: Study, found: list[Evaluation]) -> Figure:
    name, title, paper = ADAPTERS
    rows = [
        {
            "evaluation": one.name,
            "source": score.source,
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
        "evaluation folders: verdicts/BENCHMARK/SOURCE.jsonl",
        _shown(found),
        rows,
        lambda: draw_adapters(found),
        paper,
    )


def _shown(found: list[Evaluation]) -> str:
    return "; ".join(f"{one.name}: {len(one.sources)} sources" for one in found)
