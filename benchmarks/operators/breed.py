"""Time `populora breed` at the shapes of Qwen2.5-7B as a whole process, on one thread.

    python -m benchmarks.operators.breed [--rounds 5] [--only m1 x1]      writes breed.json; about a minute a round

The parents are folders of rank 32 on q, k, v and o of 28 layers (77 MiB each, in the page cache). Every round runs all operators and, as
``bare``, a process that only loads torch as the command does. Seconds are wall clock; ``cpu`` is CPU time of the process.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measuring import POPULORA, columns, machine, options, take_turns, timed, write_results
from benchmarks.operators.run import TARGETS, qwen_adapter

from populora.adapters.operators import available_operators
from populora.adapters.peft_format import save_adapter

BARE = (sys.executable, "-c", "import torch")


def main() -> None:
    parser = options(__doc__, Path(__file__).with_suffix(".json"), rounds=5)
    parser.add_argument("--only", nargs="*", default=list(available_operators()), choices=list(available_operators()))
    args = parser.parse_args()
    about = {"machine": machine("torch")}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for seed, name in enumerate("ab"):
            save_adapter(qwen_adapter(seed), folder / name, "Qwen/Qwen2.5-Coder-7B", tuple(TARGETS))
        size = (folder / "a" / "adapter_model.safetensors").stat().st_size
        cases = {"bare": lambda: spent(BARE)} | {name: lambda name=name: spent(command(folder, name)) for name in args.only}
        rounds = take_turns(cases, args.rounds)
    results = {
        **about, "adapter_mib": round(size / 2**20, 1), "rounds": args.rounds, "goal_seconds": 3.0,
        "seconds": {name: columns(rows) for name, rows in rounds.items()},
    }  # fmt: skip
    write_results(args.out, results)


def command(folder: Path, operator: str) -> Sequence[str]:
    """Return what a user types, where no child is yet."""
    parents = [str(folder / name) for name in "ab"[: available_operators()[operator].arity]]
    shutil.rmtree(folder / "child", ignore_errors=True)
    return (*POPULORA, "breed", *parents, "--operator", operator, "-o", str(folder / "child"))


def spent(arguments: Sequence[str]) -> dict[str, float]:
    """Return wall clock and CPU seconds of a process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    _, wall, cpu = timed(lambda: subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True))
    return {"wall": wall, "cpu": cpu}


if __name__ == "__main__":
    main()
