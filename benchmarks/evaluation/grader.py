"""Shared by the benchmarks of evaluation: `populora evaluate grade` as a process, its cost, and results that grow part by part."""

import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measuring import POPULORA, noise, own_seconds, write_results

from populora.evals.benchmarks import BENCHMARKS
from populora.evals.data import find_data, load_items
from populora.evals.eval_records import Item

HERE = Path(__file__).parent
LIBRARIES = ("populora", "evalplus", "math-verify", "sympy", "numpy", "torch")
Parts = Mapping[str, Mapping[str, Any]]


def items_of(benchmark: str, data: Path) -> tuple[Path, list[Item]]:
    """Return the pinned file of a benchmark in the folder ``data``, and its items."""
    path = find_data(BENCHMARKS[benchmark], str(data))
    return path, load_items(BENCHMARKS[benchmark], path)


def canonical(item: Item) -> str:
    """Return the solution of HumanEval+ or MBPP+ to its own item."""
    return item.fields["prompt"] + item.fields["canonical_solution"]


def nothing(item: Item) -> str:
    """Return a solution that returns None."""
    return f"def {item.fields['entry_point']}(*args, **kwargs):\n    return None\n"


def write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def grade_command(benchmark: str, texts: Mapping[str, str], data: Path, out: Path, workers: int) -> list[str]:
    """Write the completions next to ``out``, and return the command that grades them; completions of code are plain code."""
    lines = write_lines(out.with_suffix(".completions"), [{"item_id": name, "completion": text} for name, text in texts.items()])
    plain = ["--completion-is-solution"] if BENCHMARKS[benchmark].grading == "code" else []
    files = ["--data", str(data), "--out", str(out), "--workers", str(workers)]
    return [*POPULORA, "evaluate", "grade", benchmark, str(lines), *files, *plain]


def spent(command: Sequence[str], log: Path, result: Path | None = None, environment: Mapping[str, str] | None = None) -> dict[str, float]:
    """Run a process; return its wall seconds, the seconds until ``result`` exists (default: its end), its CPU seconds, and the noise.

    Its output goes into ``log``. Raises `SystemExit` where it fails.
    """

    def run() -> dict[str, float]:
        before, started = own_seconds(), time.perf_counter()
        with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output, env=environment) as process:
            while process.poll() is None and not (result and result.exists()):
                time.sleep(0.02)
            verdicts = time.perf_counter() - started
        wall = time.perf_counter() - started
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{log.read_text(errors='replace')[-2000:]}")
        return {"process": wall, "verdicts": verdicts if result else wall, "cpu": own_seconds() - before}

    seconds, disturbance = noise(run)
    return {**{name: round(value, 2) for name, value in seconds.items()}, **disturbance}


def keep(out: Path, about: Mapping[str, Any], parts: Parts, bars: Callable[[Parts], dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """Add parts, each with the machine ``about``, to a result file; the bars are judged over all of its parts."""
    known = json.loads(out.read_text()) if out.exists() else {"parts": {}}
    earlier = {"machine": known["machine"]} if "machine" in known else {}  # older files have one machine for all parts
    whole = {name: {**earlier, **part} for name, part in known["parts"].items()}
    whole |= {name: {"machine": about, **part} for name, part in parts.items()}
    results = {"parts": whole, "bars": bars(whole)}
    write_results(out, results)
    return results
