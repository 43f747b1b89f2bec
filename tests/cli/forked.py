"""A command of populora in a process of its own that is forked from the tests', which have imported everything: it begins at once."""

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from populora.cli.main import main


def start_method() -> str:
    """Threads of OpenMP do not survive a fork."""
    return "fork" if sys.platform == "linux" and torch.get_num_threads() == 1 else "spawn"


@contextlib.contextmanager
def forked(
    *arguments: object, ready: Callable[[], object] = lambda: True, out: str | Path = os.devnull, errors: str | Path = os.devnull
) -> Iterator[BaseProcess]:
    """`populora ARGUMENTS` from the moment that it is ``ready``, as the leader of a group of processes.

    ``out`` and ``errors`` are files for what it prints."""
    process = multiprocessing.get_context(start_method()).Process(target=_run, args=([*map(str, arguments)], (str(out), str(errors))))  # type: ignore[attr-defined]
    process.start()
    try:
        while not ready():
            assert process.is_alive(), f"{arguments} ended by itself with {process.exitcode}"
            time.sleep(0.002)
        yield process
    finally:
        process.kill()
        process.join()


def _run(arguments: Sequence[str], files: Sequence[str]) -> None:
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for descriptor, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    sys.stdout, sys.stderr = (os.fdopen(descriptor, "w", buffering=1, encoding="utf-8", closefd=False) for descriptor in (1, 2))
    sys.exit(main(arguments))
