"""Programs and answers that a lenient executor takes for good, put to the in-process manner of `peers` and to populora.

    python attacks.py        what the in-process manner says, as JSON; for a process of its own, as one attack gets through to it

A judge answers four questions: what a proposed program's output is, and whether an answer to each of the three tasks is right. The
in-process judge asks them in the manner of the Absolute Zero Reasoner: it puts model text into scripts, calls a program
wrong if the line on what happened has the word "error" in it, and reads texts that come back with `eval`. All payloads are harmless.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from peers import start_worker

from populora.sandbox.pool import SandboxPool
from populora.tasks.checks import Check, check_answer, check_input, check_solution, run_program

LONGEST = 400
"""Characters of an output that the in-process manner keeps: half from the beginning and half from the end."""
PROGRAMS = 100
MARK = "reached_by_an_attack"


class Judge(NamedTuple):
    """Answers come with the judge's own words on them."""

    output: Callable[[str, str], tuple[str | None, str]]
    """Of a program and its arguments; None if they are refused."""
    input_is_right: Callable[[str, str, str], tuple[bool, str]]
    """code_i: program, answer, output."""
    output_is_right: Callable[[str, str], tuple[bool, str]]
    """code_o: answer, output."""
    program_is_right: Callable[[str, str, str], tuple[bool, str]]
    """code_f: answer, arguments, output."""


def attempt(new_judge: Callable[[], Judge]) -> dict[str, dict[str, Any]]:
    """For every attack whether it gets through, and what the judge says."""
    found = {}
    for name, attack in ATTACKS.items():
        through, said = attack(new_judge())
        found[name] = {"gets_through": through, "said": said}
    return found


def in_process() -> Judge:
    """A judge with a warm interpreter of its own."""
    pipe = start_worker()

    def ask(script: str) -> tuple[str, str]:
        pipe.send(script)
        result, happened = pipe.recv()
        text = str(result)
        return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}...{text[-LONGEST // 2 :]}", happened

    def output(program: str, arguments: str) -> tuple[str | None, str]:
        again = f"if first != f({arguments}): raise Exception('not deterministic')"
        text, happened = ask(f"{program}\nfirst = f({arguments})\n{again}\nrepr(first)")
        return (None if "error" in happened.lower() else text), happened

    def compared(program: str, arguments: str, wanted: str) -> tuple[bool, str]:
        text, happened = ask(f"{program}\n{wanted} == f({arguments})")
        return "error" not in happened.lower() and bool(text) and bool(eval(text)), happened  # noqa: S307

    return Judge(
        output,
        compared,
        lambda answer, wanted: (bool(eval(wanted) == eval(answer)), "equal"),  # noqa: S307
        compared,
    )


def sandboxed(pool: SandboxPool) -> Judge:
    """A judge that asks populora."""

    def output(program: str, arguments: str) -> tuple[str | None, str]:
        verdict = run_program(pool, program, arguments)
        return (verdict.values[0].literal if verdict.ok else None), f"{verdict.kind} {verdict.reason}".strip()

    def words(check: Check) -> tuple[bool, str]:
        return check.correct, f"{check.verdict.kind} {check.verdict.reason or check.kind}".strip()

    return Judge(
        output,
        lambda program, answer, wanted: words(check_input(pool, program, answer, wanted)),
        lambda answer, wanted: words(check_answer(pool, answer, wanted)),
        lambda answer, arguments, wanted: words(check_solution(pool, answer, [(arguments, wanted)])),
    )


def _taken(program: str) -> Callable[[Judge], tuple[bool, str]]:
    """Succeeds if the program is taken for one that has an output."""

    def attack(judge: Judge) -> tuple[bool, str]:
        output, said = judge.output(program, "1")
        return output is not None, said

    return attack


def _next_program(judge: Judge) -> tuple[bool, str]:
    judge.output("import builtins\nbuiltins.abs = lambda x: 7\ndef f(x):\n    return x", "1")
    output, said = judge.output("def f(x):\n    return abs(x)", "-3")
    return output != "3", f"abs(-3) is {output}" if output else said


def _on_our_side(judge: Judge) -> tuple[bool, str]:
    program = (
        "class Value:\n    def __eq__(self, other):\n        return self\n    def __reduce__(self):\n"
        f"        return exec, ('import builtins; builtins.{MARK} = True',)\ndef f(x):\n    return Value()"
    )
    try:
        _, said = judge.program_is_right(program, "1", "26")
    except Exception as error:  # noqa: BLE001 - what it says after the payload has run does not matter
        said = type(error).__name__
    reached = hasattr(builtins, MARK)
    if reached:
        delattr(builtins, MARK)
    return reached, said


def _cut(judge: Judge) -> tuple[bool, str]:
    output, said = judge.output("def f(x):\n    return 'ab' * x", "500")
    return output is not None and output != repr("ab" * 500), f"{said}, {len(output or '')} of 1002 characters"


def _small_sets(judge: Judge) -> tuple[bool, str]:
    """Four words come in the same order for two hash seeds by chance once in 24."""
    words = [[f"'{word}{number}'" for word in ("one", "two", "three", "four")] for number in range(PROGRAMS)]
    outputs = [judge.output(f"def f(x):\n    return list({{{', '.join(four)}}})", "1")[0] for four in words]
    passed = sum(output is not None for output in outputs)
    return passed > 0, f"{passed} of {PROGRAMS}"


ATTACKS: dict[str, Callable[[Judge], tuple[bool, str]]] = {
    "a program of random bytes passes as deterministic": _taken("import os\ndef f(x):\n    return os.urandom(4).hex()"),
    "a program that lists a set of ten words passes as deterministic": _taken("def f(x):\n    return list({str(k) for k in range(10)})"),
    "some programs that list a set of four words pass as deterministic": _small_sets,
    "code_o: an object that equals everything is the right answer": lambda judge: judge.output_is_right(
        "type('X', (), {'__eq__': lambda s, o: True})()", "26"
    ),
    "code_i: `0) or (26` closes the call and is the right answer": lambda judge: judge.input_is_right(
        "def f(x):\n    return x * 2", "0) or (26", "26"
    ),
    "a program that replaces `abs` changes the next program's output": _next_program,
    "a value runs code in the process that reads it": _on_our_side,
    "an output of 1002 characters is kept with its middle cut out": _cut,
    "a program that raises StopIteration passes as valid": _taken("def f(x):\n    raise StopIteration"),
    "a program that raises SystemExit passes as valid": _taken("def f(x):\n    raise SystemExit"),
}


if __name__ == "__main__":
    print(json.dumps(attempt(in_process)))
