"""Run each program in a forked child, in the manner of the checkers of HumanEval and evalplus. It is no sandbox.

    python fork_checker.py [--guard]      runs a trivial program for each number of a line of JSON, and answers how many went wrong

A child of this small process runs each program and leaves its verdict in a shared value. With ``--guard`` it has a folder of its own,
limits, dangerous functions set to None, and its output is swallowed. This file imports nothing of populora: the forking process is small.
"""

import builtins
import contextlib
import faulthandler
import io
import json
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any, NoReturn

FORK = multiprocessing.get_context("fork")
MEMORY_BYTES = 4 << 30
SECONDS = 1.0
SWITCHED_OFF = {
    os: """kill system putenv remove removedirs rmdir fchdir setuid fork forkpty killpg rename renames truncate replace unlink
        fchmod fchown chmod chown chroot lchown getcwd chdir""",
    shutil: "rmtree move chown",
    subprocess: "Popen",
    builtins: "exit quit help open",
}


def main(guard: bool) -> None:
    """Serve until the input ends."""
    tempfile.gettempdir()  # look it up once here, not in every child
    for line in sys.stdin:
        print(sum(not passes(f"def f(x):\n    return x + {number}", 1, number + 1, guard) for number in json.loads(line)), flush=True)


def passes(program: str, argument: Any, expected: Any, guard: bool) -> bool:
    """Return whether ``f`` of the program gives the expected value, as a child of this process finds."""
    verdict = FORK.Value("i", False)
    child = FORK.Process(target=_guarded if guard else _judge, args=(program, argument, expected, verdict))
    child.start()
    child.join(SECONDS + 1)
    if child.is_alive():
        child.kill()
        child.join()
    return bool(verdict.value)


def _judge(program: str, argument: Any, expected: Any, verdict: Any) -> None:
    names: dict[str, Any] = {}
    with contextlib.suppress(BaseException):  # whatever the program raises
        exec(program, names)  # noqa: S102 - the programs are ours
        verdict.value = names["f"](argument) == expected


def _guarded(program: str, argument: Any, expected: Any, verdict: Any) -> None:
    home = os.getcwd()
    kept = shutil.rmtree, os.rmdir, os.chdir
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        _guard()
        silence = io.StringIO()
        with contextlib.redirect_stdout(silence), contextlib.redirect_stderr(silence), _time_limit(SECONDS):
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
def _time_limit(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> NoReturn:
        raise TimeoutError("out of time")

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    main("--guard" in sys.argv)
