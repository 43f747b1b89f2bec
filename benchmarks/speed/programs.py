"""Every program in a process of its own: what a verifier without a pool does.

No sandbox holds such a process, so no model text goes there: each runs the same small program of ours, as often as there were arguments.
What it takes is the interpreter's start, without site-packages, the fastest way there is; what the programs themselves would take costs
this arm nothing.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from populora.sandbox.protocol import Job, Limits

SCRIPT = "import resource as r\nfor kind, most in ((r.RLIMIT_CPU, {cpu}), (r.RLIMIT_AS, {memory}), (r.RLIMIT_FSIZE, 0)):\n"
SCRIPT += (
    "    r.setrlimit(kind, (most, most))\ndef f(x):\n    return sorted(x)[::-1]\nfor _ in range({calls}):\n    print(repr(f([2, 3, 1])))\n"
)
PRINTED = "[3, 2, 1]"


def run_all(programs: Sequence[Job], workers: int, limits: Limits) -> None:
    """A process for each program, ``workers`` at a time."""
    with ThreadPoolExecutor(workers) as threads:
        for _ in threads.map(lambda job: run(len(job.texts), limits), programs):
            pass


def run(calls: int, limits: Limits) -> None:
    """One process. Stops if it does not print what it should."""
    script = SCRIPT.format(cpu=math.ceil(limits.cpu_seconds), memory=limits.memory_mb << 20, calls=calls)
    command = [sys.executable, "-I", "-S", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=limits.wall_seconds)
    if done.stdout.split("\n") != [PRINTED] * calls + [""]:
        raise SystemExit(f"a process of {calls} calls printed {done.stdout!r}")
