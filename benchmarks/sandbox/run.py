"""The sandbox measured: programs a second and their cost beside other ways, what attacks get, and ten thousand programs in one pool.

    python benchmarks/sandbox/run.py        writes results.json and table.md here; run it on an idle machine, as root; four minutes

Three parts. `speed`: trivial programs, all different, in rounds that go through all ways, so that what disturbs one disturbs its
neighbours; CPU time is that of the caller and of all processes below it. `attacks`: programs and answers that a lenient executor takes
for good, put to one in the manner of the Absolute Zero Reasoner's and to populora. `endurance`: many mixed programs in one pool, its
memory on the way and what is left in the end. Wall times depend on what else runs: every figure is the median of several rounds with
the smallest and the largest beside it, ratios are taken within a round, and ``stolen_percent`` and ``others_percent`` say what share of
the processors' time went to other guests of the host and to other processes of this machine. Root is needed for the
memory of the pool's processes only, which the kernel shows to nobody else.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from attacks import attempt, sandboxed
from endurance import measure_endurance
from speed import FORK, FORK_GUARDED, SUBPROCESS, SUBPROCESS_BASE, measure_speed, pool_name
from table import table

from populora.sandbox.pool import SandboxPool
from populora.sandbox.protocol import PROFILES

HERE = Path(__file__).parent
FIRST = 1000
"""Programs after which the pool's memory is compared with that in the end."""
GROWTH_MB = 0.5
"""Private memory of all processes of the pool together: less counts as none."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--programs", type=int, default=200, help="trivial programs in a burst")
    parser.add_argument("--mixed", type=int, default=10_000, help="mixed programs in one pool")
    parser.add_argument("--out", type=Path, default=HERE)
    chosen = parser.parse_args()
    started = time.perf_counter()
    found: dict[str, Any] = {"machine": machine(), "settings": {"rounds": chosen.rounds, "programs": chosen.programs}}
    found["speed"] = measure_speed(chosen.rounds, chosen.programs)
    found["attacks"] = measure_attacks()
    found["endurance"] = measure_endurance(chosen.mixed)
    found["bars"] = bars(found["speed"], found["endurance"])
    found["seconds"] = round(time.perf_counter() - started)
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "results.json").write_text(json.dumps(found, indent=2) + "\n")
    (chosen.out / "table.md").write_text(table(found))
    print(table(found))
    print(json.dumps(found["bars"], indent=2))


def measure_attacks() -> dict[str, Any]:
    """Each attack put to the in-process manner, in a process to be thrown away, and to populora."""
    done = subprocess.run([sys.executable, str(HERE / "attacks.py")], capture_output=True, text=True, check=True)
    with SandboxPool(PROFILES["training"], workers=1) as pool:
        ours = attempt(lambda: sandboxed(pool))
    return {name: {"in_process": theirs, "populora": ours[name]} for name, theirs in json.loads(done.stdout).items()}


def bars(speed: dict[str, Any], endurance: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What the sandbox is meant to reach, what was found, and whether it is met. Workers scale on idle cores only."""
    ratios = {name: ratio["median"] for name, ratio in speed["ratios"].items()}
    cpu = speed["ways"][pool_name(speed["tier"], 1, False)]["cpu_ms"]["median"]
    every_layer = speed["tier"] == "full"
    return {
        "CPU ms of a trivial program with every layer on": {"at_most": 3.5, "found": cpu, "met": every_layer and cpu <= 3.5},
        **{
            name: {"at_least": bar, "found": ratios[name], "met": ratios[name] >= bar}
            for name, bar in {
                f"populora against {SUBPROCESS}": 8.0,
                f"populora against {SUBPROCESS_BASE}": 8.0,
                f"populora by default, with 2 workers, against {SUBPROCESS}": 8.0,
                f"populora against {FORK_GUARDED}": 1.0,
                f"populora against {FORK}": 1.0,
                "two workers against one, once": 1.7,
                "two workers against one, complete check": 1.7,
            }.items()
        },
        "growth in MB of the pool's memory over the programs": grown(endurance),
        "left behind by the programs": left_behind(endurance),
    }


def grown(endurance: dict[str, Any]) -> dict[str, Any]:
    """From the first thousand programs to the last; unknown where the kernel does not show the memory, or with fewer programs."""
    samples = {sample["programs"]: sample["pool_memory_mb"] for sample in endurance["samples"]}
    first, last = samples.get(FIRST), samples[endurance["programs"]]
    if first is None or last is None or endurance["programs"] < 2 * FIRST:
        return {"at_most": GROWTH_MB, "found": None, "met": False}
    growth = round(last["private"] - first["private"], 3)
    return {"at_most": GROWTH_MB, "found": growth, "met": growth <= GROWTH_MB}


def left_behind(endurance: dict[str, Any]) -> dict[str, Any]:
    """Processes, descriptors and files: more at the end than at the beginning, or there when the pool has been closed for a second."""
    first, last = endurance["samples"][0], endurance["samples"][-1]
    more = {f"more_{name}": last[name] - first[name] for name in ("processes", "pool_descriptors", "caller_descriptors") if first[name]}
    found = more | endurance["left_after_closing"]
    counted = [number for name, number in found.items() if name != "processes_at_once"]
    return {"at_most": 0, "found": found, "met": all(number is not None and number <= 0 for number in counted)}


def machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return {
        "cores": os.cpu_count(),
        "processor": next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor()),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "root": os.geteuid() == 0,
        "load_before": round(os.getloadavg()[0], 2),
    }


if __name__ == "__main__":
    main()
