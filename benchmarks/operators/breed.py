"""`populora breed` at the shapes of Qwen2.5-7B, as a user runs it: a process from its start to its end, on one thread.

    python benchmarks/operators/breed.py [--rounds 5] [--only m1 x1]      writes breed.json; about a minute a round

The parents are folders of random factors of rank 32 on q, k, v and o of 28 layers (77 MiB each, in the page cache). Every round runs
all operators and, as ``bare``, a process that only loads torch as the command does: what no breeding can be faster than. Seconds are
wall clock; ``cpu`` is what the process used. The phases are those that the command itself prints.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "speed"))

import torch  # noqa: E402
from machine import machine  # noqa: E402

from populora.adapters.adapter import Adapter  # noqa: E402
from populora.adapters.operators import available_operators  # noqa: E402
from populora.adapters.peft_format import save_adapter  # noqa: E402

LAYERS, HIDDEN, RANK = 28, 3584, 32
OUTS = {"q_proj": 3584, "k_proj": 512, "v_proj": 512, "o_proj": 3584}
BARE = ("-c", "from populora.cli.loading import load_torch; load_torch()")
PHASE = re.compile(r"(start|read|breed|write) (\d+\.\d+)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=list(available_operators()), choices=list(available_operators()))
    parser.add_argument("--out", type=Path, default=HERE / "breed.json")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for seed, name in enumerate("ab"):
            save_adapter(random_adapter(seed), folder / name, "Qwen/Qwen2.5-Coder-7B", tuple(OUTS))
        size = (folder / "a" / "adapter_model.safetensors").stat().st_size
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in ("bare", *chosen.only)}
        for _ in range(chosen.rounds):
            for name, rounds in runs.items():
                rounds.append(timed(BARE if name == "bare" else command(folder, name)))
                shutil.rmtree(folder / "child", ignore_errors=True)
    results = {
        "machine": machine(), "adapter_mib": round(size / 2**20, 1), "rounds": chosen.rounds, "goal_seconds": 3.0,
        "seconds": {name: summary(rounds) for name, rounds in runs.items()},
    }  # fmt: skip
    chosen.out.write_text(json.dumps(results, indent=1) + "\n")
    for name, row in results["seconds"].items():
        print(f"{name:12}", "  ".join(f"{column} {value:.2f}" for column, value in row.items()))


def random_adapter(seed: int) -> Adapter:
    """Factors of the size that training leaves; speed does not depend on them."""
    generator = torch.Generator().manual_seed(seed)
    modules = {
        f"model.layers.{layer}.self_attn.{name}": (
            torch.randn(RANK, HIDDEN, generator=generator) / 60, torch.randn(outs, RANK, generator=generator) / 100
        )
        for layer in range(LAYERS)
        for name, outs in OUTS.items()
    }  # fmt: skip
    return Adapter(modules, RANK, 2.0 * RANK)


def command(folder: Path, operator: str) -> Sequence[str]:
    """What a user types after ``python``."""
    parents = [str(folder / name) for name in "ab"[: available_operators()[operator].arity]]
    return ("-m", "populora.cli.main", "breed", *parents, "--operator", operator, "-o", str(folder / "child"))


def timed(arguments: Sequence[str]) -> dict[str, float]:
    """Wall clock and CPU seconds of one Python process, and the phases that it printed."""
    before, started = os.times(), time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=True)
    wall, after = time.perf_counter() - started, os.times()
    cpu = after.children_user - before.children_user + after.children_system - before.children_system
    return {"wall": wall, "cpu": cpu, **{name: float(value) for name, value in PHASE.findall(done.stdout)}}


def summary(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    """The median of each column, and the fastest round."""
    medians = {column: round(statistics.median(row[column] for row in rounds), 3) for column in rounds[0]}
    return {"fastest": round(min(row["wall"] for row in rounds), 3), **medians}


if __name__ == "__main__":
    main()
