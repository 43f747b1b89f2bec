"""Reduce the results of `populora retention` to what is kept here.

    populora retention retention --out OUT && python -m benchmarks.retention.summarise OUT
    populora retention retention_full --out OUT && python -m benchmarks.retention.summarise OUT --out benchmarks/retention/full

Writes results.json (settings, machine, seconds, and a line for each child and task), summary.parquet (the intervals over seeds),
children.parquet (every child of every seed and snapshot, with its lineage) and table.md. Figures are copied by hand.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.measuring import options, write_results

LINE = ("child", "task", "recovered", "verdict", "versus_control")
"""Columns of the summary that results.json repeats."""


def main() -> None:
    parser = options(__doc__, Path(__file__).parent)
    parser.add_argument("folder", type=Path, help="what `populora retention --out` wrote")
    args = parser.parse_args()
    summarise(json.loads((args.folder / "results.json").read_text()), args.out)
    shutil.copy(args.folder / "table.md", args.out)


def summarise(results: Mapping[str, Any], out: Path) -> None:
    """Write results.json, summary.parquet and children.parquet."""
    kept = {name: value for name, value in results.items() if name not in ("cells", "children", "summary")}
    rows = [{name: row[name] for name in LINE} for row in results["summary"]]
    write_results(out / "results.json", {**kept, "summary": rows})
    pq.write_table(pa.Table.from_pylist(results["summary"]), out / "summary.parquet", compression="zstd")
    lineages = {(cell["seed"], cell["snapshot"]): cell["children"] for cell in results["cells"]}
    children = [{**row, "lineage": json.dumps(lineages[row["seed"], row["snapshot"]][row["child"]])} for row in results["children"]]
    pq.write_table(pa.Table.from_pylist(children), out / "children.parquet", compression="zstd")


if __name__ == "__main__":
    main()
