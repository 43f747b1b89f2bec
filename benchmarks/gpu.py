"""Measure training and decoding with many adapters on one GPU, against the roofline of the card.

    python -m benchmarks.gpu [--shapes Qwen2.5-0.5B Qwen2.5-7B] [--rounds 5]        writes speed/gpu.json

Random weights in bf16, rank 32. Times are wall-clock with the card synchronised. A case that does not fit into the card's memory is
reported as such. Without a GPU the same code runs at toy size on the CPU, and its speeds mean nothing.

Model FLOPs count the work that the result needs, once: neither what checkpointing computes again nor padding. The base is frozen, so a
weight costs 2 FLOPs a token forward and 2 backward, where full training costs 6.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from benchmarks.measuring import Case, Times, bar, interleaved, machine, options, ratio, spread, write_results
from benchmarks.speed import sampling
from benchmarks.speed.models import TARGETS, qwen2
from benchmarks.speed.training import batch, learn

from populora.engine.model.model import AdaptedModel, Checkpointing
from populora.engine.sampling.decoders import without_graph

T = TypeVar("T")
NOMINAL = {"H100 PCIe": 756.0, "H100 NVL": 835.0, "H100": 989.0, "H200": 989.0, "B200": 2250.0, "A100": 312.0, "L40S": 362.0}
"""TFLOP/s in bf16 without sparsity, from the data sheets, by a part of the card's name; the first that fits."""
REPEATS = 20  # of a probe, so that starting the clock does not count
CONTEXT = 4096
CHECKPOINTING: tuple[Checkpointing, ...] = ("none", "mlp", "layer")
WITHOUT_GRAPHS = "8 adapters, without CUDA graphs"  # the same static shapes, launched one by one
NO_ROOM = "does not fit into memory"


