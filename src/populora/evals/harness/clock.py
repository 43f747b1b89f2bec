"""CPU time limits inside a child of the sandbox, where no timer may be set. Loaded before a harness, into the same module.

A thread looks at the clock and wakes the main one; what cannot be woken (one long call into the C library) fails when it is back, and
what will not be woken ends with its process.
"""

import _thread
import contextlib
import math
import os
import signal
import threading
import time

_cpu_time, _sleep, _end_process = time.process_time, time.sleep, os._exit  # as they are before a program could change them
GRACE_SECONDS = 3.0
"""For a program that catches what wakes it."""


class TimeOut(BaseException):
    """A test's time is over. Not an `Exception`: programs catch those."""


class Clock:
    """Limits for parts of what this process does; ``left`` is what all parts have together. One a process at a time."""

    def __init__(self, seconds):
        self.left, self.expired, self._end = seconds, False, math.inf
        signal.signal(signal.SIGALRM, self._woken)
        with contextlib.suppress(RuntimeError):  # where threads are refused, the sandbox's own limit has to do
            threading.Thread(target=self._look, daemon=True).start()

    @property
    def running(self):
        """Whether a part is under way."""
        return self._end != math.inf

    def _look(self):
        while True:
            _sleep(0.05)
            if _cpu_time() > self._end + GRACE_SECONDS:
                _end_process(1)
            if _cpu_time() > self._end:
                _thread.interrupt_main(signal.SIGALRM)

    def _woken(self, *_):
        if _cpu_time() > self._end:  # else the part ended in between
            self.expired = True
            raise TimeOut

    @contextlib.contextmanager
    def limit(self, seconds):
        """Raises `TimeOut` in a block that takes longer."""
        started = _cpu_time()
        self._end = end = started + min(seconds, self.left)
        try:
            yield
        finally:
            self._end = math.inf
            self.left -= _cpu_time() - started
        if _cpu_time() > end:
            self.expired = True
            raise TimeOut
