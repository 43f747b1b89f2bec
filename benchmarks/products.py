"""Measure the frozen base's products by MKL and by oneDNN, of few and many rows, forward and for the gradient.

    python -m benchmarks.products [--rounds 7]      writes products.json; two minutes

One thread; 10^9 FLOP/s in CPU time of this process, medians of rounds. The first two sizes are the tiny base's, the others Qwen2.5-0.5B's.
"""

import statistics
import time
from pathlib import Path

import torch
from benchmarks.measuring import machine, options, take_turns, write_results

ROWS = (8, 16, 32, 64, 2048)
SIZES = ((128, 512), (512, 128), (896, 4864))
HEAD = (55, 896, 151936)
"""The rows of a chunk of the real vocabulary (`populora.engine.model.head`)."""


def main() -> None:
    parser = options(__doc__, Path(__file__).with_suffix(".json"), rounds=7)
    args = parser.parse_args()
    torch.set_num_threads(1)
    shapes: list[tuple[int, int, int]] = [*((rows, *size) for size in SIZES for rows in ROWS), HEAD]
    speeds = {" x ".join(map(str, shape)): compare(args.rounds, *shape) for shape in shapes}
    write_results(args.out, {"machine": machine("torch"), "rounds": args.rounds, "gflops": speeds})


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


if __name__ == "__main__":
    main()
