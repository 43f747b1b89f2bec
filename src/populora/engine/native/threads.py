"""Share the work of a call into C among threads. ctypes lets the others run meanwhile."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache


def share(work: Callable[[int, int, int], None], cuts: Sequence[int], threads: int) -> None:
    """Call ``work`` with the number, the first and the last place of each part between two ``cuts``, on that many threads."""
    apply = map if threads == 1 or len(cuts) == 2 else _pool(threads).map
    list(apply(work, range(len(cuts) - 1), cuts[:-1], cuts[1:]))


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)
