"""Measure training and decoding with many adapters on one GPU, beside one adapter, the bare base and the limits of the card.

    python -m benchmarks.gpu [--shapes Qwen2.5-0.5B Qwen2.5-7B] [--rounds 5] [--minutes 15]

Random weights in bf16, rank 32. Writes ``speed/gpu.json`` after each case, and prints a table at the end. A case of each kind comes first
at each shape, then checkpointing, then other sizes. A case begins only if it would end within the minutes, by the speed of the slowest of
its kind so far; file and table name those that are left out, and those that do not fit into the card's memory.
`benchmarks.speed.gpu_cases` explains ``of_peak``.

Without a GPU the same code runs at toy size on the CPU. Its speeds mean nothing, so it writes a file only if ``--out`` names one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from benchmarks.measuring import LINE, machine, options, save_results
from benchmarks.speed.gpu_cases import Limits, adapted_model, attempt, clock, decoding, measured_limits, training
from benchmarks.speed.gpu_plan import REAL, TOY, Plan
from rich.console import Console
from rich.table import Table

from populora.engine.model.adapted_model import Checkpointing

LEFT_OUT = "left out: no time"


@dataclass(frozen=True)
class GpuCase:
    """Training with micro-batches of ``size`` tokens, or decoding ``size`` rows at a time, with each number of adapters."""

    shape: str
    kind: Literal["decoding", "training"]
    checkpointing: Checkpointing
    size: int

    @property
    def name(self) -> str:
        if self.kind == "decoding":
            return f"decoding, {self.size} rows"
        return f"training, checkpointing {self.checkpointing}, {self.size} tokens"

    def work(self, plan: Plan) -> float:
        """Return what its time is about proportional to: tokens times weights, and the forward once more with checkpointing."""
        return self.size * plan.bases[self.shape].linear * (1 if self.checkpointing == "none" else 4 / 3)


def main(arguments: Sequence[str] | None = None) -> None:
    started = clock()
    on_gpu = torch.cuda.is_available()
    plan = REAL if on_gpu else TOY
    parser = options(__doc__, Path(__file__).parent / "speed" / "gpu.json" if on_gpu else None, rounds=5)
    parser.add_argument("--shapes", nargs="+", default=list(plan.bases), choices=list(plan.bases))
    parser.add_argument("--minutes", type=float, default=15)
    args = parser.parse_args(arguments)
    limits = measured_limits(plan, args.rounds)
    about = {
        "gpu": torch.cuda.get_device_name() if on_gpu else None, "machine": machine("torch", "transformers"), "rounds": args.rounds,
        "minutes": args.minutes, **asdict(limits),
    }  # fmt: skip
    cases = ordered_cases(plan, args.shapes)
    shapes: dict[str, dict[str, Any]] = {shape: {} for shape in args.shapes}
    save_results(args.out, {**about, "left_out": left_out(cases, shapes), "shapes": shapes})
    try:
        for case, result in measure(plan, affordable(plan, cases, started + 60 * args.minutes), limits, args.rounds):
            shapes[case.shape][case.name] = result
            print(f"{clock() - started:.0f} s  {case.shape}: {case.name}", flush=True)
            save_results(args.out, {**about, "left_out": left_out(cases, shapes), "shapes": shapes})
    finally:
        Console(width=LINE).print(table(shapes, left_out(cases, shapes)))


def ordered_cases(plan: Plan, shapes: Sequence[str]) -> list[GpuCase]:
    """Order the cases: decoding and training once at each shape; then, from the last shape on, more rows, checkpointing, more tokens."""
    first: list[GpuCase] = []
    later: list[GpuCase] = []
    for shape in shapes:
        decodes = [GpuCase(shape, "decoding", "none", rows) for rows in plan.rows]
        trains = [GpuCase(shape, "training", checkpointing, size) for checkpointing, sizes in plan.tokens.items() for size in sizes]
        first += [decodes[0], trains[0]]
        later = [*decodes[1:], *sorted(trains[1:], key=lambda case: case.checkpointing == "none"), *later]
    return first + later


def affordable(plan: Plan, cases: Iterable[GpuCase], deadline: float) -> Iterator[GpuCase]:
    """Yield each case that should end before ``deadline``, in seconds of `clock`, and time it until the next is asked for.

    For its work a case is expected to take as long as the slowest of its kind so far. The first of a kind always begins in time.
    """
    slowest: dict[str, float] = {}
    for case in cases:
        begun, work = clock(), case.work(plan)
        if begun + slowest.get(case.kind, 0.0) * work < deadline:
            yield case
            slowest[case.kind] = max(slowest.get(case.kind, 0.0), (clock() - begun) / work)


def measure(plan: Plan, cases: Iterable[GpuCase], limits: Limits, rounds: int) -> Iterator[tuple[GpuCase, Any]]:
    """Measure the cases in turn; a base is kept as long as the next case needs the same."""
    adapted, shape, checkpointing = None, None, None
    for case in cases:
        if (case.shape, case.checkpointing) != (shape, checkpointing):
            if case.shape != shape:
                torch.compiler.reset()  # the heads of the shape before are compiled
            adapted = None  # before the next one is made
            shape, checkpointing = case.shape, case.checkpointing
            adapted = attempt(partial(adapted_model, plan, plan.bases[shape], checkpointing))
        work = {"decoding": decoding, "training": training}[case.kind]
        if isinstance(adapted, str):
            yield case, adapted
        else:
            yield case, attempt(partial(work, plan, plan.bases[case.shape], limits, rounds, case.size, adapted))


def left_out(cases: Iterable[GpuCase], shapes: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the names of the cases without a result, by shape."""
    return {shape: [case.name for case in cases if case.shape == shape and case.name not in results] for shape, results in shapes.items()}


def table(shapes: Mapping[str, Mapping[str, Any]], missing: Mapping[str, Sequence[str]]) -> Table:
    """Return a row for each case and number of adapters, and for each case that is ``missing``."""
    made = Table("shape", "case", "adapters", "tokens a second", "of the card's limit", "memory, GiB")
    for shape, results in shapes.items():
        for case, result in [*results.items(), *((case, LEFT_OUT) for case in missing[shape])]:
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


if __name__ == "__main__":
    main()
