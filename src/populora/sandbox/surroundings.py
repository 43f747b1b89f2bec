"""What a program can learn of where and when it runs, changed before any program is loaded. Standard library only.

The two zygotes of a pair live on different days, so a value that depends on the clock differs between them however coarsely it is
read (year, date, hour). This is against honest mistakes and cheap tricks: a program that asks the C library for the time by itself
is still told the real one. Sleeping is not changed.
"""

import ctypes
import datetime
import gc
import os
import platform
import time
from collections.abc import Callable
from typing import Any

STEP = datetime.timedelta(days=401, hours=5, minutes=17, seconds=23)
"""How far the clocks of two neighbours are apart: year, month, day, weekday, hour, minute and second all differ."""

_COUNTING = "time monotonic perf_counter process_time thread_time clock_gettime".split()


def settle(place: int) -> None:
    """Take the surroundings of the ``place``-th zygote of a pair: its clock, and a machine without a name."""
    _shift_time(int((place * STEP).total_seconds()))
    _shift_datetime(place * STEP)
    machine = os.uname_result(("Linux", "sandbox", "", "", platform.machine()))
    os.uname = lambda: machine


def _shift_time(seconds: int) -> None:
    for name in _COUNTING:
        setattr(time, name, _added(getattr(time, name), seconds))
        setattr(time, f"{name}_ns", _added(getattr(time, f"{name}_ns"), seconds * 10**9))
    for name in ("localtime", "gmtime", "ctime"):
        setattr(time, name, _of_now(getattr(time, name)))
    asctime, strftime = time.asctime, time.strftime
    time.asctime = lambda moment=None: asctime(moment or time.localtime())
    time.strftime = lambda form, moment=None: strftime(form, moment or time.localtime())


def _added(read: Callable[..., Any], more: Any) -> Callable[..., Any]:
    return lambda *which: read(*which) + more


def _of_now(convert: Callable[[float], Any]) -> Callable[..., Any]:
    return lambda seconds=None: convert(time.time() if seconds is None else seconds)


def _shift_datetime(later: datetime.timedelta) -> None:
    """`datetime` reads the clock in C: the methods are replaced in the type's own namespace, as a subclass would not be the type."""
    methods = gc.get_referents(datetime.datetime.__dict__)[0]
    for name in ("now", "utcnow"):
        methods[name] = classmethod(_later(getattr(datetime.datetime, name), later))
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(datetime.datetime))


def _later(read: Callable[..., datetime.datetime], more: datetime.timedelta) -> Callable[..., datetime.datetime]:
    def shifted(kind: type[datetime.datetime], *zone: Any, **zones: Any) -> datetime.datetime:
        moment = read(*zone, **zones) + more
        return moment if kind is datetime.datetime else kind.combine(moment.date(), moment.timetz())

    return shifted
