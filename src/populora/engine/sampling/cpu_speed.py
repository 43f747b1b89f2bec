"""Measure the speed of this machine's CPU in about a second, because a plan has no data sheet for it."""

import os
import timeit

import torch

from populora.adapters.threads import torch_threads
from populora.engine.planning.hardware import CPU, Hardware

SIDE = 1024
"""Of the square matrices: large enough for the best kernels, small enough for a second."""
MIB = 256
"""Size of the copy: more than the CPU's caches hold."""
REPEATS = 6


def measure_cpu(threads: int = 0) -> Hardware:
    """Time products of two fp32 matrices and copies of memory on ``threads`` (0: torch's default), and keep the fastest of each."""
    with torch_threads(threads):
        left, right = torch.rand(SIDE, SIDE), torch.rand(SIDE, SIDE)
        product, source = torch.empty_like(left), torch.zeros(MIB << 20, dtype=torch.uint8)
        target = torch.empty_like(source)
        multiplying = min(timeit.repeat(lambda: torch.mm(left, right, out=product), number=1, repeat=REPEATS))
        copying = min(timeit.repeat(lambda: target.copy_(source), number=1, repeat=REPEATS))
        used = torch.get_num_threads()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    source_text = f"measured now: fp32 products of {SIDE} x {SIDE}, copies of {MIB} MiB, {used} threads"
    return Hardware(CPU, 2 * SIDE**3 / multiplying / 1e12, 2 * (MIB << 20) / copying / 1e9, memory, source_text)  # read and written
