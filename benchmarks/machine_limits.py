"""Measure what one thread of this machine attains: float32 products and memory bandwidth.

    python -m benchmarks.machine_limits [--rounds 7]        prints, and writes machine_limits.json

A rate is that of the fastest round, because other work only slows the machine. Products are those of torch's default (MKL) and of oneDNN.
The arrays that are read and copied should be larger than the caches. A copy counts the bytes read and the bytes written.
"""

import timeit
from collections.abc import Callable
from pathlib import Path

import torch
from benchmarks.measuring import machine, options, write_results

SHAPES = ((2048, 1024, 1024), (2048, 896, 4864), (4096, 2048, 2048))
"""Rows, inputs, outputs."""
BYTES = 512 << 20


def main() -> None:
    args = options(__doc__, Path(__file__).with_suffix(".json"), rounds=7).parse_args()
    torch.set_num_threads(1)
    about = {"machine": machine("torch"), "rounds": args.rounds}
    products = {" x ".join(map(str, shape)): measure_products(*shape, args.rounds) for shape in SHAPES}
    best = max(rate for rates in products.values() for rate in rates.values())
    limits = {"GFLOP/s": products, "best GFLOP/s": best, "GB/s": measure_bandwidth(BYTES, args.rounds)}
    write_results(args.out, {**about, **limits})


def measure_products(rows: int, inputs: int, outputs: int, rounds: int) -> dict[str, float]:
    """Return 10^9 FLOP/s of one float32 product by library."""
    x, weight = torch.randn(rows, inputs), torch.randn(outputs, inputs)
    cases: dict[str, Callable[[], object]] = {
        "MKL": lambda: torch.nn.functional.linear(x, weight),
        "oneDNN": lambda: torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], ""),
    }
    return {name: rate(2 * rows * inputs * outputs, case, rounds) for name, case in cases.items()}


def measure_bandwidth(size: int, rounds: int) -> dict[str, float]:
    """Return 10^9 bytes a second of reading and of copying an array of ``size`` bytes."""
    source = torch.ones(size // 4)
    target = torch.empty_like(source)
    return {"read": rate(size, source.sum, rounds), "copy": rate(2 * size, lambda: target.copy_(source), rounds)}


def rate(amount: float, work: Callable[[], object], rounds: int) -> float:
    """Return 10^9 units a second of wall time in the fastest round, after one that is not counted."""
    work()
    return round(1e-9 * amount / min(timeit.repeat(work, number=1, repeat=rounds)), 1)


if __name__ == "__main__":
    main()
