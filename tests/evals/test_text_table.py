"""Tables of text in every form: nothing is lost on a narrow terminal, and nothing breaks the markup."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from populora.evals.text_table import TextCell, TextRow, TextTable, escape_latex, print_table, to_latex, to_markdown

HOSTILE = r"""a_b & 50% $x$ #1 {~^} \cmd <b> | "q" * `c` [l](u)"""


def table_of(columns: int, *labels: str, text: str = "10.0") -> TextTable:
    rows = tuple(TextRow(label, tuple(TextCell(text, bold=True) for _ in range(columns))) for label in labels)
    groups = (("first group", 2), ("second group", columns - 2))
    return TextTable("A caption", groups, tuple(f"c{number}" for number in range(columns)), (rows, rows[:1]), ("A note.",))


@pytest.mark.parametrize("width", [36, 37, 41, 50, 59, 80, 200])
def test_a_narrow_terminal_gets_several_tables_with_their_labels_and_groups(width: int):
    console = Console(width=width, file=io.StringIO(), record=True)
    print_table(table_of(6, "base", "T0", "member 3", text="73.3±1.6 (3/4)" if width > 80 else "10.0"), console)
    text = console.export_text()
    parts = text.count("T0")
    assert (text.count("member 3"), text.count("base"), text.count("c0"), text.count("c5")) == (parts, 2 * parts, 1, 1) and "…" not in text
    assert text.count("first group") >= 1 and text.count("first group") + text.count("second group") in (parts, parts + 1)
    assert max(map(len, text.splitlines())) <= width and (parts == 1) == (width >= 80)


def test_latex_has_as_many_columns_in_every_row_and_closes_what_it_opens():
    table = TextTable(
        HOSTILE, ((HOSTILE, 1), ("", 2)), (HOSTILE, "y", "z"), table_of(3, HOSTILE, "x", text="73.3±1.6 (3/4)").blocks, (HOSTILE,)
    )
    text = to_latex(table, "tab:x")
    rows = [line for line in text.split(r"\toprule")[1].split(r"\bottomrule")[0].splitlines() if line.endswith(r"\\")]
    assert len(rows) == 2 + 3
    for line in rows:
        spanned = sum(int(count) - 1 for count in re.findall(r"\\multicolumn\{(\d+)\}", line))
        assert re.sub(r"\\[&\\]", "", line).count("&") + spanned == 3, line
    bare = re.sub(r"\\[{}\\]", "", text)
    assert bare.count("{") == bare.count("}") and r"\begin{tabular}{l *{1}{r} @{\hskip 4pt} *{2}{r}}" in text
    assert r"\cmidrule(lr){2-2}" in text and r"\textbf{73.3}{\scriptsize$\pm$1.6}\,{\scriptsize (3/4)}" in text


@given(st.text())
def test_latex_text_has_no_bare_special_character(text: str):
    escaped = escape_latex(text)
    bare = re.sub(r"\\(text(backslash|asciitilde|asciicircum|less|greater|bar|dagger)\{\}|[&%$#_{}])", "", escaped)
    bare = re.sub(r"\$\\pm\$|\$-\$|\$\\times\$|\$\\leq\$|^\{\}", "", bare)
    assert not set(bare) & set(r"\&%$#_{}~^<>|") and "\n" not in bare


def test_markdown_has_as_many_columns_in_every_row():
    row = TextRow(HOSTILE, (TextCell("1.0±0.5 (3/4)", bold=True), TextCell()))
    text = to_markdown(TextTable("a|b", (("", 2),), ("x", "y|z"), ((row,),), ("note *",)))
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 3 and all(len(re.findall(r"(?<!\\)\|", line)) == 4 for line in lines)
    assert "**1.0±0.5 (3/4)**" in text and r"\*" in text
