"""Two other manners of running untrusted programs, in our own words: a forked child a program, and one warm interpreter for all.

    python peers.py WAY        answers lines of JSON, each a list of numbers, with what became of one trivial program a number

``fork_guarded`` and ``fork`` are the manner of HumanEval's and evalplus' checkers: a child of this small process for every program, a
shared value for its verdict, and with the guard a folder of its own, limits, dangerous functions set to None and swallowed
output. ``in_process`` is the manner of the Absolute Zero Reasoner's executor: one worker that lives on executes all lines of a
script but the last, evaluates that one and sends the result back pickled. None of this is a sandbox.

This file imports nothing of populora, so that the process that forks is small.
"""

from __future__ import annotations

import builtins
import contextlib
import faulthandler
import io
import json
import multiprocessing
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any, NoReturn

FORK = multiprocessing.get_context("fork")
MEMORY_BYTES = 4 << 30
SECONDS = 1.0
PATIENT_SECONDS = 10.0
SWITCHED_OFF = {
    os: """kill system putenv remove removedirs rmdir fchdir setuid fork forkpty killpg rename renames truncate replace unlink
        fchmod fchown chmod chown chroot lchown getcwd chdir""",
    shutil: "rmtree move chown",
    subprocess: "Popen",
    builtins: "exit quit help open",
}
UNKNOWN, PASSED, FAILED = range(3)


def main(way: str) -> None:
    """Serve until the input ends."""
    if way == "in_process":
        check = in_worker(start_worker())
    else:
        tempfile.gettempdir()  # found out once here, not in every child
        check = in_child(guarded=way == "fork_guarded")
    for line in sys.stdin:
        wrong, each = 0, []
        for number in json.loads(line):
            started = time.perf_counter()
            wrong += not check(f"def f(x):\n    return x + {number}", 1, number + 1)
            each.append(time.perf_counter() - started)
        print(json.dumps({"wrong": wrong, "each": each}), flush=True)


# One forked child a program.


def in_child(guarded: bool) -> Callable[[str, Any, Any], bool]:
    """Whether ``f`` of a program gives the expected value for one argument, as a child of this process finds."""

    def check(program: str, argument: Any, expected: Any) -> bool:
        verdict = FORK.Value("i", UNKNOWN)
        child = FORK.Process(target=_guarded if guarded else _judge, args=(program, argument, expected, verdict))
        child.start()
        child.join(SECONDS + 1)
        if child.is_alive():
            child.kill()
            child.join()
        return verdict.value == PASSED

    return check


def _judge(program: str, argument: Any, expected: Any, verdict: Any) -> None:
    names: dict[str, Any] = {}
    try:
        exec(program, names)  # noqa: S102 - what is compared with; the programs are ours
        verdict.value = PASSED if names["f"](argument) == expected else FAILED
    except BaseException:  # noqa: BLE001 - whatever the program raises
        verdict.value = FAILED


def _guarded(program: str, argument: Any, expected: Any, verdict: Any) -> None:
    home = os.getcwd()
    kept = shutil.rmtree, os.rmdir, os.chdir
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        _guard()
        silence = io.StringIO()
        with contextlib.redirect_stdout(silence), contextlib.redirect_stderr(silence), time_limit(SECONDS):
            _judge(program, argument, expected, verdict)
        shutil.rmtree, os.rmdir, os.chdir = kept
        os.chdir(home)


def _guard() -> None:
    for limit in (resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_STACK):
        resource.setrlimit(limit, (MEMORY_BYTES, MEMORY_BYTES))
    faulthandler.disable()
    os.environ["OMP_NUM_THREADS"] = "1"
    for module, names in SWITCHED_OFF.items():
        for name in names.split():
            setattr(module, name, None)
    sys.modules.update(dict.fromkeys(("ipdb", "joblib", "resource", "psutil", "tkinter")))  # type: ignore[arg-type]


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """An exception in the block after this time."""

    def stop(*_: object) -> NoReturn:
        raise TimeoutError("error: out of time")

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


# One interpreter for all programs.


def start_worker() -> Connection:
    """The end of the pipe at which a new worker takes scripts; it ends with this process."""
    ours, theirs = FORK.Pipe()
    FORK.Process(target=_serve, args=(theirs,), daemon=True).start()
    theirs.close()
    return ours


def in_worker(pipe: Connection) -> Callable[[str, Any, Any], bool]:
    """Whether ``f`` of a program gives the expected value for one argument, as the worker says."""

    def check(program: str, argument: Any, expected: Any) -> bool:
        pipe.send(f"{program}\nrepr(f({argument!r}))")
        return pipe.recv() == (repr(expected), "done")

    return check


def _serve(pipe: Connection) -> None:
    while True:
        script = pipe.recv()
        pipe.send(run_lines(script))


def run_lines(script: str) -> tuple[Any, str]:
    """Value of the last line after the others have run, and a line of text on what happened. The names are new for every script."""
    *body, last = script.split("\n")
    names: dict[str, Any] = {}
    try:
        with time_limit(PATIENT_SECONDS):
            exec("\n".join(body), names)  # noqa: S102 - what is compared with; the programs are ours
        with time_limit(PATIENT_SECONDS):
            result = eval(last, names)  # noqa: S307
        str(result)
        pickle.dumps(result)
    except BaseException:  # noqa: BLE001 - whatever the program raises
        return "", traceback.format_exc().strip().split("\n")[-1]
    return result, "done"


if __name__ == "__main__":
    main(sys.argv[1])