@dataclass(frozen=True)
class Base:
    """A Qwen2: ``widths`` are hidden size, layers, inner size of the MLP, heads, key-value heads; ``itemsize`` is bytes of a weight."""

    widths: tuple[int, int, int, int, int]
    vocabulary: int
    tied: bool
    itemsize: int

    @property
    def linear(self) -> int:
        """Weights of the layers' linear modules."""
        hidden, layers, inner, heads, kv_heads = self.widths
        return layers * hidden * (2 * hidden + 2 * hidden * kv_heads // heads + 3 * inner)

    def adapter(self, rank: int) -> int:
        """Return the parameters of one adapter on q, k, v and o."""
        hidden, layers, _, heads, kv_heads = self.widths
        return layers * rank * (6 * hidden + 2 * hidden * kv_heads // heads)


@dataclass(frozen=True)
class Plan:
    """The sizes. Training: micro-batches of ``tokens``, cut into sequences of ``row``. Decoding: ``rows`` at a time, each with a prompt
    of ``prompt`` tokens and ``new`` ones. Roofline: matrices of ``side`` x ``side``, copies of ``mib`` MiB."""

    device: str
    dtype: str
    bases: dict[str, Base]
    rank: int
    tokens: tuple[int, ...]
    row: int
    rows: tuple[int, ...]
    prompt: int
    new: int
    side: int
    mib: int
    adapters: tuple[int, ...] = (1, 8, 16)


QWEN = {
    "Qwen2.5-0.5B": Base((896, 24, 4864, 14, 2), vocabulary=151_936, tied=True, itemsize=2),
    "Qwen2.5-7B": Base((3584, 28, 18_944, 28, 4), vocabulary=152_064, tied=False, itemsize=2),
}
REAL = Plan("cuda", "bfloat16", QWEN, 32, (8192, 16_384, 32_768), 512, (32, 64, 128), prompt=128, new=128, side=8192, mib=4096)
TOY = Plan("cpu", "float32", {"toy": Base((64, 2, 128, 4, 2), 512, True, 4)}, 8, (256,), 16, (16,), prompt=8, new=8, side=256, mib=4)


def main(arguments: Sequence[str] | None = None) -> None:
    plan = REAL if torch.cuda.is_available() else TOY
    parser = options(__doc__, Path(__file__).parent / "speed" / "gpu.json", rounds=5)
    parser.add_argument("--shapes", nargs="+", default=list(plan.bases), choices=list(plan.bases))
    args = parser.parse_args(arguments)
    name = torch.cuda.get_device_name() if plan.device == "cuda" else None
    nominal = next((peak for part, peak in NOMINAL.items() if part in (name or "")), None)
    reached = roofline(plan, args.rounds)
    peaks, bandwidth = {"measured": reached["tflops"]["median"], "nominal": nominal}, reached["gigabytes_per_second"]["median"]
    results: dict[str, Any] = {"gpu": name, "machine": machine("torch", "transformers"), "rounds": args.rounds, "roofline": reached}
    results["shapes"] = {}
    for shape in args.shapes:
        torch.compiler.reset()  # the heads of the shape before are compiled
        base = plan.bases[shape]
        trained = training(plan, base, peaks, args.rounds)
        results["shapes"][shape] = {"training": trained, "decoding": decoding(plan, base, bandwidth, args.rounds)}
    write_results(args.out, results | {"goals": goals(results) if name else {}})


def clock() -> float:
    """Return wall-clock seconds once the card has done all that was launched."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def roofline(plan: Plan, rounds: int) -> dict[str, dict[str, float]]:
    """Measure TFLOP/s of a product of matrices and GB/s (read and written) of a copy."""
    left, right = (torch.randn(plan.side, plan.side, device=plan.device, dtype=getattr(torch, plan.dtype)) for _ in range(2))
    product = torch.empty_like(left)
    source = torch.zeros(plan.mib << 20, dtype=torch.uint8, device=plan.device)
    target = torch.empty_like(source)
    probes: dict[str, Case] = {
        "product": lambda: [torch.mm(left, right, out=product) for _ in range(REPEATS)],
        "copy": lambda: [target.copy_(source) for _ in range(REPEATS)],
    }
    times = interleaved(probes, rounds, clock)
    return {
        "tflops": spread([REPEATS * 2 * plan.side**3 / seconds / 1e12 for seconds in times["product"]]),
        "gigabytes_per_second": spread([REPEATS * 2 * (plan.mib << 20) / seconds / 1e9 for seconds in times["copy"]]),
    }


def goals(results: dict[str, Any]) -> dict[str, Any]:
    """Judge each goal: ratios by the worst case, utilisation by the best setting."""
    cases = {
        part: [case for shape in results["shapes"].values() for case in shape[part].values() if isinstance(case, dict)]
        for part in ("training", "decoding")
    }
    large = results["shapes"].get("Qwen2.5-7B", {"training": {}})["training"].values()
    used = [case["8 adapters"]["model_flop_utilisation"] for case in large if isinstance(case, dict)]
    training = [case["speeds"]["8 adapters / 1 adapter"]["median"] for case in cases["training"]]
    decoding = [case["speeds"]["8 adapters / base only"]["median"] for case in cases["decoding"]]
    return {
        "training: speed with 8 adapters / with 1": bar(0.97, min(training, default=0.0), at_least=True),
        "training at 7B, 8 adapters: share of the peak in model FLOPs": bar(
            0.45, max((share["nominal"] or share["measured"] for share in used), default=0.0), at_least=True
        ),
        "decoding: speed with 8 adapters / base only": bar(0.85, min(decoding, default=0.0), at_least=True),
    }


def attempt(work: Callable[[], T]) -> T | str:
    """Return the result of ``work``, or `NO_ROOM`."""
    gc.collect()
    torch.cuda.empty_cache()
    try:
        return work()
    except torch.OutOfMemoryError:
        return NO_ROOM


def adapted_model(plan: Plan, base: Base, checkpointing: Checkpointing) -> AdaptedModel:
    """Return a random base with adapters that are not zero, as many as any case needs."""
    model = qwen2(base.widths, base.vocabulary, CONTEXT, base.tied, plan.device, plan.dtype)
    adapted = AdaptedModel(model, TARGETS, max(plan.adapters), plan.rank, 2.0 * plan.rank, checkpointing)
    adapted.bank.initialise(0)
    noise = torch.Generator(plan.device).manual_seed(1)
    adapted.bank.master += 0.02 * torch.randn(adapted.bank.master.shape, generator=noise, device=plan.device)
    adapted.bank.sync()
    return adapted


def training(plan: Plan, base: Base, peaks: dict[str, float | None], rounds: int) -> dict[str, Any]:
    """Measure forward and backward, packing included, by checkpointing and micro-batch. ``peaks`` are TFLOP/s."""
    results: dict[str, Any] = {}
    for checkpointing in CHECKPOINTING:
        adapted = attempt(partial(adapted_model, plan, base, checkpointing))
        for tokens in plan.tokens:
            name = f"checkpointing {checkpointing}, {tokens} tokens"
            results[name] = adapted if isinstance(adapted, str) else attempt(partial(_training, plan, base, adapted, tokens, peaks, rounds))
            print(name, results[name], flush=True)
        del adapted  # before the next one is made
    return results


def _training(plan: Plan, base: Base, adapted: AdaptedModel, tokens: int, peaks: dict[str, float | None], rounds: int) -> dict[str, Any]:
    rows = tokens // plan.row
    slots = {_name(count): sorted(row % count for row in range(rows)) for count in plan.adapters}
    slots["8 adapters, skewed"] = [0] * (rows - 7) + list(range(1, 8))
    cases = {name: learn(adapted, batch(of_rows, row=plan.row)) for name, of_rows in slots.items()}
    memory = {name: _peak_gib(case) for name, case in cases.items()}
    times = interleaved(cases, rounds, clock)
    teraflops = training_flops(base, plan.rank, rows, plan.row) / 1e12
    results: dict[str, Any] = {}
    for name, seconds in times.items():
        reached = teraflops / statistics.median(seconds)
        results[name] = {
            "tokens_per_second": spread([tokens / value for value in seconds]),
            "tflops": round(reached, 3),
            "model_flop_utilisation": {kind: top and round(reached / top, 4) for kind, top in peaks.items()},
            "peak_gib": memory[name],
        }
    return results | _speeds(times, "1 adapter", list(slots)[1:])


def training_flops(base: Base, rank: int, rows: int, row: int) -> float:
    """Return the model FLOPs of forward and backward of ``rows`` sequences of ``row`` tokens that learn from their latter half.

    Linear modules 4 P a token; adapters 6 (forward, gradients of input and of A and B); attention 12 x heads x head size for each pair of
    tokens that see each other (scores and mixing: 4 forward, 8 backward); the head 4 x hidden x vocabulary for each token learned from.
    """
    hidden, layers, *_ = base.widths
    pairs = rows * row * (row + 1) / 2
    learned = rows * (row + 1 - row // 2)
    return rows * row * (4 * base.linear + 6 * base.adapter(rank)) + 12 * layers * hidden * pairs + 4 * learned * hidden * base.vocabulary


def decoding(plan: Plan, base: Base, bandwidth: float, rounds: int) -> dict[str, Any]:
    """Measure whole responses by rows, and decoding steps: the time of a whole response beyond its first token."""
    adapted = attempt(partial(adapted_model, plan, base, "none"))
    results: dict[str, Any] = {}
    for rows in plan.rows:
        name = f"{rows} rows"
        results[name] = adapted if isinstance(adapted, str) else attempt(partial(_decoding, plan, base, adapted, rows, bandwidth, rounds))
        print(name, results[name], flush=True)
    return results


def _decoding(plan: Plan, base: Base, adapted: AdaptedModel, rows: int, bandwidth: float, rounds: int) -> dict[str, Any]:
    counts = {"base only": 0, **{_name(count): count for count in plan.adapters[1:]}}
    if plan.device == "cuda":
        counts[WITHOUT_GRAPHS] = 8
    slots = {name: [row * count // rows if count else -1 for row in range(rows)] for name, count in counts.items()}
    samplers = {name: sampling.sampler(adapted, rows, without_graph if name == WITHOUT_GRAPHS else None) for name in counts}
    whole = {name: sampling.whole(samplers[name], of_rows, length=plan.prompt, new=plan.new) for name, of_rows in slots.items()}
    start = {f"{name}, first": sampling.whole(samplers[name], of_rows, length=plan.prompt, new=1) for name, of_rows in slots.items()}
    times = interleaved(whole | start, rounds, clock)
    steps = {name: [a - b for a, b in zip(times[name], times[f"{name}, first"], strict=True)] for name in counts}
    results: dict[str, Any] = {}
    for name, count in counts.items():
        step = statistics.median(steps[name]) / (plan.new - 1)
        read = decoding_bytes(base, plan.rank, count, rows, plan.prompt + plan.new / 2)
        results[name] = {
            "tokens_per_second": spread([rows * plan.new / seconds for seconds in times[name]]),
            "prompt_tokens_per_second": spread([rows * plan.prompt / seconds for seconds in times[f"{name}, first"]]),
            "step_milliseconds": round(1000 * step, 3),
            "share_of_bandwidth": round(read / 1e9 / step / bandwidth, 4),
        }
    return results | _speeds(steps, "base only", [name for name in counts if name != "base only"])


def decoding_bytes(base: Base, rank: int, adapters: int, rows: int, length: float) -> float:
    """Return the bytes that one step has to read: weights and adapters once, keys and values of ``length`` tokens a row."""
    hidden, layers, _, heads, kv_heads = base.widths
    weights = base.linear + hidden * base.vocabulary + adapters * base.adapter(rank)
    return base.itemsize * (weights + rows * length * 2 * layers * hidden * kv_heads / heads)


def _name(adapters: int) -> str:
    return "1 adapter" if adapters == 1 else f"{adapters} adapters"


def _speeds(times: Times, than: str, names: list[str]) -> dict[str, Any]:
    return {"speeds": {f"{name} / {than}": ratio(times, than, name) for name in names}}


def _peak_gib(case: Case) -> float | None:
    """Return the peak memory of a case, with the bank of all adapters; None on a CPU."""
    if not torch.cuda.is_available():
        return None
    torch.cuda.reset_peak_memory_stats()
    case()
    return round(torch.cuda.max_memory_allocated() / 2**30, 2)


if __name__ == "__main__":
    main()
