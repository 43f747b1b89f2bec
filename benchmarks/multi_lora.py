"""Many adapters in one batch, measured: training and sampling beside PEFT, merged weights, transformers and the bare base.

    python benchmarks/multi_lora.py [--rounds 15]       writes speed/multi_lora.json; about 40 minutes on one core

One thread; times are CPU seconds of this process, every round runs all cases of a group, and a ratio is the median over the rounds of
the ratio within a round, with the smallest and the largest beside it. Models have random weights: speed does not depend on them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "speed"
sys.path.insert(0, str(HERE))

import torch  # noqa: E402

torch.set_num_threads(1)
warnings.filterwarnings("ignore", module="transformers|peft")

import head  # noqa: E402
import packing  # noqa: E402
import sampling  # noqa: E402
from machine import machine  # noqa: E402
from models import SHAPES, adapted_model, peft_model  # noqa: E402
from timing import Times, interleaved, medians, ratio  # noqa: E402

import training  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="of cases that take seconds; a third, but at least 5, of longer ones")
    parser.add_argument("--only", nargs="*", default=list(GROUPS), choices=list(GROUPS), help="measure these, keep the file's others")
    parser.add_argument("--out", type=Path, default=HERE / "multi_lora.json")
    chosen = parser.parse_args()
    kept = json.loads(chosen.out.read_text()) if chosen.out.exists() and set(chosen.only) < set(GROUPS) else {}
    found: dict[str, Any] = {**kept, "machine": machine(), "rounds": chosen.rounds}
    if kept and (kept["machine"], kept["rounds"]) != (found["machine"], found["rounds"]):
        parser.error(f"{chosen.out} was measured on another machine or with other rounds: measure everything, or write to another --out")
    for name in chosen.only:
        found[name] = GROUPS[name](chosen.rounds)
        print(name, json.dumps(found[name], indent=1), flush=True)
    chosen.out.write_text(json.dumps(found, indent=1) + "\n")


def group(cases: dict[str, Any], rounds: int, pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """Median milliseconds of the cases, and the ratios of ``pairs``."""
    times = interleaved(cases, rounds)
    return {"milliseconds": medians(times), "ratios": of(times, pairs)}


def fewer(rounds: int) -> int:
    """For cases that take long."""
    return max(5, rounds // 3)


def of(times: Times, pairs: list[tuple[str, str]]) -> dict[str, dict[str, float]]:
    return {f"{above} / {below}": ratio(times, above, below) for above, below in pairs}


def of_training(shape: str, rounds: int) -> dict[str, Any]:
    """Rows of 64 tokens, 16 of them: the same tokens for 1, 8 and 16 adapters; and one row for each of 8."""
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


def of_rows(rounds: int) -> dict[str, Any]:
    """Packing against padding, shared prompts against repeated ones; hidden size 256, 8 adapters."""
    adapted = adapted_model("hidden 256", 8)
    uneven, fill = packing.uneven(8)
    cases = {"packed": packing.learn(adapted, uneven), "padded": packing.padded(adapted, uneven)}
    found = group(cases, rounds, [("padded", "packed")])
    for length in (64, 256):
        together, apart = packing.shared(4 if length == 64 else 1, length, length)
        cases = {"prompts once": packing.learn(adapted, together), "prompts repeated": packing.learn(adapted, apart)}
        found[f"P = T = {length}, n = 8"] = group(cases, rounds, [("prompts repeated", "prompts once")])
    return {"fill": round(fill, 3), **found}


def of_decoding(shape: str, rounds: int) -> dict[str, Any]:
    """32 rows, prompts of 32 tokens, 24 new ones; tokens are the same in all cases, so ratios of times are ratios of speeds."""
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
    return {**found, "decoding alone": {"milliseconds": medians(steps), "ratios": of(steps, [("base only", "8 adapters")])}}


def of_scheduling(rounds: int) -> dict[str, Any]:
    """Refill against waves (192 responses of log-normal lengths, 64 rows), and prompts computed once for 8 samples; hidden size 256."""
    adapted = adapted_model("hidden 256", 8)
    wanted = sampling.lengths(192, 33, 160)
    cases = {name: sampling.refilled(adapted, 64, wanted, refill) for name, refill in (("refill", True), ("waves", False))}
    found = group(cases, fewer(rounds), [("waves", "refill")])
    for length, prompts in ((32, 4), (256, 1)):
        cases = {way: sampling.prefill(adapted, prompts, length, each) for way, each in (("once", 1), ("for each of 8 samples", 8))}
        found[f"{8 * prompts} prompts of {length} tokens"] = group(cases, rounds, [("for each of 8 samples", "once")])
    return found


def of_head(rounds: int) -> dict[str, Any]:
    """1,024 tokens at a vocabulary of 151,936, forward and backward, each in processes of their own."""
    runs = {way: [head.measure(way) for _ in range(fewer(rounds))] for way in ("plain", "chunked")}
    seconds = {way: [statistics.median(run["seconds"]) for run in many] for way, many in runs.items()}
    mib = {way: statistics.median(run["mib"] for run in many) for way, many in runs.items()}
    norms = {way: many[0]["gradient_norm"] for way, many in runs.items()}
    ratios = {
        "time, chunked / plain": ratio(seconds, "chunked", "plain"),
        "memory, plain / chunked": round(mib["plain"] / mib["chunked"], 1),
    }
    return {"milliseconds": medians(seconds), "mib": mib, "gradient_norm": norms, "ratios": ratios}


GROUPS = {
    **{f"training, {shape}": lambda rounds, shape=shape: of_training(shape, rounds) for shape in SHAPES},
    "rows": of_rows,
    **{f"decoding, {shape}": lambda rounds, shape=shape: of_decoding(shape, rounds) for shape in SHAPES},
    "scheduling": of_scheduling,
    "head": of_head,
}

if __name__ == "__main__":
    main()
