"""Measure the sandbox: programs a second beside other ways, and ten thousand mixed programs in one pool.

    python -m benchmarks.sandbox.run       writes results.json and table.md here; run it on an idle machine, as root; four minutes

`speed`: trivial programs, all different; CPU time is that of the caller and of all processes below it. `endurance`: the memory of one
pool and what the programs leave behind. Figures are medians over the rounds with the smallest and the largest; ratios are taken within
a round. Only root may read the memory and the descriptors of the pool's processes.
"""

import os
import platform
from typing import Any

from benchmarks.measuring import bar, machine, options, write_results
from benchmarks.sandbox.endurance import CHUNK, measure_endurance
from benchmarks.sandbox.speed import FORK, FORK_GUARDED, HERE, SUBPROCESS, measure_speed, pool_name

GROWTH_MB = 0.5
"""Growth of the private memory of all processes of the pool that counts as none."""
BARS = {
    f"populora against {SUBPROCESS}": 8.0,
    f"populora by default, with 2 workers, against {SUBPROCESS}": 8.0,
    f"populora against {FORK_GUARDED}": 1.0,
    f"populora against {FORK}": 1.0,
    "two workers against one, once": 1.7,
    "two workers against one, complete check": 1.7,
}


def main() -> None:
    parser = options(__doc__, HERE, rounds=11)
    parser.add_argument("--programs", type=int, default=200, help="trivial programs in a burst")
    parser.add_argument("--mixed", type=int, default=10_000, help="mixed programs in one pool")
    args = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("only root may read the memory of the pool's processes: run it as root")
    results: dict[str, Any] = {"machine": {**machine(), "kernel": platform.release()}}
    results["settings"] = {"rounds": args.rounds, "programs": args.programs}
    results["speed"] = measure_speed(args.rounds, args.programs)
    results["endurance"] = measure_endurance(args.mixed)
    results["bars"] = bars(results["speed"], results["endurance"])
    write_results(args.out / "results.json", results)
    (args.out / "table.md").write_text(table(results))


def bars(speed: dict[str, Any], endurance: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Judge the bars. Workers scale on idle cores only."""
    cpu = bar(3.5, speed["ways"][pool_name(speed["tier"], 1, False)]["cpu_ms"]["median"])
    return {
        "CPU ms of a trivial program with every layer on": {**cpu, "met": cpu["met"] and speed["tier"] == "full"},
        **{name: bar(limit, speed["ratios"][name]["median"], at_least=True) for name, limit in BARS.items()},
        "growth in MB of the pool's memory over the programs": grown(endurance),
        "left behind by the programs": left_behind(endurance),
    }


def grown(endurance: dict[str, Any]) -> dict[str, Any]:
    """Compare memory after `CHUNK` programs with the end; unknown with fewer than twice as many."""
    samples = {sample["programs"]: sample["pool_private_mb"] for sample in endurance["samples"]}
    if endurance["programs"] < 2 * CHUNK:
        return {"at_most": GROWTH_MB, "found": None, "met": False}
    return bar(GROWTH_MB, round(samples[endurance["programs"]] - samples[CHUNK], 3))


def left_behind(endurance: dict[str, Any]) -> dict[str, Any]:
    """Count processes, descriptors and files: more at the end than at the beginning, or still there a second after closing."""
    first, last = endurance["samples"][0], endurance["samples"][-1]
    more = {f"more_{name}": last[name] - first[name] for name in ("processes", "pool_descriptors")}
    left = more | endurance["left_after_closing"]
    return {"at_most": 0, "found": left, "met": all(number <= 0 for number in left.values())}


def table(results: dict[str, Any]) -> str:
    """Return the speeds in Markdown: medians with the smallest and largest of the rounds."""
    where, noise, settings = results["machine"], results["speed"]["noise"], results["settings"]
    about = (
        f"{where['processor']}, {where['cores']} cores, Python {where['python']}, Linux {where['kernel']}. Medians of "
        f"{settings['rounds']} rounds (smallest to largest). Taken by the host: {noise['stolen_percent']} % of the processors' time, "
        f"by other processes: {noise['others_percent']} %."
    )
    lines = [
        about,
        "",
        "| trivial programs | programs/s | CPU ms each |",
        "|---|---|---|",
    ]
    for name, figures in results["speed"]["ways"].items():
        rate = figures["programs_per_second"]
        lines.append(f"| {name} | {rate['median']:.0f} ({rate['min']:.0f} to {rate['max']:.0f}) | {figures['cpu_ms']['median']:.2f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
