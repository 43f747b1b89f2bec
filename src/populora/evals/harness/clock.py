"""CPU time limits inside a child of the sandbox, where no timer may be set. Loaded before a harness, into the same module.

A thread watches the clock and interrupts the main one. A long call into the C library, which cannot be interrupted, fails when it returns;
a program that ignores the interrupt ends with its process.
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
"""Seconds for a program that catches the interrupt."""


class TimeOut(BaseException):
    """A test exceeded its time. Not an `Exception`, which programs catch."""


class Clock:
    """Time limits for parts of this process; ``left`` is the total of all parts. One clock a process."""

    def __init__(self, seconds):
        self.left, self.expired, self._end = seconds, False, math.inf
        signal.signal(signal.SIGALRM, self._woken)
        with contextlib.suppress(RuntimeError):  # without threads, the sandbox's limit remains
            threading.Thread(target=self._look, daemon=True).start()

    @property
    def running(self):
        """Tell whether a limit is active."""
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
        """Raise `TimeOut` in a block that takes longer."""
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
