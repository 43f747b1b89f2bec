"""Every program in a process of its own: what a verifier without a pool does.

The programs are model text, and here no sandbox holds them. So they run only after populora's sandbox has judged them, and only if
they name nothing but their own variables, plain built-in functions and methods of values. What is left out is counted, and costs
this arm nothing. Interpreters start without site-packages, the fastest way there is.
"""

from __future__ import annotations

import builtins
import math
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from populora.sandbox.protocol import Job, Limits, Verdict
from populora.types import VerdictKind

Judged = tuple[Job, Verdict]

NAME = re.compile(r"[^\W\d]\w*")
ATTRIBUTE = re.compile(r"\.\s*([^\W\d]\w*)")
FUNCTIONS = frozenset(
    "abs all any bool chr dict divmod enumerate filter float frozenset int isinstance len list map max min ord pow range reversed round "
    "set sorted str sum tuple zip True False None".split()
)
METHODS = frozenset(
    "add append clear copy count difference discard endswith extend find get index insert intersection isalpha isdigit islower isupper "
    "items join keys lower lstrip pop popitem remove replace reverse rstrip setdefault sort split startswith strip swapcase title union "
    "update upper values zfill".split()
)
STATEMENTS = frozenset("import from class with async await global nonlocal try del yield".split())
SCRIPT = "import resource as r\nfor kind, most in ((r.RLIMIT_CPU, {cpu}), (r.RLIMIT_AS, {memory}), (r.RLIMIT_FSIZE, 0)):\n"
SCRIPT += "    r.setrlimit(kind, (most, most))\ndel r, kind, most\n{program}\n{calls}\n"


def programs(judged: Sequence[Judged]) -> tuple[list[Judged], int]:
    """What the sandbox executed and this machine can, and how many others it executed."""
    executed = [one for one in judged if one[0].mode == "run"]
    kept = [one for one in executed if harmless(*one)]
    return kept, len(executed) - len(kept)


def harmless(job: Job, verdict: Verdict) -> bool:
    """Whether the program ended by itself in the sandbox and names nothing that reaches beyond its own values."""
    text = "\n".join((job.program, *job.texts))
    names, attributes = set(NAME.findall(text)), set(ATTRIBUTE.findall(text))
    ended = verdict.kind in (VerdictKind.OK, VerdictKind.ERROR)
    beyond = (names & set(dir(builtins)) - FUNCTIONS) | (names & STATEMENTS) | (attributes - METHODS)
    return ended and text.isascii() and "__" not in text and not beyond  # not ASCII: a name may stand for another


def run_all(judged: Sequence[Judged], workers: int, limits: Limits) -> None:
    """One process a program, ``workers`` at a time. Stops if one gives other values than the sandbox saw."""
    with ThreadPoolExecutor(workers) as threads:
        printed = threads.map(lambda one: run(one[0], limits), judged)
        for (job, verdict), lines in zip(judged, printed, strict=True):
            check(job, verdict, lines)


def run(job: Job, limits: Limits) -> list[str]:
    """What the program's ``f`` returns for each text, as far as it comes."""
    calls = "\n".join(f"print(repr(f({text})))" for text in job.texts)
    script = SCRIPT.format(cpu=math.ceil(limits.cpu_seconds), memory=limits.memory_mb << 20, program=job.program, calls=calls)
    command = [sys.executable, "-I", "-S", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limits.wall_seconds)
    return done.stdout.splitlines()


def check(job: Job, verdict: Verdict, lines: list[str]) -> None:
    """Sets come in any order and infinity has another literal in the sandbox: those are not compared."""
    expected = [value.literal for value in verdict.values]
    comparable = verdict.ok and not verdict.doubtful and not any("1e999" in literal for literal in expected)
    if comparable and lines != expected:
        raise SystemExit(f"a process of its own gave {lines}, the sandbox {expected}, for {job.texts} in\n{job.program}")
