"""The number of threads that torch's operators use on the CPU, for a block of code."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use ``count`` threads in the block, or as many as before if it is 0.

    Afterwards it has its earlier number again: other code of the process relies on it, and sums on another number of threads have other
    last bits.
    """
    previous = torch.get_num_threads()
    if count:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if count:
            torch.set_num_threads(previous)
