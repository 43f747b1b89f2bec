"""Every operator measured at the shapes of Qwen2.5-7B, beside a dense SVD and beside PEFT's merging.

    python benchmarks/operators/run.py [--rounds 9]       writes results.json and table.md here; ten minutes on one idle core

A child is a whole adapter: 28 layers of q, k, v and o, hidden size 3584, key-value size 512, rank 32. One thread; seconds are CPU
seconds of this process and medians of the rounds, of which each runs all operators once. `children`: the operators themselves, without
the checks and measures of `breed`. `measures`: what `breed` says of one child. `dense`: a full SVD of the dense delta, and X1 in delta
space, for one module of each shape, times the number of such modules. `peft`: the mean of two deltas at the parents' rank, by PEFT's
``add_weighted_adapter`` and by X1 in delta space without drops, on a random model of hidden size 896 with 8 adapted modules; the deltas
are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "speed")]

import torch  # noqa: E402

torch.set_num_threads(1)

from machine import machine  # noqa: E402
from models import adapted_model, peft_model  # noqa: E402
from tables import bars, table  # noqa: E402
from timing import interleaved, ratio, spread  # noqa: E402

from populora.adapters.adapter import Adapter  # noqa: E402
from populora.adapters.operators import OPERATORS  # noqa: E402
from populora.adapters.operators.breeding import breed  # noqa: E402
from populora.adapters.operators.crossovers import dare  # noqa: E402
from populora.core.rng import stream  # noqa: E402
from populora.core.types import Lineage  # noqa: E402

LAYERS, HIDDEN, KEY_VALUE, RANK = 28, 3584, 512, 32
TARGETS = {"q_proj": HIDDEN, "k_proj": KEY_VALUE, "v_proj": KEY_VALUE, "o_proj": HIDDEN}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--dense-rounds", type=int, default=5, help="of SVDs that take ten seconds or more")
    parser.add_argument("--out", type=Path, default=HERE)
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)  # before ten minutes of work
    load, started = os.getloadavg()[0], time.perf_counter()
    found: dict[str, Any] = {"machine": {**machine(), "load_before": round(load, 2)}, "rounds": chosen.rounds}
    parents = [qwen_adapter(seed) for seed in (1, 2)]
    found["children"], found["measures"] = measure_children(parents, chosen.rounds), describe_children(parents)
    del parents
    found["dense"] = measure_dense([qwen_adapter(seed, layers=1) for seed in (1, 2)], chosen.dense_rounds)
    found["peft"] = measure_peft(chosen.rounds)
    found["bars"] = bars(found)
    found["seconds"] = round(time.perf_counter() - started)
    (chosen.out / "results.json").write_text(json.dumps(found, indent=1) + "\n")
    (chosen.out / "table.md").write_text(table(found))
    print(table(found))


def qwen_adapter(seed: int, layers: int = LAYERS) -> Adapter:
    """A as LoRA starts, the same for every seed as in a population; B with singular values that fall as 1/k, as training leaves them."""
    shared, own = torch.Generator().manual_seed(0), torch.Generator().manual_seed(seed)
    fall = 1e-2 / torch.arange(1, RANK + 1)
    modules = {}
    for layer in range(layers):
        for target, out in TARGETS.items():
            a = (2 * torch.rand(RANK, HIDDEN, generator=shared) - 1 + 0.1 * torch.randn(RANK, HIDDEN, generator=own)) / HIDDEN**0.5
            turn = torch.linalg.qr(torch.randn(RANK, RANK, generator=own)).Q
            b = torch.randn(out, RANK, generator=own) * fall @ turn
            modules[f"model.layers.{layer}.self_attn.{target}"] = (a, b)
    return Adapter(modules, RANK, 2.0 * RANK)


def measure_children(parents: list[Adapter], rounds: int) -> dict[str, dict[str, float]]:
    """CPU seconds of one child, by operator."""

    def case(name: str) -> Callable[[], Adapter]:
        operator = OPERATORS[name]
        return lambda: operator.function(parents[: operator.arity], stream(0, "benchmark", name))

    return {name: spread(times) for name, times in interleaved({name: case(name) for name in OPERATORS}, rounds).items()}


def describe_children(parents: list[Adapter]) -> dict[str, dict[str, Any]]:
    """How far a child is from its parents, by operator."""
    found = {}
    for name, operator in OPERATORS.items():
        _, child = breed(parents[: operator.arity], Lineage("child", operator=name, stream=("benchmark", name)))
        cosines = [round(cosine, 3) for cosine in child.cosines]
        found[name] = {"norm_ratio": round(child.norm_ratio, 3), "cosines": cosines, "effective_rank": round(child.effective_rank, 1)}
    return found


def measure_dense(parents: list[Adapter], rounds: int) -> dict[str, Any]:
    """Seconds for one module of each shape, and what they amount to for all modules."""
    one, two = (next(iter(parents[0].modules)), list(parents[0].modules)[1])
    cases = {f"SVD {out} x {HIDDEN}": dense_svd(parents[0], name) for name, out in ((one, HIDDEN), (two, KEY_VALUE))}
    cases |= {f"X1 {out} x {HIDDEN}": delta_space(parents, name) for name, out in ((one, HIDDEN), (two, KEY_VALUE))}
    seconds = {name: spread(times) for name, times in interleaved(cases, rounds).items()}
    each = LAYERS * len(TARGETS) // 2
    whole = {way: round(each * sum(s["median"] for name, s in seconds.items() if name.startswith(way)), 1) for way in ("SVD", "X1")}
    return {"seconds": seconds, "modules_of_each_shape": each, "full_svd_child": whole["SVD"], "x1_delta_child": whole["X1"]}


def dense_svd(adapter: Adapter, module: str) -> Callable[[], Any]:
    a, b = adapter.modules[module]
    dense = b @ a
    return lambda: torch.linalg.svd(dense, full_matrices=False)


def delta_space(parents: list[Adapter], module: str) -> Callable[[], Adapter]:
    lone = [Adapter({module: parent.modules[module]}, RANK, parent.alpha) for parent in parents]
    return lambda: dare(lone, stream(0, "benchmark", "delta"), space="delta")


def measure_peft(rounds: int) -> dict[str, Any]:
    """The same child from the same parents: milliseconds, ratio, and how far the two deltas are from each other."""
    adapted = adapted_model("hidden 896", 2)
    parents, model = [adapted.bank.adapter(slot) for slot in (0, 1)], peft_model(adapted, "hidden 896")

    def ours() -> Adapter:
        return dare(parents, stream(0, "benchmark", "peft"), drop=0.0, space="delta")

    def theirs(full_matrices: bool) -> Callable[[], None]:
        def merge() -> None:
            if "child" in model.peft_config:
                model.delete_adapter("child")
            model.add_weighted_adapter(["0", "1"], [0.5, 0.5], "child", combination_type="svd", svd_full_matrices=full_matrices)

        return merge

    cases = {"populora": ours, "PEFT": theirs(True), "PEFT, reduced SVD": theirs(False)}
    times = interleaved(cases, rounds)
    child = ours()
    return {
        "modules": len(child.modules),
        "milliseconds": {name: spread([1000 * t for t in taken]) for name, taken in times.items()},
        "ratios": {name: ratio(times, name, "populora") for name in ("PEFT", "PEFT, reduced SVD")},
        "largest_relative_difference": max(difference(model, child, name) for name in child.modules),
    }


def difference(model: Any, child: Adapter, module: str) -> float:
    a, b = child.modules[module]
    theirs = model.base_model.model.get_submodule(module).get_delta_weight("child").detach()
    return float((child.alpha / child.rank * b @ a - theirs).norm() / theirs.norm())


if __name__ == "__main__":
    main()
