"""Measure many adapters in one batch: training and sampling beside PEFT, merged weights, transformers and the bare base.

    python -m benchmarks.multi_lora [--rounds 15]       writes speed/multi_lora.json; about 40 minutes on one core

One thread; times are CPU seconds of this process. Models have random weights: speed does not depend on them.
"""

from __future__ import annotations

import statistics
import warnings
from pathlib import Path
from typing import Any

import torch
from benchmarks.measuring import Case, Times, interleaved, machine, medians, options, ratio, write_results
from benchmarks.speed import head, sampling, training
from benchmarks.speed.models import SHAPES, adapted_model, peft_model


def main() -> None:
    parser = options(__doc__, Path(__file__).parent / "speed" / "multi_lora.json", rounds=15)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", module="transformers|peft")
    groups = {name: measure(args.rounds) for name, measure in GROUPS.items()}
    write_results(args.out, {"machine": machine("torch", "transformers", "peft"), "rounds": args.rounds, **groups})


def group(cases: dict[str, Case], rounds: int, pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """Return median milliseconds of the cases, and the ratios of ``pairs``."""
    times = interleaved(cases, rounds)
    return {"milliseconds": medians(times), "ratios": ratios(times, pairs)}


def fewer(rounds: int) -> int:
    """Return the rounds of cases that take long."""
    return max(5, rounds // 3)


def ratios(times: Times, pairs: list[tuple[str, str]]) -> dict[str, dict[str, float]]:
    return {f"{above} / {below}": ratio(times, above, below) for above, below in pairs}


def measure_training(shape: str, rounds: int) -> dict[str, Any]:
    """Train 16 rows of 64 tokens, shared by 1, 8 and 16 adapters; and one row for each of 8."""
    total, sixteen, eight = 16, adapted_model(shape, 16), adapted_model(shape, 8)
    peft, even, single = peft_model(eight, shape), [row % 8 for row in range(16)], list(range(8))
    cases = {
        "1 adapter": training.stacked(sixteen, [0] * total),
        "8 adapters": training.stacked(sixteen, even),
        "16 adapters": training.stacked(sixteen, list(range(16))),
        "8 adapters, skewed": training.stacked(sixteen, [0] * (total - 7) + list(range(1, 8))),
        "base only": training.bare(shape, total),
        "8 in PEFT, sequential": training.peft_sequential(peft, even),
        "8 in PEFT, adapter_names": training.peft_mixed(peft, even),
        "8 merged, sequential": training.merged(eight, shape, even),
        "8 adapters, 64 tokens each": training.stacked(eight, single),
        "8 in PEFT, sequential, 64 tokens each": training.peft_sequential(peft, single),
    }
    others = ("8 in PEFT, sequential", "8 in PEFT, adapter_names", "8 merged, sequential")
    pairs = [("8 adapters", "1 adapter"), ("16 adapters", "1 adapter"), ("8 adapters", "base only"), ("8 adapters, skewed", "8 adapters")]
    pairs += [(other, "8 adapters") for other in others]
    return group(cases, rounds, [*pairs, ("8 in PEFT, sequential, 64 tokens each", "8 adapters, 64 tokens each")])


def measure_rows(rounds: int) -> dict[str, Any]:
    """Compare packing with padding, and shared with repeated prompts; hidden size 256, 8 adapters."""
    adapted = adapted_model("hidden 256", 8)
    uneven, fill = training.uneven(8)
    cases = {"packed": training.learn(adapted, uneven), "padded": training.padded(adapted, uneven)}
    found = group(cases, rounds, [("padded", "packed")])
    for length in (64, 256):
        together, apart = training.shared(4 if length == 64 else 1, length, length)
        cases = {"prompts once": training.learn(adapted, together), "prompts repeated": training.learn(adapted, apart)}
        found[f"P = T = {length}, n = 8"] = group(cases, rounds, [("prompts repeated", "prompts once")])
    return {"fill": round(fill, 3), **found}


def measure_decoding(shape: str, rounds: int) -> dict[str, Any]:
    """Sample 24 tokens after 32 prompts of 32 tokens: as many in all cases, so ratios of times are ratios of speeds."""
    adapted, slots = adapted_model(shape, 8), [row // 4 for row in range(32)]
    peft = peft_model(adapted, shape)
    cases = {
        "8 adapters": sampling.ours(adapted, slots),
        "base only": sampling.ours(adapted, [-1] * 32),
        "base only, transformers": sampling.transformers_base(shape, 32),
        "8 in PEFT, adapter_names": sampling.peft_names(peft, slots),
        "8 in PEFT, sequential": sampling.peft_sequential(peft, slots),
        "8 merged, sequential": sampling.merged_sequential(adapted, shape, slots),
    }
    found = group(cases, rounds, [(name, "8 adapters") for name in list(cases)[1:]])
    steps = sampling.decode_steps(adapted, {"8 adapters": slots, "base only": [-1] * 32}, rounds)
    return {**found, "decoding alone": {"milliseconds": medians(steps), "ratios": ratios(steps, [("base only", "8 adapters")])}}


def measure_scheduling(rounds: int) -> dict[str, Any]:
    """Compare refill with waves (192 responses, 64 rows), and prompts computed once or for each of 8 samples; hidden size 256."""
    adapted = adapted_model("hidden 256", 8)
    wanted = sampling.lengths(192, 33, 160)
    cases = {name: sampling.refilled(adapted, 64, wanted, refill) for name, refill in (("refill", True), ("waves", False))}
    found = group(cases, fewer(rounds), [("waves", "refill")])
    for length, prompts in ((32, 4), (256, 1)):
        cases = {way: sampling.prefill(adapted, prompts, length, each) for way, each in (("once", 1), ("for each of 8 samples", 8))}
        found[f"{8 * prompts} prompts of {length} tokens"] = group(cases, rounds, [("for each of 8 samples", "once")])
    return found


def measure_head(rounds: int) -> dict[str, Any]:
    """Run forward and backward of 1,024 tokens at a vocabulary of 151,936, each way in processes of its own."""
    runs = {way: [head.measure(way) for _ in range(fewer(rounds))] for way in ("plain", "chunked")}
    seconds = {way: [statistics.median(run["seconds"]) for run in many] for way, many in runs.items()}
    mib = {way: statistics.median(run["mib"] for run in many) for way, many in runs.items()}
    norms = {way: many[0]["gradient_norm"] for way, many in runs.items()}
    compared = {
        "time, chunked / plain": ratio(seconds, "chunked", "plain"),
        "memory, plain / chunked": round(mib["plain"] / mib["chunked"], 1),
    }
    return {"milliseconds": medians(seconds), "mib": mib, "gradient_norm": norms, "ratios": compared}


GROUPS = {
    **{f"training, {shape}": lambda rounds, shape=shape: measure_training(shape, rounds) for shape in SHAPES},
    "rows": measure_rows,
    **{f"decoding, {shape}": lambda rounds, shape=shape: measure_decoding(shape, rounds) for shape in SHAPES},
    "scheduling": measure_scheduling,
    "head": measure_head,
}

if __name__ == "__main__":
    main()
