"""A `Layout` as a LaTeX table (booktabs), set as the paper sets its own."""

from __future__ import annotations

from itertools import accumulate, pairwise

from populora.evals.layout import Layout, Line


def latex(layout: Layout, label: str) -> str:
    """A ``table`` that needs the packages booktabs and graphicx. ``label``: its name for ``\\ref``, put in as it is."""
    columns = r" @{\hskip 4pt} ".join(f"*{{{count}}}{{r}}" for _, count in layout.groups)
    heading = " & ".join(["", *(rf"\multicolumn{{{count}}}{{c}}{{{tex(name)}}}" for name, count in layout.groups)])
    ends = list(accumulate((count for _, count in layout.groups), initial=1))
    rules = " ".join(
        rf"\cmidrule(lr){{{start + 1}-{stop}}}" for (name, _), (start, stop) in zip(layout.groups, pairwise(ends), strict=True) if name
    )
    lines = [
        r"\begin{table}[h]", r"\centering", r"\resizebox{\textwidth}{!}{%", rf"\begin{{tabular}}{{l {columns}}}", r"\toprule",
        rf"{heading} \\", rules, " & ".join(["", *(tex(column) for column in layout.columns)]) + r" \\",
    ]  # fmt: skip
    for block in layout.blocks:
        lines += [r"\midrule", *(_tex_line(line) for line in block)]
    caption = " ".join([rf"\textbf{{{tex(layout.caption)}}}", *(tex(note) for note in layout.notes)])
    lines += [r"\bottomrule", r"\end{tabular}}", rf"\caption{{{caption}}}", rf"\label{{{label}}}", r"\end{table}"]
    return "\n".join(lines) + "\n"


_TEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "±": r"$\pm$", "†": r"\textdagger{}", "−": r"$-$", "–": "--", "×": r"$\times$", "≤": r"$\leq$",
    **{one: f"\\{one}" for one in "&%$#_{}"},
}  # fmt: skip


def tex(text: str) -> str:
    """Text that LaTeX prints as it stands, on one line. A bracket or star at its start is shielded from a line break before it."""
    plain = " ".join(text.split())
    escaped = "".join(_TEX.get(one, one) for one in plain)
    return "{}" + escaped if plain[:1] in ("[", "*") else escaped


def _tex_line(line: Line) -> str:
    entries = [
        (rf"\textbf{{{tex(entry.value)}}}" if entry.bold else tex(entry.value))
        + (rf"{{\scriptsize$\pm${tex(entry.spread)}}}" if entry.spread else "")
        + (rf"\,{{\scriptsize {tex(entry.remark)}}}" if entry.remark else "")
        for entry in line.entries
    ]
    return " & ".join([tex(line.label), *entries]) + r" \\"
