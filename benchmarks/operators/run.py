"""Measure every operator at the shapes of Qwen2.5-7B, beside a dense SVD and PEFT's merging.

    python -m benchmarks.operators.run       writes results.json and table.md here; ten minutes on one idle core

A child is a whole adapter: 28 layers of q, k, v and o, hidden size 3584, key-value size 512, rank 32. One thread; CPU seconds of this
process. `children`: the operators, without the checks and measures of `breed`. `measures`: norm, cosines and rank of one child.
`dense`: a full SVD of the dense delta for one module of each shape, times the number of such modules. `peft`: the mean of two deltas at
the parents' rank, by PEFT's ``add_weighted_adapter`` and by X1 in delta space without drops, on 8 modules of a random model of hidden size
896.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from benchmarks.measuring import bar, interleaved, machine, options, ratio, spread, write_results
from benchmarks.speed.models import adapted_model, peft_model

from populora.adapters.adapter import Adapter
from populora.adapters.operators import OPERATORS
from populora.adapters.operators.breeding import breed
from populora.adapters.operators.crossovers import dare
from populora.core.rng import stream
from populora.core.types import Lineage

LAYERS, HIDDEN, KEY_VALUE, RANK = 28, 3584, 512, 32
TARGETS = {"q_proj": HIDDEN, "k_proj": KEY_VALUE, "v_proj": KEY_VALUE, "o_proj": HIDDEN}
SVD_OPERATORS = ("m1", "m3", "m6", "x3", "soup")
"""The operators that decompose deltas. Results that are older than `soup` lack it."""


def main() -> None:
    parser = options(__doc__, Path(__file__).parent, rounds=9)
    parser.add_argument("--dense-rounds", type=int, default=5, help="of SVDs that take ten seconds or more")
    args = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, Any] = {"machine": machine("torch", "peft"), "rounds": args.rounds}
    parents = [qwen_adapter(seed) for seed in (1, 2)]
    results["children"], results["measures"] = measure_children(parents, args.rounds), describe_children(parents)
    del parents
    results["dense"] = measure_dense(qwen_adapter(1, layers=1), args.dense_rounds)
    results["peft"] = measure_peft(args.rounds)
    results["bars"] = bars(results)
    write_results(args.out / "results.json", results)
    (args.out / "table.md").write_text(table(results))


def qwen_adapter(seed: int, layers: int = LAYERS) -> Adapter:
    """Return an adapter with A as LoRA starts, alike for all seeds, and B with singular values that fall as 1/k, as after training."""
    shared, single = torch.Generator().manual_seed(0), torch.Generator().manual_seed(seed)
    fall = 1e-2 / torch.arange(1, RANK + 1)
    modules = {}
    for layer in range(layers):
        for target, out in TARGETS.items():
            a = (2 * torch.rand(RANK, HIDDEN, generator=shared) - 1 + 0.1 * torch.randn(RANK, HIDDEN, generator=single)) / HIDDEN**0.5
            turn = torch.linalg.qr(torch.randn(RANK, RANK, generator=single)).Q
            b = torch.randn(out, RANK, generator=single) * fall @ turn
            modules[f"model.layers.{layer}.self_attn.{target}"] = (a, b)
    return Adapter(modules, RANK, 2.0 * RANK)


def measure_children(parents: list[Adapter], rounds: int) -> dict[str, dict[str, float]]:
    """Return the CPU seconds of one child, by operator."""

    def case(name: str) -> Callable[[], Adapter]:
        operator = OPERATORS[name]
        return lambda: operator.function(parents[: operator.arity], stream(0, "benchmark", name))

    return {name: spread(times) for name, times in interleaved({name: case(name) for name in OPERATORS}, rounds).items()}


def describe_children(parents: list[Adapter]) -> dict[str, dict[str, Any]]:
    """Return how far a child is from its parents, by operator."""
    children = {}
    for name, operator in OPERATORS.items():
        _, child = breed(parents[: operator.arity], Lineage("child", operator=name, stream=("benchmark", name)))
        cosines = [round(cosine, 3) for cosine in child.cosines]
        children[name] = {"norm_ratio": round(child.norm_ratio, 3), "cosines": cosines, "effective_rank": round(child.effective_rank, 1)}
    return children


def measure_dense(adapter: Adapter, rounds: int) -> dict[str, Any]:
    """Return seconds for one module of each shape, and the sum over all modules."""
    cases = {f"SVD {out} x {HIDDEN}": dense_svd(adapter, name) for name, out in zip(adapter.modules, (HIDDEN, KEY_VALUE), strict=False)}
    seconds = {name: spread(times) for name, times in interleaved(cases, rounds).items()}
    each = LAYERS * len(TARGETS) // 2
    whole = round(each * sum(times["median"] for times in seconds.values()), 1)
    return {"seconds": seconds, "modules_of_each_shape": each, "full_svd_child": whole}


def dense_svd(adapter: Adapter, module: str) -> Callable[[], Any]:
    a, b = adapter.modules[module]
    dense = b @ a
    return lambda: torch.linalg.svd(dense, full_matrices=False)


def measure_peft(rounds: int) -> dict[str, Any]:
    """Make the same child from the same parents; return milliseconds, ratios, and the distance of the two deltas."""
    adapted = adapted_model("hidden 896", 2)
    parents, model = [adapted.bank.adapter(slot) for slot in (0, 1)], peft_model(adapted, "hidden 896")

    def ours() -> Adapter:
        return dare(parents, stream(0, "benchmark", "peft"), drop=0.0, space="delta")

    def theirs() -> None:
        if "child" in model.peft_config:
            model.delete_adapter("child")
        model.add_weighted_adapter(["0", "1"], [0.5, 0.5], "child", combination_type="svd")

    times = interleaved({"populora": ours, "PEFT": theirs}, rounds)
    child = ours()
    return {
        "modules": len(child.modules),
        "milliseconds": {name: spread([1000 * t for t in taken]) for name, taken in times.items()},
        "ratios": {"PEFT": ratio(times, "PEFT", "populora")},
        "largest_relative_difference": max(difference(model, child, name) for name in child.modules),
    }


def difference(model: Any, child: Adapter, module: str) -> float:
    a, b = child.modules[module]
    theirs = model.base_model.model.get_submodule(module).get_delta_weight("child").detach()
    return float((child.alpha / child.rank * b @ a - theirs).norm() / theirs.norm())


def bars(results: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Judge the bars."""
    seconds = {name: spent["median"] for name, spent in results["children"].items()}
    slowest = max(seconds.keys() & set(SVD_OPERATORS), key=lambda name: seconds[name])
    other = max(seconds.keys() - set(SVD_OPERATORS), key=lambda name: seconds[name])
    peft, dense = results["peft"], results["dense"]
    return {
        f"seconds of the slowest SVD operator ({slowest})": bar(0.3, seconds[slowest]),
        f"seconds of the slowest other operator ({other})": bar(0.5, seconds[other]),
        f"full dense SVDs in the time of {slowest}": bar(1000.0, round(dense["full_svd_child"] / seconds[slowest]), at_least=True),
        "PEFT's time over ours": bar(20.0, peft["ratios"]["PEFT"]["median"], at_least=True),
        "largest relative difference to PEFT's deltas": bar(1e-5, peft["largest_relative_difference"]),
    }


