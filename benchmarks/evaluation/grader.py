"""What the scripts here share: `populora evaluate grade` as a process, what a process costs, and results that grow part by part."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("sandbox", "speed")]

from processes import noise, own_seconds  # noqa: E402
from timing import spread  # noqa: E402

from populora.core.installed import processor  # noqa: E402
from populora.evals.benchmarks import BENCHMARKS  # noqa: E402
from populora.evals.data import find_data, load_items  # noqa: E402
from populora.evals.records import Item  # noqa: E402
from populora.runs.directory import versions  # noqa: E402

LIBRARIES = ("populora", "evalplus", "math-verify", "sympy", "numpy", "torch")
POPULORA = (sys.executable, "-m", "populora.cli.main")
Parts = Mapping[str, Mapping[str, Any]]


def machine() -> dict[str, Any]:
    """Where and when: processor, versions, and how busy it was before."""
    load = round(os.getloadavg()[0], 2)
    return {"processor": processor(), "cores": os.cpu_count(), "load_before": load, **versions(LIBRARIES)}


def items_of(benchmark: str, data: Path) -> tuple[Path, list[Item]]:
    """The pinned file of a benchmark in the folder ``data``, and its items."""
    which = BENCHMARKS[benchmark]
    path = find_data(which, str(data))
    return path, load_items(which, path)


def canonical(item: Item) -> str:
    """The solution of HumanEval+ or MBPP+ to its own item."""
    return item.fields["prompt"] + item.fields["canonical_solution"]


def nothing(item: Item) -> str:
    """A solution that returns None, whatever it is asked."""
    return f"def {item.fields['entry_point']}(*args, **kwargs):\n    return None\n"


def write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def grade_command(benchmark: str, texts: Mapping[str, str], data: Path, out: Path, workers: int) -> list[str]:
    """Write the completions beside ``out``, and give what a user types to grade them; completions of code are plain code."""
    lines = write_lines(out.with_suffix(".completions"), [{"item_id": name, "completion": text} for name, text in texts.items()])
    plain = ["--completion-is-solution"] if BENCHMARKS[benchmark].grading == "code" else []
    return [
        *POPULORA,
        "evaluate",
        "grade",
        benchmark,
        str(lines),
        "--data",
        str(data),
        "--out",
        str(out),
        "--workers",
        str(workers),
        *plain,
    ]


def spent(command: Sequence[str], log: Path, result: Path | None = None, environment: Mapping[str, str] | None = None) -> dict[str, float]:
    """What a process took in seconds: until it ended, until ``result`` was there (default: its end), and of CPU, with all below it;
    and what share of all cores' time others than this script's processes had. Its output goes into ``log``. Raises `SystemExit` where
    it fails."""

    def run() -> dict[str, float]:
        before, started = own_seconds(), time.perf_counter()
        with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output, env=environment) as process:
            while process.poll() is None and not (result and result.exists()):
                time.sleep(0.02)
            there = time.perf_counter() - started
        wall = time.perf_counter() - started
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{log.read_text(errors='replace')[-2000:]}")
        return {"process": wall, "verdicts": there if result else wall, "cpu": own_seconds() - before}

    seconds, others = noise(run)
    return {**{name: round(value, 2) for name, value in seconds.items()}, **others}


def columns(rows: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Median, smallest and largest of each column."""
    return {name: spread([row[name] for row in rows]) for name in rows[0]}


def at_most(limit: float, found: float) -> dict[str, Any]:
    return {"at_most": limit, "found": found, "met": found <= limit}


def keep(out: Path, parts: Parts, bars: Callable[[Parts], dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """Put parts into a result file beside those that it has; the bars are judged over all of them."""
    known = json.loads(out.read_text())["parts"] if out.exists() else {}
    whole = {**known, **parts}
    results = {"parts": whole, "bars": bars(whole)}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(results, indent=1) + "\n")
    return results
