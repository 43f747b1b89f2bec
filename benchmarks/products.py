"""Measure the frozen base's products by MKL and by oneDNN, of few and many rows, forward and for the gradient.

    python -m benchmarks.products [--rounds 7]      writes products.json; three minutes

One thread; 10^9 FLOP/s in CPU time of this process, medians of rounds. The first two sizes are the tiny base's, the others Qwen2.5-0.5B's.
`varied` are products of the tiny base's sizes in which the number of rows differs from product to product, as in training: CPU milliseconds
of a product, and what they add to the process's memory.
"""

import multiprocessing
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
from benchmarks.measuring import machine, options, take_turns, write_results

from populora.engine.model.products import padded_rows

ROWS = (8, 16, 32, 64, 2048)
SIZES = ((128, 512), (512, 128), (896, 4864))
HEAD = (55, 896, 151936)
"""The rows of a chunk of the real vocabulary (`populora.engine.model.head`)."""
VARIED = ("MKL", "oneDNN", "oneDNN, padded rows")
PRODUCTS, MOST_ROWS = 4000, 4096


def main() -> None:
    parser = options(__doc__, Path(__file__).with_suffix(".json"), rounds=7)
    args = parser.parse_args()
    torch.set_num_threads(1)
    about = {"machine": machine("torch") | {"instructions": torch.backends.cpu.get_cpu_capability()}}
    shapes: list[tuple[int, int, int]] = [*((rows, *size) for size in SIZES for rows in ROWS), HEAD]
    speeds = {" x ".join(map(str, shape)): compare(args.rounds, *shape) for shape in shapes}
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as fresh:
        rows = {library: fresh.submit(varied, library).result() for library in VARIED}
    write_results(args.out, about | {"rounds": args.rounds, "gflops": speeds, "varied": rows})


def compare(rounds: int, rows: int, inputs: int, outputs: int) -> dict[str, float]:
    """Return 10^9 FLOP/s of a product and of its gradient, by library."""
    x, weight, grad = torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(rows, outputs)
    onednn, work = torch.ops.mkldnn._linear_pointwise, 2e-9 * rows * inputs * outputs
    repeats = max(1, int(0.5 / work))

    def seconds(x: torch.Tensor, weight: torch.Tensor, by_onednn: bool) -> float:
        started = time.process_time()
        for _ in range(repeats):
            _ = onednn(x, weight, None, "none", [], "") if by_onednn else torch.nn.functional.linear(x, weight)
        return (time.process_time() - started) / repeats

    cases = {
        "MKL": lambda: seconds(x, weight, False),
        "oneDNN": lambda: seconds(x, weight, True),
        "MKL, gradient": lambda: seconds(grad, weight.T, False),
        "oneDNN, gradient": lambda: seconds(grad, weight.T, True),
    }
    return {name: round(work / statistics.median(taken), 1) for name, taken in take_turns(cases, rounds + 1).items()}


def varied(library: str) -> dict[str, float]:
    """Compute products of random numbers of rows in this process. Returns milliseconds of a product and added MB."""
    torch.set_num_threads(1)
    draw, weights = np.random.default_rng(0), [torch.randn(outputs, inputs) for inputs, outputs in SIZES[:2]]
    _ = torch.randn(MOST_ROWS, 512) @ weights[1].T
    memory, spent = _resident(), 0.0
    for number in range(PRODUCTS):
        weight = weights[number % 2]
        x = torch.randn(int(draw.integers(32, MOST_ROWS)), weight.shape[1])
        started = time.process_time()
        if library == "MKL":
            torch.nn.functional.linear(x, weight)
        else:
            rows = padded_rows(len(x)) if "padded" in library else len(x)
            torch.ops.mkldnn._linear_pointwise(torch.nn.functional.pad(x, (0, 0, 0, rows - len(x))), weight, None, "none", [], "")
        spent += time.process_time() - started
    return {"milliseconds": round(1e3 * spent / PRODUCTS, 2), "MB": round(_resident() - memory)}


def _resident() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


if __name__ == "__main__":
    main()