def table(results: dict[str, Any]) -> str:
    """Return medians with the smallest and largest of the rounds, in Markdown."""
    where, dense, peft = results["machine"], results["dense"], results["peft"]
    about = (
        f"{where['processor']}, one thread, torch {where['torch']}, load before {where['load_before']}. CPU seconds of a whole adapter at "
        f"the shapes of Qwen2.5-7B, rank 32; medians of {results['rounds']} rounds (smallest to largest)."
    )
    lines = [
        about,
        "",
        "| operator | | seconds | a full SVD of its dense deltas takes | norm over the parents' | cosine to each | rank |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, seconds in results["children"].items():
        times = f"{dense['full_svd_child'] / seconds['median']:,.0f} times as long" if name in SVD_OPERATORS else ""
        child = results["measures"][name]
        spent = f"{seconds['median']:.3f} ({seconds['min']:.3f} to {seconds['max']:.3f})"
        cosines = ", ".join(f"{cosine:.2f}" for cosine in child["cosines"])
        measured = f"{child['norm_ratio']:.2f} | {cosines} | {child['effective_rank']:g}"
        lines.append(f"| `{name}` | {OPERATORS[name].alias} | {spent} | {times} | {measured} |")
    lines += ["", "| the mean of two deltas at their rank, 8 modules of hidden size 896 | milliseconds | times ours |", "|---|---|---|"]
    for name, spent in peft["milliseconds"].items():
        times = f"{peft['ratios'][name]['median']:.1f}" if name in peft["ratios"] else ""
        lines.append(f"| {name} | {spent['median']:.1f} ({spent['min']:.1f} to {spent['max']:.1f}) | {times} |")
    lines += ["", "| bar | | found | |", "|---|---|---|---|"]
    for name, row in results["bars"].items():
        limit = f"<= {row['at_most']:g}" if "at_most" in row else f">= {row['at_least']:,.0f}"
        lines.append(f"| {name} | {limit} | {row['found']:.4g} | {'' if row['met'] else '**missed**'} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
