"""What this machine's processor can do, measured in a second or two: a plan has no data sheet for it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import torch

from populora.engine.planning.hardware import CPU, Hardware

SIDE = 1024
"""Of the square matrices: large enough for the best kernels, small enough for a second."""
MIB = 256
"""What is copied: more than the processor's caches hold."""
REPEATS = 5


def calibrate(threads: int = 0) -> Hardware:
    """Best of `REPEATS` products of two fp32 matrices and of as many copies, on ``threads`` (0: torch's own choice)."""
    before = torch.get_num_threads()
    if threads:
        torch.set_num_threads(threads)
    try:
        left, right = torch.rand(SIDE, SIDE), torch.rand(SIDE, SIDE)
        product, source = torch.empty_like(left), torch.zeros(MIB << 20, dtype=torch.uint8)
        target = torch.empty_like(source)
        teraflops = 2 * SIDE**3 / _fastest(lambda: torch.mm(left, right, out=product)) / 1e12
        gigabytes = 2 * (MIB << 20) / _fastest(lambda: target.copy_(source)) / 1e9  # read and written
        used = torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return Hardware(
        CPU, teraflops, gigabytes, memory, f"measured now: fp32 products of {SIDE} x {SIDE}, copies of {MIB} MiB, {used} threads"
    )


def _fastest(work: Callable[[], object]) -> float:
    """Seconds of the fastest of `REPEATS`, after one that is not counted."""
    seconds: list[float] = []
    work()
    for _ in range(REPEATS):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)
