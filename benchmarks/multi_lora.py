"""Measure many adapters in one batch: training beside PEFT and the bare base, decoding beside the bare base.

    python -m benchmarks.multi_lora [--rounds 9]       writes speed/multi_lora.json; about 12 minutes on one core

One thread; times are CPU seconds of this process. Models have random weights: speed does not depend on them.
"""

import warnings
from pathlib import Path
from typing import Any

import torch
from benchmarks.measuring import Times, interleaved, machine, options, ratio, write_results
from benchmarks.speed import sampling, training
from benchmarks.speed.models import SHAPES, adapted_model, peft_model


def main() -> None:
    parser = options(__doc__, Path(__file__).parent / "speed" / "multi_lora.json", rounds=9)
    args = parser.parse_args()
    about = {"machine": machine("torch", "transformers", "peft"), "rounds": args.rounds}
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", module="transformers|peft")
    groups = {name: measure(args.rounds) for name, measure in GROUPS.items()}
    write_results(args.out, {**about, **groups})


def ratios(times: Times, *pairs: tuple[str, str]) -> dict[str, Any]:
    return {"ratios": {f"{above} / {below}": ratio(times, above, below) for above, below in pairs}}


def measure_training(shape: str, rounds: int) -> dict[str, Any]:
    """Train 16 rows of 64 tokens, shared by 1, 8 and 16 adapters; and one row for each of 8."""
    total, sixteen, eight = 16, adapted_model(shape, 16), adapted_model(shape, 8)
    peft, even, single = peft_model(eight, shape), [row % 8 for row in range(16)], list(range(8))
    cases = {
        "1 adapter": training.learn(sixteen, training.batch([0] * total)),
        "8 adapters": training.learn(sixteen, training.batch(even)),
        "16 adapters": training.learn(sixteen, training.batch(list(range(16)))),
        "8 adapters, skewed": training.learn(sixteen, training.batch([0] * (total - 7) + list(range(1, 8)))),
        "base only": training.bare(shape, total),
        "8 in PEFT, sequential": training.peft_sequential(peft, even),
        "8 adapters, 64 tokens each": training.learn(eight, training.batch(single)),
        "8 in PEFT, sequential, 64 tokens each": training.peft_sequential(peft, single),
    }
    pairs = [("8 adapters", "1 adapter"), ("16 adapters", "1 adapter"), ("8 adapters", "base only"), ("8 adapters, skewed", "8 adapters")]
    pairs.append(("8 in PEFT, sequential", "8 adapters"))
    return ratios(interleaved(cases, rounds), *pairs, ("8 in PEFT, sequential, 64 tokens each", "8 adapters, 64 tokens each"))


def measure_rows(rounds: int) -> dict[str, Any]:
    """Compare packing with padding, and shared with repeated prompts; hidden size 256, 8 adapters."""
    adapted = adapted_model("hidden 256", 8)
    uneven, fill = training.uneven(8)
    cases = {"packed": training.learn(adapted, uneven), "padded": training.padded(adapted, uneven)}
    by_case = ratios(interleaved(cases, rounds), ("padded", "packed"))
    for length in (64, 256):
        together, apart = training.shared(4 if length == 64 else 1, length, length)
        cases = {"prompts once": training.learn(adapted, together), "prompts repeated": training.learn(adapted, apart)}
        by_case[f"P = T = {length}, n = 8"] = ratios(interleaved(cases, rounds), ("prompts repeated", "prompts once"))
    return {"fill": round(fill, 3), **by_case}


def measure_decoding(shape: str, rounds: int) -> dict[str, Any]:
    """Decode 24 tokens after 32 prompts of 32 tokens: as many in both cases, so ratios of times are ratios of speeds."""
    slots = {"8 adapters": [row // 4 for row in range(32)], "base only": [-1] * 32}
    return ratios(sampling.decode_steps(adapted_model(shape, 8), slots, rounds), ("base only", "8 adapters"))


GROUPS = {
    **{f"training, {shape}": lambda rounds, shape=shape: measure_training(shape, rounds) for shape in SHAPES},
    "rows": measure_rows,
    **{f"decoding, {shape}": lambda rounds, shape=shape: measure_decoding(shape, rounds) for shape in SHAPES},
}

if __name__ == "__main__":
    main()
