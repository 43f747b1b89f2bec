"""``populora compare RUN …``: what arms of runs differ in, metric by metric, with intervals over seeds and corrected p-values.

Runs of equal settings but for the seed are one arm, as in the report, whose figure "Arms compared over seeds" shows the same values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from populora.cli.arguments import QUIET, parse
from populora.core.errors import ConfigError
from populora.evals.comparison import holm
from populora.evals.text_table import TextCell, TextRow, TextTable, print_table, write_tables
from populora.report.arms import arms_of
from populora.report.figure import Figure, Study, describe_runs
from populora.report.figures.arm_comparison import compared_metrics, comparison_figure, last_tenth, remarks


@dataclass(frozen=True)
class Compare:
    """Compare arms of runs over their seeds: the mean of the last tenth of the steps, and the difference to the first arm.

    Runs of equal settings but for the seed are one arm. Intervals are Welch's at 95 %, a run a sample; p-values are Welch's, too, and
    corrected by Holm's method over the whole table.
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN ..."), QUIET] = ()
    """Run directories of two or more arms."""
    baseline: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RUN ..."), QUIET] = ()
    """Runs of the arm to compare with; by default those of a single agent, or else the first arm."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="DIR"), QUIET] = None
    """Folder for `comparison.md`, `.tex` and `.csv`; without it the table is only printed."""


def main(arguments: Sequence[str]) -> int:
    """Print the comparison; returns 0. Raises `PopuloraError`."""
    args = parse(Compare, arguments, "compare")
    study = Study(arms_of(args.runs, args.baseline))
    figure = comparison_figure(study)
    if not isinstance(figure, Figure):
        raise ConfigError(figure.reason)
    rows = with_corrected_p(figure.rows)
    tables = comparison_tables(study, rows)
    for table in tables:
        print_table(table)
    if args.out:
        print(f"written to {', '.join(map(str, write_tables(args.out, 'comparison', tables, rows)))}")
    return 0


def with_corrected_p(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with ``p_corrected`` by Holm over all that have a p."""
    corrected = iter(holm([row["p"] for row in rows if row["p"] is not None]))
    return [{**row, "p_corrected": None if row["p"] is None else next(corrected)} for row in rows]


def comparison_tables(study: Study, rows: Sequence[Mapping[str, Any]]) -> list[TextTable]:
    """Lay out the means, a row a metric and a column an arm, and in a second table the differences to the first arm."""
    not_begun, study = study.not_begun, study.begun
    labels = tuple(arm.label for arm in study.arms)
    metrics, captions = dict.fromkeys(row["metric"] for row in rows), compared_metrics(study)
    row_of = {(row["metric"], row["arm"]): row for row in rows}
    means = tuple(
        TextRow(captions[metric], tuple(TextCell(f"{row_of[metric, label]['mean']:.3g}") for label in labels)) for metric in metrics
    )
    differences = tuple(TextRow(captions[metric], tuple(_difference(row_of[metric, label]) for label in labels[1:])) for metric in metrics)
    first, last = last_tenth(study)
    means_of = f"Means over steps {first} to {last} and over runs.{not_begun}"
    intervals = "Welch's 95 % intervals over runs; p is corrected by Holm over the table. Bold: corrected p below 0.05."
    return [
        TextTable("Arms compared over seeds", (("", len(labels)),), labels, (means,), (means_of, describe_runs(study.arms))),
        TextTable(
            f"Differences to {labels[0]}", (("", len(labels) - 1),), labels[1:], (differences,), (intervals, *remarks(study, metrics))
        ),
    ]


def _difference(row: Mapping[str, Any]) -> TextCell:
    if row["low"] is None:
        return TextCell(f"{row['difference']:+.2g}")
    text = f"{row['difference']:+.2g} [{row['low']:+.2g}, {row['high']:+.2g}] p={row['p_corrected']:.2g}"
    return TextCell(text, bold=row["p_corrected"] < 0.05)
