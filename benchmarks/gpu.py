"""Measure training and decoding with many adapters on one GPU, beside one adapter, the bare base and the peak of the card.

    python -m benchmarks.gpu [--shapes Qwen2.5-0.5B Qwen2.5-7B] [--rounds 5]        writes speed/gpu.json, after each case

Random weights in bf16, rank 32. Times are wall-clock with the card synchronised. A case that does not fit into the card's memory is
reported as such. Without a GPU the same code runs at toy size on the CPU, and its speeds mean nothing.

``mfu`` is the share of the measured peak. Model FLOPs count the work that the result needs, once: neither what checkpointing computes again
nor padding. The base is frozen, so a weight costs 2 FLOPs a token forward and 2 backward, where full training costs 6.
"""

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from benchmarks.measuring import Case, Times, interleaved, machine, options, ratio, save_results, spread
from benchmarks.speed import sampling
from benchmarks.speed.models import adapt
from benchmarks.speed.random_base import qwen2
from benchmarks.speed.training import batch, learn

from populora.engine.model.adapted_model import AdaptedModel, Checkpointing

T = TypeVar("T")
REPEATS = 20  # of a probe, so that starting the clock does not count
CONTEXT = 4096
CHECKPOINTING: tuple[Checkpointing, ...] = ("none", "mlp", "layer")
NO_ROOM = "does not fit into memory"


@dataclass(frozen=True)
class Base:
    """A Qwen2: ``widths`` are hidden size, layers, inner size of the MLP, heads, key-value heads."""

    widths: tuple[int, int, int, int, int]
    vocabulary: int
    tied: bool

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
    of ``prompt`` tokens and ``new`` ones. Peak: products of matrices of ``side`` x ``side``."""

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
    adapters: tuple[int, ...] = (1, 8, 16)


QWEN = {
    "Qwen2.5-0.5B": Base((896, 24, 4864, 14, 2), vocabulary=151_936, tied=True),
    "Qwen2.5-7B": Base((3584, 28, 18_944, 28, 4), vocabulary=152_064, tied=False),
}
REAL = Plan("cuda", "bfloat16", QWEN, 32, (8192, 16_384, 32_768), 512, (32, 64, 128), prompt=128, new=128, side=8192)
TOY = Plan("cpu", "float32", {"toy": Base((64, 2, 128, 4, 2), 512, True)}, 8, (256,), 16, (16,), prompt=8, new=8, side=256)


def main(arguments: Sequence[str] | None = None) -> None:
    plan = REAL if torch.cuda.is_available() else TOY
    parser = options(__doc__, Path(__file__).parent / "speed" / "gpu.json", rounds=5)
    parser.add_argument("--shapes", nargs="+", default=list(plan.bases), choices=list(plan.bases))
    args = parser.parse_args(arguments)
    name = torch.cuda.get_device_name() if plan.device == "cuda" else None
    peak = measured_peak(plan, args.rounds)
    about = {"gpu": name, "machine": machine("torch", "transformers"), "rounds": args.rounds, "peak_tflops": peak}
    shapes: dict[str, dict[str, Any]] = {shape: {} for shape in args.shapes}
    for shape, results in shapes.items():
        for case, result in measure(plan, plan.bases[shape], peak, args.rounds):
            results[case] = result
            print(case, result, flush=True)
            save_results(args.out, {**about, "shapes": shapes})


def clock() -> float:
    """Return wall-clock seconds once the card has done all that was launched."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def measured_peak(plan: Plan, rounds: int) -> float:
    """Return the TFLOP/s of a product of matrices."""
    left, right = (torch.randn(plan.side, plan.side, device=plan.device, dtype=getattr(torch, plan.dtype)) for _ in range(2))
    product = torch.empty_like(left)
    times = interleaved({"product": lambda: [torch.mm(left, right, out=product) for _ in range(REPEATS)]}, rounds, clock)
    return REPEATS * 2 * plan.side**3 / statistics.median(times["product"]) / 1e12


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


def measure(plan: Plan, base: Base, peak: float, rounds: int) -> Iterator[tuple[str, Any]]:
    """Measure training by checkpointing and micro-batch, and decoding by rows, case by case. ``peak`` is in TFLOP/s."""
    torch.compiler.reset()  # the heads of the shape before are compiled
    for checkpointing in CHECKPOINTING:
        adapted = attempt(partial(adapted_model, plan, base, checkpointing))
        cases = {
            f"training, checkpointing {checkpointing}, {tokens} tokens": partial(training, plan, base, peak, rounds, tokens)
            for tokens in plan.tokens
        }
        if checkpointing == "none":
            cases |= {f"decoding, {rows} rows": partial(decoding, plan, rounds, rows) for rows in plan.rows}
        for name, case in cases.items():
            yield name, adapted if isinstance(adapted, str) else attempt(partial(case, adapted))
        del adapted  # before the next one is made


def training(plan: Plan, base: Base, peak: float, rounds: int, tokens: int, adapted: AdaptedModel) -> dict[str, Any]:
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
            "mfu": round(teraflops / statistics.median(seconds) / peak, 4),
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


def decoding(plan: Plan, rounds: int, rows: int, adapted: AdaptedModel) -> dict[str, Any]:
    """Measure whole responses, and decoding steps: the time of a whole response beyond its first token."""
    counts = {"base only": 0, **{_name(count): count for count in plan.adapters[1:]}}
    slots = {name: [row * count // rows if count else -1 for row in range(rows)] for name, count in counts.items()}
    samplers = {name: sampling.sampler(adapted, rows) for name in counts}
    whole = {name: sampling.whole(samplers[name], of_rows, plan.prompt, plan.new) for name, of_rows in slots.items()}
    start = {f"{name}, first": sampling.whole(samplers[name], of_rows, plan.prompt, 1) for name, of_rows in slots.items()}
    times = interleaved(whole | start, rounds, clock)
    steps = {name: [a - b for a, b in zip(times[name], times[f"{name}, first"], strict=True)] for name in counts}
    results: dict[str, Any] = {}
    for name in counts:
        results[name] = {
            "tokens_per_second": spread([round(rows * plan.new / seconds) for seconds in times[name]]),
            "prompt_tokens_per_second": spread([round(rows * plan.prompt / seconds) for seconds in times[f"{name}, first"]]),
            "step_milliseconds": round(1000 * statistics.median(steps[name]) / (plan.new - 1), 3),
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


if __name__ == "__main__":
    main()
