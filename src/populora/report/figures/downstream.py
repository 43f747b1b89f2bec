"""Downstream scores of evaluation folders: bars of populations, bars of adapters, and the table of `populora evaluate table`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from populora.evals.aggregates import ScoreCell, graded_benchmarks, score_rows
from populora.evals.benchmarks import BENCHMARKS
from populora.evals.downstream_table import downstream_tables, notes_on_settings, score_records
from populora.evals.eval_records import Evaluation
from populora.evals.folder import read_evaluation
from populora.evals.shown_models import describe_hidden, shown_models
from populora.evals.text_table import TextTable
from populora.report.arms import INK, PALETTE
from populora.report.drawing import PALE, STUDENT, TEACHER, Drawing, categorical_colours, panels, tag_artist
from populora.report.figure import Figure, MissingFigure, Study
from populora.runs.directory import EVALUATIONS
from populora.runs.style import plural, printable

POPULATIONS = ("downstream", "Downstream pass@1", "Figure 2 and Table 3 (downstream pass@1)")
ADAPTERS = ("downstream_adapters", "Downstream pass@1 of each adapter", "Figures: all adapters of a population")
SOURCE = "evaluation folders: verdicts/BENCHMARK/MODEL.jsonl"
_GREEDY = (
    "Per cent of a benchmark's items that the greedy answer gets right, in the extraction mode of its published score; complete "
    "benchmarks alone."
)


def downstream_figures(study: Study) -> list[Figure | MissingFigure]:
    """Draw bars of populations with their best adapter, and bars of all adapters. Raises `PopuloraError` for a damaged evaluation."""
    if not study.evaluations:
        reason = f"give a folder of `populora evaluate` with --evaluation DIR, or put it into the run's {EVALUATIONS}/"
        return [MissingFigure(*POPULATIONS, reason), MissingFigure(*ADAPTERS, reason)]
    runs = {run.folder.resolve(): f", run {run.name}, seed {run.config.seed}" for arm in study.arms for run in arm.runs}
    names = _names(study.evaluations)
    read = {folder: read_evaluation(folder, name) for folder, name in names.items()}
    graded = {folder: evaluation for folder, evaluation in read.items() if graded_benchmarks([evaluation])}
    if not graded:
        reason = f"nothing is graded yet in {', '.join(names.values())}"
        return [MissingFigure(*POPULATIONS, reason), MissingFigure(*ADAPTERS, reason)]
    described = (
        f"{evaluation.name}: {plural(len(evaluation.models), 'model')}{runs.get(folder.parent.parent, '')}"
        for folder, evaluation in graded.items()
    )
    evaluations, text = list(graded.values()), f"{plural(len(graded), 'evaluation')}: {'; '.join(described)}"
    tables = downstream_tables(evaluations, study.published, notes_on_settings(graded))
    return [_populations_figure(study, evaluations, text, tables), _adapters_figure(evaluations, text)]


def _names(folders: Sequence[Path]) -> dict[Path, str]:
    """Name each folder once: ``4t4s/step_00200`` for ``runs/4t4s/evaluations/step_00200``, and by the whole path if names are equal."""
    unique = dict.fromkeys(folder.resolve() for folder in folders)
    names = {folder: f"{folder.parents[1].name}/{folder.name}" if folder.parent.name == EVALUATIONS else folder.name for folder in unique}
    return {folder: printable(name if list(names.values()).count(name) == 1 else str(folder)) for folder, name in names.items()}


def _populations_figure(study: Study, evaluations: list[Evaluation], runs: str, tables: Sequence[TextTable]) -> Figure:
    return Figure(
        *POPULATIONS,
        definition=(
            f"{_GREEDY} A bar is the mean over a population's adapters, if all of them have the benchmark, with ± one sample standard "
            "deviation; the pale cap reaches to the best of those adapters, of each benchmark by itself: it is selected on the test set, "
            "and no one adapter need have it. The table has the means by role."
        ),
        source=SOURCE,
        runs=runs,
        rows=score_records(evaluations, study.published),
        drawing=lambda: _draw_populations(evaluations),
        tables=tuple(tables),
    )


def _adapters_figure(evaluations: list[Evaluation], runs: str) -> Figure:
    keys = ("model", "benchmark", "correct", "graded", "items")
    scores = [(evaluation.name, score) for evaluation in evaluations for score in evaluation.scores]
    notes = [(evaluation.name, describe_hidden(evaluation)) for evaluation in evaluations]
    return Figure(
        *ADAPTERS,
        definition=" ".join(
            [f"{_GREEDY} A bar is one adapter, or the bare base (grey).", *(f"{name}: {hidden}" for name, hidden in notes if hidden)]
        ),
        source=SOURCE,
        runs=runs,
        rows=[{"evaluation": name, **{key: getattr(score, key) for key in keys}} for name, score in scores],
        drawing=lambda: _draw_adapters(evaluations),
    )


Cells = Mapping[str, ScoreCell]
"""Complete cells by benchmark."""


def _bars(evaluation: Evaluation) -> Iterator[tuple[str, Cells, Cells]]:
    """Yield the label, the cells, and the best adapters' cells of each base, of the population and of the other adapters."""
    for roles in (("base",), ("agent",), ("teacher", "student"), ("adapter",)):
        models = tuple(model for model in evaluation.models if model.role in roles)
        rows = score_rows(replace(evaluation, models=models), {}, members=False)
        complete = [(row, {name: cell for name, cell in row.cells.items() if cell.complete}) for row in rows]
        best = next((cells for row, cells in complete if row.kind == "best"), {})
        for row, cells in complete if roles == ("base",) else complete[:1]:  # the first is the mean of all, if there are several
            yield f"{evaluation.name} {row.label}".strip(), cells, best


