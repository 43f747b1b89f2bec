"""Training and decoding on one card, for 1, 8 and 16 adapters in a batch and for the bare base, against that card's roofline.

A case that does not fit into the card's memory is named as such; every other failure stops the run.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import packing
import sampling
import torch
from models import TARGETS, qwen2
from roofline import Base, decoding_bytes, training_flops
from timing import Case, Times, interleaved, ratio, spread

from populora.engine.model.model import AdaptedModel, Checkpointing
from populora.engine.sampling.decoders import without_graph
from training import batch

T = TypeVar("T")
CONTEXT = 4096
CHECKPOINTING: tuple[Checkpointing, ...] = ("none", "mlp", "layer")
WITHOUT_GRAPHS = "8 adapters, without CUDA graphs"  # the same static shapes, launched one by one
NO_ROOM = "does not fit into memory"


@dataclass(frozen=True)
class Plan:
    """What is measured. Training: micro-batches of ``tokens``, cut into sequences of ``row``. DecoderPool: ``rows`` at a time, each with a
    prompt of its own of ``prompt`` tokens and ``new`` ones. Roofline: matrices of ``side`` x ``side``, copies of ``mib`` MiB."""

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


def clock() -> float:
    """Wall-clock seconds at which the card has done all that it was asked."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def attempt(work: Callable[[], T]) -> T | str:
    """What ``work`` returns, or `NO_ROOM`."""
    gc.collect()
    torch.cuda.empty_cache()
    try:
        return work()
    except torch.OutOfMemoryError:
        return NO_ROOM


def adapted_model(plan: Plan, base: Base, checkpointing: Checkpointing) -> AdaptedModel:
    """A random base with adapters that do something in as many slots as any case asks for."""
    model = qwen2(base.widths, base.vocabulary, CONTEXT, base.tied, plan.device, plan.dtype)
    adapted = AdaptedModel(model, TARGETS, max(plan.adapters), plan.rank, 2.0 * plan.rank, checkpointing)
    adapted.bank.initialise(0)
    noise = torch.Generator(plan.device).manual_seed(1)
    adapted.bank.master += 0.02 * torch.randn(adapted.bank.master.shape, generator=noise, device=plan.device)
    adapted.bank.sync()
    return adapted


def training(plan: Plan, base: Base, peaks: dict[str, float | None], rounds: int) -> dict[str, Any]:
    """By checkpointing and micro-batch: forward and backward as the learner runs them, packing included. ``peaks`` are TFLOP/s."""
    found: dict[str, Any] = {}
    for checkpointing in CHECKPOINTING:
        adapted = attempt(partial(adapted_model, plan, base, checkpointing))
        for tokens in plan.tokens:
            name = f"checkpointing {checkpointing}, {tokens} tokens"
            found[name] = adapted if isinstance(adapted, str) else attempt(partial(_training, plan, base, adapted, tokens, peaks, rounds))
            print(name, found[name], flush=True)
        del adapted  # before the next one is made
    return found


def _training(plan: Plan, base: Base, adapted: AdaptedModel, tokens: int, peaks: dict[str, float | None], rounds: int) -> dict[str, Any]:
    rows = tokens // plan.row
    slots = {_name(count): sorted(row % count for row in range(rows)) for count in plan.adapters}
    slots["8 adapters, skewed"] = [0] * (rows - 7) + list(range(1, 8))
    cases = {name: packing.learn(adapted, batch(own, row=plan.row)) for name, own in slots.items()}
    peak = {name: _peak_gib(case) for name, case in cases.items()}
    times = interleaved(cases, rounds, clock)
    teraflops = training_flops(base, plan.rank, rows, plan.row) / 1e12
    found: dict[str, Any] = {}
    for name, seconds in times.items():
        reached = teraflops / statistics.median(seconds)
        found[name] = {
            "tokens_per_second": spread([tokens / value for value in seconds]),
            "tflops": round(reached, 3),
            "model_flop_utilisation": {kind: top and round(reached / top, 4) for kind, top in peaks.items()},
            "peak_gib": peak[name],
        }
    return found | _speeds(times, "1 adapter", list(slots)[1:])


def decoding(plan: Plan, base: Base, bandwidth: float, rounds: int) -> dict[str, Any]:
    """By rows: whole responses of the sampler, and its steps alone, which are what a whole response takes beyond its first token."""
    adapted = attempt(partial(adapted_model, plan, base, "none"))
    found: dict[str, Any] = {}
    for rows in plan.rows:
        name = f"{rows} rows"
        found[name] = adapted if isinstance(adapted, str) else attempt(partial(_decoding, plan, base, adapted, rows, bandwidth, rounds))
        print(name, found[name], flush=True)
    return found


def _decoding(plan: Plan, base: Base, adapted: AdaptedModel, rows: int, bandwidth: float, rounds: int) -> dict[str, Any]:
    counts = {"base only": 0, **{_name(count): count for count in plan.adapters[1:]}}
    if plan.device == "cuda":
        counts[WITHOUT_GRAPHS] = 8
    slots = {name: [row * count // rows if count else -1 for row in range(rows)] for name, count in counts.items()}
    samplers = {name: sampling.sampler(adapted, rows, without_graph if name == WITHOUT_GRAPHS else None) for name in counts}
    whole = {name: sampling.whole(samplers[name], own, length=plan.prompt, new=plan.new) for name, own in slots.items()}
    start = {f"{name}, first": sampling.whole(samplers[name], own, length=plan.prompt, new=1) for name, own in slots.items()}
    times = interleaved(whole | start, rounds, clock)
    steps = {name: [a - b for a, b in zip(times[name], times[f"{name}, first"], strict=True)] for name in counts}
    found: dict[str, Any] = {}
    for name, count in counts.items():
        step = statistics.median(steps[name]) / (plan.new - 1)
        read = decoding_bytes(base, plan.rank, count, rows, plan.prompt + plan.new / 2)
        found[name] = {
            "tokens_per_second": spread([rows * plan.new / seconds for seconds in times[name]]),
            "prompt_tokens_per_second": spread([rows * plan.prompt / seconds for seconds in times[f"{name}, first"]]),
            "step_milliseconds": round(1000 * step, 3),
            "share_of_bandwidth": round(read / 1e9 / step / bandwidth, 4),
        }
    return found | _speeds(steps, "base only", [name for name in counts if name != "base only"])


def _name(adapters: int) -> str:
    return "1 adapter" if adapters == 1 else f"{adapters} adapters"


def _speeds(times: Times, than: str, names: list[str]) -> dict[str, Any]:
    """Speeds in relation to that of ``than``."""
    return {"speeds": {f"{name} / {than}": ratio(times, than, name) for name in names}}


def _peak_gib(case: Case) -> float | None:
    """Memory at its highest while the case runs, with the bank of all adapters; None on a CPU."""
    if not torch.cuda.is_available():
        return None
    torch.cuda.reset_peak_memory_stats()
    case()
    return round(torch.cuda.max_memory_allocated() / 2**30, 2)
