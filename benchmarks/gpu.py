"""Measure training and decoding with many adapters on one GPU, beside one adapter, the bare base and the limits of the card.

    python -m benchmarks.gpu [--shapes Qwen2.5-0.5B Qwen2.5-7B] [--rounds 5]        writes speed/gpu.json, after each case, prints a table

Random weights in bf16, rank 32. Times are wall-clock with the card synchronised. A case that does not fit into the card's memory is
reported as such. Without a GPU the same code runs at toy size on the CPU, and its speeds mean nothing.

``of_peak`` of training is the share of the measured peak of a product. Model FLOPs count the work that the result needs, once: neither what
checkpointing computes again nor padding. The base is frozen, so a weight costs 2 FLOPs a token forward and 2 backward, where full training
costs 6. ``of_peak`` of decoding is the share of the measured bandwidth: each step reads the weights, its adapters, and keys and values.
"""

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from benchmarks.measuring import LINE, Case, Times, interleaved, machine, options, ratio, save_results, spread
from benchmarks.speed import sampling
from benchmarks.speed.models import adapt
from benchmarks.speed.random_base import qwen2
from benchmarks.speed.training import batch, learn
from rich.console import Console
from rich.table import Table

from populora.engine.model.adapted_model import AdaptedModel, Checkpointing

T = TypeVar("T")
REPEATS = 20  # of a probe, so that starting the clock does not count
PROBED_BYTES = 1 << 31  # far more than any cache
CONTEXT = 4096
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
    """The sizes. Training: micro-batches of ``tokens``, by checkpointing, cut into sequences of ``row``. Decoding: ``rows`` at a time, each
    with a prompt of ``prompt`` tokens and ``new`` ones. Peak: products of matrices of ``side`` x ``side``."""

    device: str
    dtype: str
    bases: dict[str, Base]
    rank: int
    tokens: dict[Checkpointing, tuple[int, ...]]
    row: int
    rows: tuple[int, ...]
    prompt: int
    new: int
    side: int
    adapters: tuple[int, ...] = (1, 8, 16)


@dataclass(frozen=True)
class Limits:
    """What the card does at best, as measured."""

    peak_tflops: float
    bandwidth_gb_per_second: float


QWEN = {
    "Qwen2.5-0.5B": Base((896, 24, 4864, 14, 2), vocabulary=151_936, tied=True),
    "Qwen2.5-7B": Base((3584, 28, 18_944, 28, 4), vocabulary=152_064, tied=False),
}
TOKENS: dict[Checkpointing, tuple[int, ...]] = {"none": (8192, 16_384, 32_768), "mlp": (32_768,), "layer": (32_768,)}
REAL = Plan("cuda", "bfloat16", QWEN, 32, TOKENS, 512, (32, 128), prompt=128, new=128, side=8192)
SMALL: dict[Checkpointing, tuple[int, ...]] = {"none": (256,), "mlp": (256,), "layer": (256,)}
TOY = Plan("cpu", "float32", {"toy": Base((64, 2, 128, 4, 2), 512, True)}, 8, SMALL, 16, (16,), prompt=8, new=8, side=256)


def main(arguments: Sequence[str] | None = None) -> None:
    plan = REAL if torch.cuda.is_available() else TOY
    parser = options(__doc__, Path(__file__).parent / "speed" / "gpu.json", rounds=5)
    parser.add_argument("--shapes", nargs="+", default=list(plan.bases), choices=list(plan.bases))
    args = parser.parse_args(arguments)
    name = torch.cuda.get_device_name() if plan.device == "cuda" else None
    limits = Limits(measured_peak(plan, args.rounds), measured_bandwidth(plan, args.rounds))
    about = {"gpu": name, "machine": machine("torch", "transformers"), "rounds": args.rounds, **asdict(limits)}
    shapes: dict[str, dict[str, Any]] = {shape: {} for shape in args.shapes}
    started = clock()
    try:
        for shape, results in shapes.items():
            for case, result in measure(plan, plan.bases[shape], limits, args.rounds):
                results[case] = result
                print(f"{clock() - started:.0f} s  {shape}: {case}", flush=True)
                save_results(args.out, {**about, "shapes": shapes})
    finally:
        Console(width=LINE).print(table(shapes))


def table(shapes: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return a row for each case and number of adapters."""
    made = Table("shape", "case", "adapters", "tokens a second", "of the card's limit", "memory, GiB")
    for shape, results in shapes.items():
        for case, result in results.items():
            if isinstance(result, str):
                made.add_row(shape, case, "", result, "", "")
                continue
            for adapters, values in result.items():
                if adapters != "speeds":
                    speed, memory = values["tokens_per_second"]["median"], values.get("peak_gib")
                    made.add_row(
                        shape, case, adapters, f"{speed:,.0f}", f"{values['of_peak']:.0%}", "" if memory is None else f"{memory:.1f}"
                    )
    return made


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
    return round(REPEATS * 2 * plan.side**3 / statistics.median(times["product"]) / 1e12, 1)


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


def measure(plan: Plan, base: Base, limits: Limits, rounds: int) -> Iterator[tuple[str, Any]]:
    """Measure training by checkpointing and micro-batch, and decoding by rows, case by case."""
    torch.compiler.reset()  # the heads of the shape before are compiled
    for checkpointing, micro_batches in plan.tokens.items():
        adapted = attempt(partial(adapted_model, plan, base, checkpointing))
        cases = {
            f"training, checkpointing {checkpointing}, {tokens} tokens": partial(training, plan, base, limits, rounds, tokens)
            for tokens in micro_batches
        }
        if checkpointing == "none":
            cases = {f"decoding, {rows} rows": partial(decoding, plan, base, limits, rounds, rows) for rows in plan.rows} | cases
        for name, case in cases.items():
            yield name, adapted if isinstance(adapted, str) else attempt(partial(case, adapted))
        del adapted  # before the next one is made


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


def training_flops(base: Base, rank: int, rows: int, row: int) -> float:
    """Return the model FLOPs of forward and backward of ``rows`` sequences of ``row`` tokens that learn from their latter half.

    Linear modules 4 P a token; adapters 6 (forward, gradients of input and of A and B); attention 12 x heads x head size for each pair of
    tokens that see each other (scores and mixing: 4 forward, 8 backward); the head 4 x hidden x vocabulary for each token learned from.
    """
    hidden, layers, *_ = base.widths
    pairs = rows * row * (row + 1) / 2
    learned = rows * (row + 1 - row // 2)
    return rows * row * (4 * base.linear + 6 * base.adapter(rank)) + 12 * layers * hidden * pairs + 4 * learned * hidden * base.vocabulary


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


def step_bytes(plan: Plan, base: Base, rows: int, adapters: int) -> float:
    """Return the bytes that a decoding step has to read: weights with the head, adapters, and the keys and values of half-written rows."""
    hidden, layers, _, heads, kv_heads = base.widths
    seen = rows * (plan.prompt + plan.new / 2) * 2 * layers * hidden * kv_heads // heads
    return getattr(torch, plan.dtype).itemsize * (base.linear + hidden * base.vocabulary + adapters * base.adapter(plan.rank) + seen)


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
