"""Measure `populora report`: seconds, size, and when a browser has the page ready; for a run and for one with four times the answers.

    python -m benchmarks.page.run runs/tiny_4t4s [--baseline runs/tiny_baseline] [--chromium /usr/bin/chromium]

The larger run repeats every proposal, problem and answer of each step under other ids. Its texts repeat, so it measures reading and
counting, not the size of texts that differ. Writes results.json here. Bars: 20 s, 15 MB, ready within 2 s.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from benchmarks.measuring import POPULORA, machine, options, write_results

from populora.runs.records import recorded_steps

REPEATED, TIMES = 4, 3
COPIED = ("proposals", "problems", "attempts")


def main() -> None:
    parser = options(__doc__, Path(__file__).with_name("results.json"))
    parser.add_argument("run", type=Path)
    parser.add_argument("--baseline", type=Path, nargs="*", default=[])
    parser.add_argument("--chromium", default=shutil.which("chromium") or "")
    args = parser.parse_args()
    baselines = ["--baseline", *map(str, args.baseline)] if args.baseline else []
    with tempfile.TemporaryDirectory() as scratch:
        large = enlarge(args.run, Path(scratch) / "large")
        results = {
            "machine": machine("populora", "matplotlib", "pyarrow"),
            "run": count(args.run),
            "report": measure_report(args.run, baselines, Path(scratch) / "page.html", args.chromium),
            "larger_run": count(large),
            "report_of_larger_run": measure_report(large, [], Path(scratch) / "large.html", args.chromium),
        }
    write_results(args.out, results)


def count(run: Path) -> dict[str, int]:
    """Return steps, proposals and answers of a run."""
    rows = {
        name: sum(pq.read_metadata(file).num_rows for file in (run / "steps").glob(f"*/{name}.parquet"))
        for name in ("proposals", "attempts")
    }
    return {"steps": len(recorded_steps(run)), **rows}


def enlarge(run: Path, folder: Path) -> Path:
    """Copy the run with every proposal, problem and answer `REPEATED` times; the first copy keeps its problem ids."""
    shutil.copytree(run, folder, ignore=shutil.ignore_patterns("checkpoints", "adapters", "report.html"))
    for file in (file for name in COPIED for file in (folder / "steps").glob(f"*/{name}.parquet")):
        table = pq.read_table(file)
        column = table.column_names.index("problem_id")
        names = [pc.binary_join_element_wise(table["problem_id"], f"copy{copy}", "-") for copy in range(1, REPEATED)]
        copies = [table.set_column(column, "problem_id", ids) for ids in names]
        pq.write_table(pa.concat_tables([table, *copies]), file, compression="zstd")
    return folder


def measure_report(run: Path, baselines: list[str], page: Path, chromium: str) -> dict[str, Any]:
    """Return seconds of the command as a whole process, megabytes of its page, and when a browser has it ready."""
    seconds = []
    for _ in range(TIMES):
        started = time.perf_counter()
        subprocess.run([*POPULORA, "report", str(run), *baselines, "-o", str(page)], check=True, capture_output=True)
        seconds.append(round(time.perf_counter() - started, 2))
    megabytes = round(page.stat().st_size / 1e6, 2)
    return {
        "seconds": seconds,
        "median_seconds": statistics.median(seconds),
        "megabytes": megabytes,
        "ready_seconds": ready(page, chromium),
    }


def ready(page: Path, chromium: str) -> list[float] | str:
    """Return seconds from navigation until explorer and buttons answer, in a fresh headless browser."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return "not measured: playwright is not installed"
    if not chromium:
        return "not measured: no Chromium was found"
    seconds = []
    with sync_playwright() as playwright:
        for _ in range(TIMES):
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
            tab = browser.new_page()
            tab.goto(page.resolve().as_uri(), wait_until="commit")
            tab.wait_for_selector("html[data-ready]", state="attached")
            seconds.append(round(tab.evaluate("performance.now()") / 1000, 2))
            browser.close()
    return seconds


if __name__ == "__main__":
    main()
