"""Share the work of a call into C among threads. ctypes lets the others run meanwhile."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache


def share(work: Callable[[int, int, int], None], cuts: Sequence[int], threads: int) -> None:
    """Call ``work`` with the number, the first and the last place of each part between two ``cuts``, on that many threads."""
    parts = zip(range(len(cuts) - 1), cuts[:-1], cuts[1:], strict=True)
    if threads == 1 or len(cuts) == 2:
        for part in parts:
            work(*part)
        return
    futures = [_pool(threads).submit(work, *part) for part in parts]
    try:
        for future in futures:
            future.result()
    finally:
        wait(futures)  # after Ctrl-C, too: C still uses memory that the caller frees


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)
