"""Cases of `benchmarks.gpu`: training and decoding with many adapters on one base, and the limits of the card.

Times are wall-clock with the card synchronised. ``of_peak`` of training is the share of the measured peak of a product. ``of_peak`` of
decoding is the share of the measured bandwidth: each step reads the weights, its adapters, and keys and values.
"""

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from benchmarks.measuring import Case, Times, interleaved, ratio, spread
from benchmarks.speed import sampling
from benchmarks.speed.gpu_plan import CONTEXT, Base, Plan, step_bytes, training_flops
from benchmarks.speed.models import adapt
from benchmarks.speed.random_base import qwen2
from benchmarks.speed.training import batch, learn

from populora.engine.model.adapted_model import AdaptedModel, Checkpointing

T = TypeVar("T")
REPEATS = 20  # of a probe, so that starting the clock does not count
PROBED_BYTES = 1 << 31  # far more than any cache
NO_ROOM = "does not fit into memory"


@dataclass(frozen=True)
class Limits:
    """What the card does at best, as measured."""

    peak_tflops: float
    bandwidth_gb_per_second: float


def clock() -> float:
    """Return wall-clock seconds once the card has done all that was launched."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def measured_limits(plan: Plan, rounds: int) -> Limits:
    return Limits(measured_peak(plan, rounds), measured_bandwidth(plan, rounds))


def measured_peak(plan: Plan, rounds: int) -> float:
    """Return the TFLOP/s of a product of matrices, in four digits."""
    left, right = (torch.randn(plan.side, plan.side, device=plan.device, dtype=getattr(torch, plan.dtype)) for _ in range(2))
    product = torch.empty_like(left)
    times = interleaved({"product": lambda: [torch.mm(left, right, out=product) for _ in range(REPEATS)]}, rounds, clock)
    return float(f"{REPEATS * 2 * plan.side**3 / statistics.median(times['product']) / 1e12:.4g}")


def measured_bandwidth(plan: Plan, rounds: int) -> float:
    """Return the GB/s of a copy within the card's memory, read and written."""
    source = torch.ones((PROBED_BYTES if plan.device == "cuda" else 1 << 24) // 4, device=plan.device)
    target = torch.empty_like(source)
    times = interleaved({"copy": lambda: [target.copy_(source) for _ in range(REPEATS)]}, rounds, clock)
    return round(REPEATS * 2 * source.nbytes / statistics.median(times["copy"]) / 1e9, 1)


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
    return adapt(model, max(plan.adapters), plan.rank, checkpointing)


def training(plan: Plan, base: Base, limits: Limits, rounds: int, tokens: int, adapted: AdaptedModel) -> dict[str, Any]:
    """Measure forward and backward of a micro-batch, packing included."""
    rows = tokens // plan.row
    slots = {_name(count): sorted(row % count for row in range(rows)) for count in plan.adapters}
    slots["8 adapters, skewed"] = [0] * (rows - 7) + list(range(1, 8))
    cases = {name: learn(adapted, batch(of_rows, row=plan.row)) for name, of_rows in slots.items()}
    memory = {name: _peak_gib(case) for name, case in cases.items()}
    times = interleaved(cases, rounds, clock)
    teraflops = training_flops(base, plan.rank, rows, plan.row) / 1e12
    results: dict[str, Any] = {}
    for name, seconds in times.items():
        results[name] = {
            "tokens_per_second": spread([round(tokens / value) for value in seconds]),
            "of_peak": round(teraflops / statistics.median(seconds) / limits.peak_tflops, 4),
            "peak_gib": memory[name],
        }
    return results | _speeds(times, "1 adapter", list(slots)[1:])


def decoding(plan: Plan, base: Base, limits: Limits, rounds: int, rows: int, adapted: AdaptedModel) -> dict[str, Any]:
    """Measure whole responses, and decoding steps: the time of a whole response beyond its first token."""
    counts = {"base only": 0, **{_name(count): count for count in plan.adapters[1:]}}
    slots = {name: [row * count // rows if count else -1 for row in range(rows)] for name, count in counts.items()}
    samplers = {name: sampling.sampler(adapted, rows) for name in counts}
    whole = {name: sampling.whole(samplers[name], of_rows, plan.prompt, plan.new) for name, of_rows in slots.items()}
    start = {f"{name}, first": sampling.whole(samplers[name], of_rows, plan.prompt, 1) for name, of_rows in slots.items()}
    times = interleaved(whole | start, rounds, clock)
    steps = {name: [a - b for a, b in zip(times[name], times[f"{name}, first"], strict=True)] for name in counts}
    results: dict[str, Any] = {}
    for name, count in counts.items():
        seconds = statistics.median(steps[name]) / (plan.new - 1)
        results[name] = {
            "tokens_per_second": spread([round(rows * plan.new / seconds) for seconds in times[name]]),
            "prompt_tokens_per_second": spread([round(rows * plan.prompt / seconds) for seconds in times[f"{name}, first"]]),
            "step_milliseconds": round(1000 * seconds, 3),
            "of_peak": round(step_bytes(plan, base, rows, count) / seconds / 1e9 / limits.bandwidth_gb_per_second, 4),
        }
    return results | _speeds(steps, "base only", [name for name in counts if name != "base only"])


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
