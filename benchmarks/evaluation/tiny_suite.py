"""Time `populora evaluate RUN --suite tiny --members all` for 8 members: the whole command, generation and grading.

    python -m benchmarks.evaluation.tiny_suite [--steps 10] [--rounds 2]      writes tiny_suite.json; six minutes

`configs/tiny_4t4s.toml` is trained for ``--steps`` first, so that the members' answers differ. Members answer together, and equal answers
are judged once: the more they differ, the longer it takes. ``generation`` ends with the last completion and includes start and loading.
"""

import json
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.evaluation.grader import HERE, LIBRARIES, spent
from benchmarks.measuring import POPULORA, ROOT, bar, columns, machine, options, write_results

from populora.evals.folder import read_evaluation

CONFIG = ROOT / "configs" / "tiny_4t4s.toml"
BAR_SECONDS = 90.0


def main() -> None:
    parser = options(__doc__, HERE / "tiny_suite.json", rounds=2)
    parser.add_argument("--steps", type=int, default=10, help="of the run that is trained")
    args = parser.parse_args()
    about = {"machine": machine(*LIBRARIES), "steps": args.steps}
    with tempfile.TemporaryDirectory() as temporary:
        run = Path(temporary) / "run"
        subprocess.run([*POPULORA, "train", str(CONFIG), "--steps", str(args.steps), "--out", str(run)], check=True)
        folders = [Path(temporary) / f"evaluation_{number}" for number in range(args.rounds)]
        rounds = [evaluate(["evaluate", str(run), "--suite", "tiny", "--members", "all"], folder) for folder in folders]
        results = {**about, **scores(folders[-1])}
        results |= {"distinct_completions": distinct(folders[-1]), "rounds": len(rounds), "seconds": columns(rounds)}
    write_results(args.out, results | {"bars": bars(results)})


def evaluate(command: Sequence[str], folder: Path) -> dict[str, float]:
    """Return the seconds of the command, and of its generation."""
    started = time.time()
    whole = spent([*POPULORA, *command, "--out", str(folder)], folder.with_suffix(".log"))
    generated = max(file.stat().st_mtime for file in (folder / "generations").rglob("*.jsonl"))
    others = {name: value for name, value in whole.items() if name not in ("process", "verdicts")}
    return {"whole": whole["process"], "generation": round(generated - started, 2), **others}


def scores(folder: Path) -> dict[str, Any]:
    """Return the number of items and members, and per cent right of each member."""
    rows = read_evaluation(folder).scores
    return {"items": rows[0].graded, "members": len(rows), "right_percent": {row.model: round(row.rate, 2) for row in rows}}


def distinct(folder: Path) -> int:
    """Count the different pairs of an item and a completion over all members."""
    lines = (json.loads(line) for file in folder.glob("generations/*/*.jsonl") for line in file.read_text().splitlines())
    return len({(line["item_id"], line["completion"]) for line in lines})


def bars(results: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    name = f"seconds for {results['members']} members on {results['machine']['cores']} cores"
    return {name: bar(BAR_SECONDS, results["seconds"]["whole"]["median"])}


if __name__ == "__main__":
    main()
