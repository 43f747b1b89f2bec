"""Compare prefill, decoding and training at the shape of Qwen2.5-0.5B with an earlier commit's, on one thread.

    python -m benchmarks.large_base [--old COMMIT] [--rounds 3]        writes large_base.json; about ten minutes and 10 GB of memory

The base has random weights, the real depth and the real vocabulary. It needs the git repository. Each source is in a process of its own
(`benchmarks.speed.large_base_worker`), and the two take turns. Times are CPU seconds.
"""

from pathlib import Path
from typing import Any

from benchmarks.decoding import measure_sources
from benchmarks.measuring import ROOT, Times, bar, machine, options, ratio, spread, write_results
from benchmarks.old_and_new import OLD, commits

CASES = ("prefill 1", "prefill 8", "decode 0", "decode 1", "decode 8", "train 1", "train 8")
WORKER = ROOT / "benchmarks" / "speed" / "large_base_worker.py"
BASE_SHARE = 0.92
"""Least speed with 8 adapters as a share of the bare base's."""


def main() -> None:
    parser = options(__doc__, Path(__file__).with_suffix(".json"), rounds=3)
    parser.add_argument("--old", metavar="COMMIT", default=OLD)
    args = parser.parse_args()
    about = {"machine": machine("populora", "torch"), "rounds": args.rounds, "commits": commits(args.old)}
    measured, disturbance = measure_sources(WORKER, args.old, CASES, "decode 1", args.rounds)
    seconds = {name: [each["seconds"] for each in rounds] for name, rounds in measured.items()}
    write_results(args.out, {**about, **compare(seconds), "noise": disturbance})


def compare(seconds: Times) -> dict[str, Any]:
    """Return the seconds of each case by age, their ratios and the bars."""
    ratios = {case: ratio(seconds, f"old {case}", f"new {case}") for case in CASES}
    share = ratio(seconds, "new decode 0", "new decode 8")
    bars = {f"{case}: old / new": bar(1.0, ratios[case]["median"], at_least=True) for case in CASES}
    bars["decoding with 8 adapters / bare base"] = bar(BASE_SHARE, share["median"], at_least=True)
    by_case = {case: {age: spread(seconds[f"{age} {case}"]) for age in ("old", "new")} for case in CASES}
    return {"seconds": by_case, "old / new": ratios, "speed with 8 / bare": share, "bars": bars}


if __name__ == "__main__":
    main()
