"""The page beside figures that are files: a section each, with what it is or why it is not there."""

from __future__ import annotations

from matplotlib.figure import Figure as Drawing

from populora.evals.text_table import TextCell, TextRow, TextTable
from populora.report.figure import Absent, Figure
from populora.report.listing import listing


def test_a_figure_says_what_the_page_says_and_names_its_files():
    table = TextTable("Costs", (("a", 1),), ("hours",), ((TextRow("4T+4S", (TextCell("1.5"),)),),))
    one = Figure(
        "one", "A title", "Mean of `student/solve_rate`.", "a.jsonl: x_y", "4T: 1 run, seed 0", [{"a": 1}], Drawing, "Figure 9", (table,)
    )
    assert listing([one], ["one.csv", "one.svg", "other.svg"]) == (
        "# Figures\n\n## A title\n\nIn the paper: Figure 9.\n\nMean of `student/solve_rate`.\n\n"
        "- **Shown**: 4T: 1 run, seed 0.\n- **From**: a.jsonl: x\\_y.\n- **Files**: [one.csv](one.csv), [one.svg](one.svg).\n\n"
        "Costs\n\n|  | hours |\n| --- | ---: |\n| 4T+4S | 1.5 |\n"
    )


def test_an_absent_figure_says_why():
    found = listing([Absent("gone", "Gone", "it needs `--retention DIR`")], [])
    assert found == "# Figures\n\n## Gone\n\nNot here: it needs `--retention DIR`.\n"


def test_what_a_folder_is_called_makes_no_markup():
    found = listing([Figure("one", "A", "B.", "c", "<img src=x>[a](b)*\u202e\udcff`", [{"a": 1}], Drawing)], [])
    assert "\\<img src=x\\>\\[a\\](b)\\*\\\\u202e\\\\udcff\\`." in found and found.encode()
