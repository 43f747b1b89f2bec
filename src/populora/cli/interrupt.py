"""Ctrl-C in two stages: the first lets the step finish and checkpoint, the second stops at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """True once the user asked to stop; training polls it after each step."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self) -> bool:
        return self.asked


@contextmanager
def two_stage_interrupt() -> Iterator[StopRequest]:
    """Let the first SIGINT set the request and the second raise ``KeyboardInterrupt`` while the block runs.

    SIGTERM, which job schedulers send before they kill, counts as a first Ctrl-C.
    """
    request = StopRequest()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if request.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        request.asked = True

    previous = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