def _draw_populations(evaluations: list[Evaluation]) -> Drawing:
    """Draw a group for each benchmark with a bar for each single model or mean of several, and a pale cap up to its best adapter."""
    bars, benchmarks = [bar for evaluation in evaluations for bar in _bars(evaluation)], graded_benchmarks(evaluations)
    colours, wide = categorical_colours([label for label, *_ in bars]), 0.8 / len(bars)
    drawing, axes = panels(1, 1, width=min(10.0, max(6.0, 1.2 + 0.2 * len(benchmarks) * len(bars))), height=2.6)
    axis = axes[0, 0]
    for index, (label, cells, best) in enumerate(bars):
        offset, style = wide * (index + 0.5) - 0.4, {"width": wide * 0.92, "color": colours[label], "linewidth": 0}
        for drawn, alpha in ((best, 0.3), (cells, 1.0)):
            columns = [column for column, name in enumerate(benchmarks) if name in drawn]
            heights = [drawn[benchmarks[column]].value for column in columns]
            axis.bar([x + offset for x in columns], heights, alpha=alpha, label=label if drawn is cells else None, **style)
        spread = [cells[benchmarks[column]].std or 0.0 for column in columns]
        if any(spread):
            axis.errorbar([x + offset for x in columns], heights, spread, fmt="none", ecolor=INK, elinewidth=0.8)
    axis.set_xticks(range(len(benchmarks)), [BENCHMARKS[name].title for name in benchmarks])
    axis.set(ylabel="pass@1, %", ylim=(0, None), xlim=(-0.6, len(benchmarks) - 0.4))
    axis.grid(visible=False, axis="x")
    drawing.legend(loc="outside upper left", ncols=2 if len(benchmarks) < 5 else 4)
    return drawing


def _draw_adapters(evaluations: list[Evaluation]) -> Drawing:
    """Draw a panel for each benchmark with a bar for each adapter, in the colour of its role."""
    colours = {"base": PALE, "agent": INK, "teacher": TEACHER, "student": STUDENT, "adapter": PALETTE[2]}
    models, benchmarks = (
        [(evaluation, model) for evaluation in evaluations for model in shown_models(evaluation)],
        graded_benchmarks(evaluations),
    )
    columns = min(5, len(benchmarks))
    width, height = 10 / max(2, columns), 0.5 + 0.15 * len(models)
    drawing, axes = panels(-(-len(benchmarks) // columns), columns, width, height, sharey=True, sharex=True)
    for axis in axes.flat[len(benchmarks) :]:
        axis.set_visible(False)
    for axis, name in zip(axes.flat, benchmarks, strict=False):
        for y, (evaluation, model) in enumerate(models):
            score = evaluation.scores_of(model.name).get(name)
            if score and score.complete:
                bar = axis.barh(y, score.rate, 0.75, color=colours[model.role])
                axis.bar_label(bar, [f"{score.rate:.1f}"], padding=2, fontsize=6)
                if model.role in ("teacher", "student"):
                    tag_artist(bar[0], model.name)
        axis.set(title=BENCHMARKS[name].title, ylim=(len(models) - 0.4, -0.6), xlim=(0, 112), xlabel="pass@1, %")
        axis.grid(visible=False, axis="y")
    axes[0, 0].set_yticks(range(len(models)), [f"{evaluation.name} {model.name}".strip() for evaluation, model in models])
    return drawing
