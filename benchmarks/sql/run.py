"""Self-play in SQL on the base that ships: 2T+2S against the single agent, five seeds of 100 steps each.

    python -m benchmarks.sql.run [--jobs 2]                 trains what is missing, resumes what stopped; a file a run in measured/
    python -m benchmarks.sql.run --only                     trains nothing: writes results.json and table.md from these files

Hypotheses, fixed before the runs: as in the paper's Python, a population's problems become harder and its statements larger than the
agent's, and its held-out accuracy is not lower. Compared are means over the last 20 steps, with Welch's 95 % interval over seeds for one
comparison alone. ``agent_equal`` gives the agent's two roles the same weight in its loss.

The first runs had the learning rate of the presets of Python, 6e-3 (the arms ``fast``). Their teachers wrote ever fewer valid proposals,
so half of it was tried, with the same hypotheses and seeds. It is now the presets' rate.
"""

import json
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean

import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.first_run.summarise import difference_text, differences, ends, ends_of, means_text
from benchmarks.measuring import POPULORA, machine, options, write_results
from scipy import stats

from populora.core.files import read_json
from populora.core.types import task_types
from populora.domains.registry import load_domain
from populora.runs.directory import read_config
from populora.runs.metrics_log import read_log

FAST = ["--learner.learning-rate", "6e-3"]
ARMS = {
    "agent": ["sql_baseline"], "agent_equal": ["sql_baseline", "--learner.role-weights", "equal"], "2t2s": ["sql"],
    "agent_fast": ["sql_baseline", *FAST], "2t2s_fast": ["sql", *FAST],
}  # fmt: skip
"""Preset and further settings of each arm."""
COMPARED = (("2t2s", "agent"), ("2t2s", "agent_equal"), ("2t2s", "2t2s_fast"), ("2t2s_fast", "agent_fast"))
"""Pairs of arms: the second is subtracted from the first."""
SEEDS, STEPS = 5, 100
SQL = load_domain("sql")
TYPES = task_types(["sql"])
CHANGES = ("teacher/difficulty", "teacher/clauses", "teacher/columns", "held_out/accuracy")
"""Curves whose changes within runs are summed up."""
CURVES = (
    "teacher/difficulty", *(f"teacher/{metric}" for metric in SQL.metric_names), "teacher/validity",
    *(f"teacher/validity/{task}" for task in TYPES), "student/solve_rate", *(f"student/solve_rate/{task}" for task in TYPES),
    "student/response_length", "teacher/response_length", "archive/coverage", "held_out/accuracy", "tokens/update",
)  # fmt: skip
"""Metrics of a step that are kept, compared and printed."""


def main() -> None:
    here = Path(__file__).parent
    parser = options(__doc__, here)
    parser.add_argument("--root", type=Path, default=Path("runs/sql_arms"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=sorted(ARMS), choices=sorted(ARMS), help="arms to train")
    args = parser.parse_args()
    (args.out / "measured").mkdir(parents=True, exist_ok=True)
    missing = [
        name for seed in range(SEEDS) for arm in ARMS if arm in args.only and not measured(args.out, name := f"{arm}-{seed}").exists()
    ]
    with ThreadPoolExecutor(args.jobs) as jobs:
        list(jobs.map(lambda name: train(args.root / name, measured(args.out, name)), missing))
    results, lines = summarise(args.out / "measured")
    write_results(args.out / "results.json", {"steps": STEPS, "arms": ARMS, **results})
    (args.out / "table.md").write_text(lines, encoding="utf-8")


def summarise(folder: Path) -> tuple[dict[str, dict], str]:
    """Return what the measured runs show, and their table."""
    curves = {file.stem: pq.read_table(file).to_pydict() for file in sorted(folder.glob("*.parquet"))}
    runs = {name: {metric: ends(curve) for metric, curve in of_run.items()} for name, of_run in curves.items()}
    lowest = {name: lowest_mean(of_run["teacher/validity/sql_f"]) for name, of_run in curves.items()}
    arms = [arm for arm in ARMS if any(name.startswith(f"{arm}-") for name in runs)]
    compared = {f"{arm} − {other}": differences(runs, arm, other, CURVES) for arm, other in COMPARED if {arm, other} <= set(arms)}
    changed = {arm: {name: change(ends_of(runs, arm, name)) for name in CHANGES} for arm in arms}
    return {"lowest_validity_of_sql_f": lowest, "changes": changed, "differences": compared}, table(runs, arms, compared)


def change(rows: Sequence[Mapping[str, float]]) -> dict[str, float | list[float]]:
    """Return the mean change from the first to the last steps, Student's 95 % interval over runs, and in how many runs there is a rise."""
    changes = [row["last"] - row["first"] for row in rows if "last" in row]
    interval = stats.ttest_1samp(changes, 0.0).confidence_interval(0.95)
    bounds = [round(float(bound), 4) for bound in (interval.low, interval.high)]
    return {"runs": len(changes), "rises": sum(value > 0 for value in changes), "mean": round(fmean(changes), 4), "interval_95": bounds}


def lowest_mean(curve: Sequence[float], width: int = 10) -> float:
    """Return the lowest mean of ``width`` steps in a row."""
    return round(min(sum(curve[start : start + width]) / width for start in range(len(curve) - width + 1)), 3)


def measured(folder: Path, name: str) -> Path:
    return folder / "measured" / f"{name}.parquet"


def train(folder: Path, file: Path) -> None:
    """Train or resume one run, and keep its curves, a row a step. The base and the machine are named in the metadata."""
    about = machine("populora", "torch")
    arm, seed = folder.name.rsplit("-", 1)
    if not (folder / "config.json").exists():
        flags = ["--seed", seed, "--steps", str(STEPS), "--threads", "1", "--out", str(folder)]
        subprocess.run([*POPULORA, "train", *ARMS[arm], *flags], check=True, stdout=subprocess.DEVNULL)
    elif len(read_log(folder)) < read_config(folder).steps:
        subprocess.run([*POPULORA, "resume", str(folder)], check=True, stdout=subprocess.DEVNULL)
    log = read_log(folder)
    curves = pa.table({name: [line.get(name) for line in log] for name in CURVES})
    facts = {"base_sha256": read_json(folder / "run.json")["base_sha256"], "machine": json.dumps(about)}
    pq.write_table(curves.replace_schema_metadata(facts), file, compression="zstd")


def table(runs: Mapping[str, dict], arms: Sequence[str], compared: Mapping[str, dict]) -> str:
    """Return Markdown: for each curve the means over an arm's runs of the first and the last steps, and the differences."""
    titles = [*arms, *(f"{pair} [95 %]" for pair in compared)]
    lines = [f"| first 20 steps → last 20 | {' | '.join(titles)} |", "|---" * (1 + len(titles)) + "|"]
    for name in CURVES:
        cells = [means_text(ends_of(dict(runs), arm, name)) for arm in arms]
        cells += [difference_text(entries[name]) if name in entries else "–" for entries in compared.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
