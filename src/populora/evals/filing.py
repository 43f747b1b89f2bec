"""Tables as files: Markdown and LaTeX as they are printed, CSV with every number unrounded."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from populora.core.files import write_file
from populora.evals.comparison import Difference
from populora.evals.latex import latex
from populora.evals.layout import Layout, markdown

Rows = Sequence[Mapping[str, Any]] | Sequence[Difference]


def write_tables(folder: Path, name: str, layouts: Sequence[Layout], rows: Rows) -> list[Path]:
    """``name.md``, ``name.tex`` and ``name.csv`` in ``folder``. Raises `RunDirectoryError`."""
    labels = [f"tab:{name}" if number == 0 else f"tab:{name}-{number + 1}" for number in range(len(layouts))]
    texts = {
        "md": "\n".join(markdown(one) for one in layouts),
        "tex": "\n".join(latex(one, label) for one, label in zip(layouts, labels, strict=True)),
        "csv": csv_text(rows),
    }
    for ending, text in texts.items():
        write_file(folder / f"{name}.{ending}", text.encode())
    return [folder / f"{name}.{ending}" for ending in texts]


def csv_text(rows: Rows) -> str:
    """Records of the table, or differences, with a line of names. Empty for none."""
    plain = [asdict(row) if isinstance(row, Difference) else row for row in rows]
    if not plain:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(plain[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(plain)
    return text.getvalue()
