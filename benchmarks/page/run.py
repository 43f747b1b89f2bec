"""What `populora report` costs: seconds and size for a run, and for one with four times as many answers; when the page is usable; and what
a step's metrics cost.

    python benchmarks/page/run.py runs/tiny_4t4s [--baseline runs/tiny_baseline] [--chromium /usr/bin/chromium]

The larger run is made of the given one: every proposal, problem and answer of each step four times, under other ids. Its texts repeat, so
it says what reading and counting cost, not what texts that differ would weigh; the page holds a sample of fixed size in any case.
Writes results.json beside this file. Bars: 20 s, 15 MB, interactive within 2 s, metrics 2 % of a step.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from populora.core.installed import processor, versions
from populora.runs.metrics import table_metrics
from populora.runs.records import SCHEMAS, read_table, recorded_steps
from populora.tasks.coverage import METRICS as DESCRIPTOR
from populora.tasks.coverage import Archive

HERE = Path(__file__).parent
REPEATED, TIMES = 4, 3
COPIED = ("proposals", "problems", "attempts")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--baseline", type=Path, nargs="*", default=[])
    parser.add_argument("--chromium", default=shutil.which("chromium") or "")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        results = measured(chosen, Path(scratch))
    chosen.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(results, indent=2))


def measured(chosen: argparse.Namespace, scratch: Path) -> dict:
    """All figures."""
    large = larger(chosen.run, scratch / "large")
    beside = ["--baseline", *map(str, chosen.baseline)] if chosen.baseline else []
    return {
        "machine": {"processor": processor(), "cores": os.cpu_count()},
        "versions": versions(("populora", "matplotlib", "pyarrow", "numpy")),
        "run": counts(chosen.run),
        "report": reported(chosen.run, beside, scratch / "page.html", chosen.chromium),
        "larger_run": counts(large),
        "report_of_larger_run": reported(large, [], scratch / "large.html", chosen.chromium),
        "figures": drawn(chosen.run, beside, scratch),
        "metrics": metrics(chosen.run),
    }


def counts(run: Path) -> dict:
    """How large a run is."""
    rows = {
        name: sum(pq.read_metadata(file).num_rows for file in (run / "steps").glob(f"*/{name}.parquet"))
        for name in ("proposals", "attempts")
    }
    return {"steps": len(recorded_steps(run)), **rows}


def larger(run: Path, folder: Path) -> Path:
    """The run with every proposal, problem and answer `REPEATED` times."""
    shutil.copytree(run, folder, ignore=shutil.ignore_patterns("checkpoints", "adapters", "report.html"))
    for name in COPIED:
        for file in (folder / "steps").glob(f"*/{name}.parquet"):
            table = pq.read_table(file)
            pq.write_table(pa.concat_tables([renamed(table, copy) for copy in range(REPEATED)]), file, compression="zstd")
    return folder


def renamed(table: pa.Table, copy: int) -> pa.Table:
    """The same rows with other problem ids; the first copy keeps them."""
    if copy == 0:
        return table
    place = table.column_names.index("problem_id")
    return table.set_column(place, "problem_id", pc.binary_join_element_wise(table["problem_id"], f"copy{copy}", "-"))


def reported(run: Path, beside: list[str], page: Path, chromium: str) -> dict:
    """Seconds of the command as a whole process, bytes of its page, and when a browser has it ready."""
    seconds = []
    for _ in range(TIMES):
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "populora.cli.main", "report", str(run), *beside, "-o", str(page)], check=True, capture_output=True
        )
        seconds.append(round(time.perf_counter() - started, 2))
    megabytes = round(page.stat().st_size / 1e6, 2)
    return {
        "seconds": seconds,
        "median_seconds": statistics.median(seconds),
        "megabytes": megabytes,
        "ready_seconds": ready(page, chromium),
    }


def drawn(run: Path, beside: list[str], scratch: Path) -> dict:
    """The same with every figure as SVG, PNG, PDF and CSV."""
    started, folder = time.perf_counter(), scratch / "figures"
    command = [
        sys.executable,
        "-m",
        "populora.cli.main",
        "report",
        str(run),
        *beside,
        "-o",
        str(scratch / "x.html"),
        "--figures",
        str(folder),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return {"seconds": round(time.perf_counter() - started, 2), "files": len(list(folder.iterdir()))}


def ready(page: Path, chromium: str) -> list[float] | str:
    """Seconds from navigation to the moment at which explorer and buttons answer, in a fresh headless browser."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return "not measured: playwright is not installed"
    if not chromium:
        return "not measured: no Chromium was found"
    found = []
    with sync_playwright() as playwright:
        for _ in range(TIMES):
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
            tab = browser.new_page()
            tab.goto(page.resolve().as_uri(), wait_until="commit")
            tab.wait_for_selector("html[data-ready]", state="attached")
            found.append(round(tab.evaluate("performance.now()") / 1000, 2))
            browser.close()
    return found


def metrics(run: Path) -> dict:
    """Seconds that a step's metrics and its part of the coverage archive take, beside the step's."""
    last = recorded_steps(run)[-1]
    tables = {name: read_table(run, name, [last]).to_pylist() for name in SCHEMAS}
    programs = [[row[name] for name in DESCRIPTOR] for row in tables["proposals"] if row["valid"] and row["rho"] is not None]
    archive, seconds = Archive(), []
    archive.add(programs)  # the tree of centroids is built once in a run
    for _ in range(10):
        started = time.perf_counter()
        table_metrics(tables)
        archive.add(programs)
        archive.summary()
        seconds.append(time.perf_counter() - started)
    steps = [json.loads(line)["seconds/step"] for line in (run / "timings.jsonl").read_text().splitlines()]
    of_step = statistics.median(seconds) / statistics.median(steps)
    return {
        "median_seconds": round(statistics.median(seconds), 4),
        "step_median_seconds": round(statistics.median(steps), 2),
        "share_of_a_step": round(of_step, 5),
    }


if __name__ == "__main__":
    main()
