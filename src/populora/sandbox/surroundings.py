"""Change the clock and the machine's name that a program sees, before any program is loaded. Standard library only.

The two zygotes of a pair have clocks of different days, so a value that depends on the clock differs between them however coarsely
it is read (year, date, hour). This catches honest mistakes and cheap tricks: a program that calls the C library itself still gets the
real time. Sleeping is not changed. ``LD_PRELOAD`` would change the C library's clock, but disturb limits and threads. Disabling the
clock by prctl would kill programs that only measure themselves.
"""

import ctypes
import datetime
import gc
import os
import platform
import time
from collections.abc import Callable
from typing import Any

STEP = datetime.timedelta(days=401, hours=5, minutes=17, seconds=23, microseconds=371_093)
"""Difference between the clocks of two zygotes: year, month, day, weekday, hour, minute, second and its tenth all differ."""

_COUNTING = "time monotonic perf_counter process_time thread_time clock_gettime".split()


def set_surroundings(index: int) -> None:
    """Set the clock of the ``index``-th zygote, and hide the machine's name."""
    _shift_time(index * STEP)
    _shift_datetime(index * STEP)
    machine = os.uname_result(("Linux", "sandbox", "", "", platform.machine()))
    os.uname = lambda: machine


class Replaced:
    """A callable that does not bind as a method, like a built-in function."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)


def _shift_time(later: datetime.timedelta) -> None:
    nanoseconds = later // datetime.timedelta(microseconds=1) * 1000
    for name in _COUNTING:
        setattr(time, name, _added(getattr(time, name), later.total_seconds()))
        setattr(time, f"{name}_ns", _added(getattr(time, f"{name}_ns"), nanoseconds))
    for name in ("localtime", "gmtime", "ctime"):
        setattr(time, name, _of_now(getattr(time, name)))
    asctime, strftime = time.asctime, time.strftime
    time.asctime = Replaced(lambda moment=None: asctime(moment or time.localtime()))
    time.strftime = Replaced(lambda form, moment=None: strftime(form, moment or time.localtime()))


def _added(read: Callable[..., Any], shift: Any) -> Replaced:
    return Replaced(lambda *arguments: read(*arguments) + shift)


def _of_now(convert: Callable[[float], Any]) -> Replaced:
    return Replaced(lambda seconds=None: convert(time.time() if seconds is None else seconds))


def _shift_datetime(later: datetime.timedelta) -> None:
    """Replace the methods in the type's own namespace: `datetime` reads the clock in C, and a subclass would not be the type."""
    methods = gc.get_referents(datetime.datetime.__dict__)[0]
    for name in ("now", "utcnow"):
        methods[name] = classmethod(_later(getattr(datetime.datetime, name), later))
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(datetime.datetime))


def _later(read: Callable[..., datetime.datetime], shift: datetime.timedelta) -> Callable[..., datetime.datetime]:
    def shifted(kind: type[datetime.datetime], *zone: Any, **zones: Any) -> datetime.datetime:
        moment = read(*zone, **zones) + shift
        return moment if kind is datetime.datetime else kind.combine(moment.date(), moment.timetz())

    return shifted
