"""LiveCodeBench inside the sandbox: a program's outputs on given inputs, by standard input or by calls. Loaded as ``harness``.

The outputs leave the sandbox and are compared outside (`populora.evals.graders.livecodebench`): a program knows only its inputs.
Each test has its own time, in CPU seconds; the first failure ends the work, as in the official grader.

As there, a program that reads standard input becomes the body of a function, but for its imports: ``return`` ends it, and ``global`` finds
none of the names that it assigns outside of functions.
"""

import ast
import builtins
import io
import json
import math
import sys

import numpy
from harness import Clock  # clock.py

_NAMES = (
    "string re datetime collections heapq bisect copy math random statistics itertools functools operator io sys json builtins typing"
).split()
PREAMBLE = "".join([*(f"from {name} import *\n" for name in _NAMES), *(f"import {name}\n" for name in _NAMES)])
"""The imports that every solution gets, as in the official grader."""
_PREAMBLE = compile(PREAMBLE, "<preamble>", "exec")
RECURSION = 50_000


def f(request):
    """Turn the JSON of ``{"code", "function", "inputs", "seconds"}`` into that of ``{"outputs", "failure"}``, up to the first failure."""
    question = json.loads(request)
    sys.setrecursionlimit(RECURSION)
    clock, outputs = Clock(math.inf), []
    try:
        with clock.limit(question["seconds"]):
            call = _by_call(question["code"], question["function"]) if question["function"] else _by_stdin(question["code"])
        for text in question["inputs"]:
            with clock.limit(question["seconds"]):
                outputs.append(call(text))
    except BaseException as error:  # the solution's own failure, whatever it raises, is its result
        return json.dumps({"outputs": outputs, "failure": "timeout" if clock.expired else type(error).__name__})
    return json.dumps({"outputs": outputs, "failure": ""})


class _Output(io.TextIOWrapper):
    """Standard output that can be read after a program closed it."""

    def close(self):
        self.flush()


def _names(name):
    """Make a namespace with the preamble, run by itself so that a solution may begin with ``from __future__``."""
    namespace = {"__name__": name}
    exec(_PREAMBLE, namespace)
    return namespace


def _as_function(code):
    """Parse a program into its imports and a function ``solution`` of its other statements, without a last ``if __name__ == …``."""
    tree = ast.parse(code)
    statements = tree.body
    if statements and isinstance(statements[-1], ast.If) and ast.unparse(statements[-1].test) == "__name__ == '__main__'":
        statements = statements[:-1] + statements[-1].body
    function = ast.parse("def solution(): pass").body[0]
    imports = [statement for statement in statements if isinstance(statement, (ast.Import, ast.ImportFrom))]
    function.body = [statement for statement in statements if statement not in imports] or function.body
    tree.body = [*imports, function]
    return tree


def _by_stdin(code):
    program = compile(_as_function(code), "<solution>", "exec")

    def call(text):
        stdin, stdout = io.TextIOWrapper(io.BytesIO(text.encode())), _Output(io.BytesIO(), write_through=True)
        kept = sys.stdin, sys.stdout, builtins.open
        sys.stdin, sys.stdout = stdin, stdout
        builtins.open = lambda *_, **__: io.StringIO(text)  # as upstream: programs open file 0, or /dev/stdin
        try:
            namespace = _names("solution")
            exec(program, namespace)
            namespace["solution"]()
        except SystemExit:
            pass  # a program may end itself: what it printed counts
        finally:
            sys.stdin, sys.stdout, builtins.open = kept
        return stdout.buffer.getvalue().decode(errors="replace")

    return call


def _by_call(code, name):
    namespace = _names("solution")
    exec(compile(code, "<solution>", "exec"), namespace)
    function = getattr(namespace["Solution"](), name) if "Solution" in namespace else namespace[name]
    return lambda text: json.dumps(_json(function(*[json.loads(line) for line in text.split("\n")]), outermost=True))


def _json(value, outermost=False):
    """Convert to JSON for comparison. A tuple inside, or a key that is no string, is equal to nothing in JSON."""
    if isinstance(value, numpy.generic):
        return value.item()
    if isinstance(value, list) or (outermost and isinstance(value, tuple)):
        return [_json(part) for part in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _json(part) for key, part in value.items()}
    return {"": repr(type(value))} if isinstance(value, (tuple, dict)) else value
