"""Many adapters on one GPU, measured: training and decoding against the roofline of the card, and against the goals.

    python benchmarks/gpu.py [--shapes Qwen2.5-0.5B Qwen2.5-7B] [--rounds 5]        writes speed/gpu.json

Random weights in bf16, rank 32. Times are wall-clock with the card synchronised; every round runs all cases of a group, after one that
does not count; figures are medians over the rounds with the smallest and the largest. Without a GPU the same code runs at toy size, and
the result says that no GPU figure exists.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "speed"
sys.path.insert(0, str(HERE))

import card  # noqa: E402
import torch  # noqa: E402
from machine import machine  # noqa: E402
from roofline import nominal_tflops, peaks, probes  # noqa: E402
from timing import interleaved  # noqa: E402

NOTE = "no GPU figure exists yet: this run found no CUDA device, so it went through the same code at toy size; its speeds mean nothing"


def main(arguments: Sequence[str] | None = None) -> None:
    plan = card.REAL if torch.cuda.is_available() else card.TOY
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=list(plan.bases), choices=list(plan.bases))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=HERE / "gpu.json")
    chosen = parser.parse_args(arguments)
    found = measured(plan, chosen.shapes, chosen.rounds)
    chosen.out.write_text(json.dumps(found, indent=1) + "\n")


def measured(plan: card.Plan, shapes: Sequence[str], rounds: int) -> dict[str, Any]:
    """Roofline, then every shape, then the goals."""
    reached = peaks(interleaved(probes(plan.device, plan.dtype, plan.side, plan.mib), rounds, card.clock), plan.side, plan.mib)
    gpu = _gpu() if plan.device == "cuda" else None
    utilisation = {"measured": reached["tflops"]["median"], "nominal": gpu and gpu["nominal_tflops"]}
    found: dict[str, Any] = {"gpu": gpu, **({} if gpu else {"note": NOTE}), "machine": machine(), "rounds": rounds, "roofline": reached}
    found["shapes"] = {}
    for shape in shapes:
        torch.compiler.reset()  # compiled for the heads of the shape before
        base = plan.bases[shape]
        trained = card.training(plan, base, utilisation, rounds)
        found["shapes"][shape] = {
            "training": trained,
            "decoding": card.decoding(plan, base, reached["gigabytes_per_second"]["median"], rounds),
        }
    return found | {"goals": goals(found)}


def _gpu() -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(0)
    return {
        "name": properties.name,
        "memory_gib": round(properties.total_memory / 2**30, 1),
        "cuda": torch.version.cuda,
        "nominal_tflops": nominal_tflops(properties.name),
    }


def goals(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Each goal with what was measured; ratios are the worst case's, the utilisation is the best setting's, as one would choose it."""
    on_gpu = found["gpu"] is not None
    kind = "nominal" if on_gpu and found["gpu"]["nominal_tflops"] else "measured"
    shapes = found["shapes"] if on_gpu else {}
    training = [case for shape in shapes.values() for case in shape["training"].values() if isinstance(case, dict)]
    decoding = [case for shape in shapes.values() for case in shape["decoding"].values() if isinstance(case, dict)]
    seven = shapes.get("Qwen2.5-7B", {"training": {}})["training"].values()
    used = [case["8 adapters"]["model_flop_utilisation"][kind] for case in seven if isinstance(case, dict)]
    return [
        _goal("training: speed with 8 adapters / with 1", 0.97, min(_medians(training, "8 adapters / 1 adapter"), default=None)),
        _goal(f"training at 7B, 8 adapters: share of the {kind} peak in model FLOPs", 0.45, max(used, default=None)),
        _goal("decoding: speed with 8 adapters / base only", 0.85, min(_medians(decoding, "8 adapters / base only"), default=None)),
    ]


def _goal(name: str, at_least: float, value: float | None) -> dict[str, Any]:
    return {"goal": name, "at_least": at_least, "measured": value, "met": None if value is None else value >= at_least}


def _medians(cases: list[dict[str, Any]], name: str) -> list[float]:
    return [case["speeds"][name]["median"] for case in cases]


if __name__ == "__main__":
    main()
