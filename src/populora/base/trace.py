"""Run the generator's own programs and write down what happened, line by line.

Only text that ``grammar.py`` made is executed here: this is the corpus builder, not the verifier. A line of a trace is
the executed source line and its effect, ``x = x + 3  # 8``: copying the line makes the program counter explicit, which
a small model needs (a list of bare values is learned far worse).
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from types import CodeType, FrameType

MAX_EVENTS, MAX_INT, MAX_ITEMS, MAX_CHARS = 60, 30, 6, 8
BUILTINS = {
    name: __builtins__[name] if isinstance(__builtins__, dict) else getattr(__builtins__, name)
    for name in ("abs", "enumerate", "len", "list", "max", "min", "range", "sorted", "str", "sum", "tuple")
}


class Rejected(Exception):
    """The program raised, ran too long or left the value ranges that the tiny base knows."""


@dataclass(frozen=True)
class Run:
    """One execution: the returned value and the trace, as (line text, effect text) in order of execution."""

    value: object
    trace: tuple[tuple[str, str], ...]


def in_range(value: object) -> bool:
    """Whether a value stays inside the small ranges of the embedded domain."""
    if isinstance(value, int):
        return abs(value) <= MAX_INT
    if isinstance(value, str):
        return len(value) <= MAX_CHARS
    if isinstance(value, dict):
        return len(value) <= 4 and all(in_range(key) and in_range(item) for key, item in value.items())
    return isinstance(value, (list, tuple)) and len(value) <= MAX_ITEMS and all(in_range(item) for item in value)


class Program:
    """A compiled program of the grammar that can be run and traced many times."""

    def __init__(self, source: str):
        self.source = source
        self.lines = [line.strip() for line in source.splitlines()]
        tree = ast.parse(source)
        self.statements = {node.lineno: node for node in ast.walk(tree) if isinstance(node, ast.stmt)}
        self.code: CodeType = compile(tree, "<program>", "exec")

    def run(self, arguments: tuple[object, ...], traced: bool = True) -> Run:
        """Execute ``f(*arguments)``. Raises `Rejected`."""
        namespace: dict[str, object] = {"__builtins__": BUILTINS}
        exec(self.code, namespace)  # noqa: S102 - source comes from our own grammar, never from a model
        recorder = _Recorder(self)
        arguments = tuple(_copied(value) for value in arguments)
        sys.settrace(recorder.on_call)
        try:
            value = namespace["f"](*arguments)  # type: ignore[operator]
        except (Rejected, ArithmeticError, AttributeError, LookupError, TypeError, ValueError, NameError, RuntimeError) as error:
            raise Rejected(str(error)) from error
        finally:
            sys.settrace(None)
        if not in_range(value):
            raise Rejected("value out of range")
        return Run(_copied(value), tuple(recorder.trace))


def _copied(value: object) -> object:
    return type(value)(value) if isinstance(value, (list, dict)) else value  # type: ignore[call-arg]


class _Recorder:
    def __init__(self, program: Program):
        self.program, self.trace, self.events = program, [], 0
        self.pending: dict[int, int] = {}  # frame id -> line that is being executed

    def on_call(self, frame: FrameType, event: str, argument: object):
        return self.on_line if frame.f_code.co_name in ("f", "g") else None

    def on_line(self, frame: FrameType, event: str, argument: object):
        self.events += 1
        if self.events > MAX_EVENTS or not all(in_range(value) for value in frame.f_locals.values()):
            raise Rejected("too long or out of range")
        if event == "line":
            self._finish(frame, frame.f_lineno, None)
            self.pending[id(frame)] = frame.f_lineno
        elif event == "return":
            self._finish(frame, None, argument)
        return self.on_line

    def _finish(self, frame: FrameType, next_line: int | None, returned: object) -> None:
        line = self.pending.pop(id(frame), None)
        if line is None:
            return
        text, node, values = self.program.lines[line - 1], self.program.statements[line], frame.f_locals
        self.trace.append((text, _effect(node, values, next_line, returned)))


def _effect(node: ast.stmt, values: dict[str, object], next_line: int | None, returned: object) -> str:
    if isinstance(node, ast.Return):
        return repr(returned)
    if isinstance(node, (ast.If, ast.While, ast.For)):
        inside = next_line is not None and node.body[0].lineno <= next_line <= (node.body[-1].end_lineno or 0)
        if not isinstance(node, ast.For):
            return str(inside)
        names = [target.id for target in ast.walk(node.target) if isinstance(target, ast.Name)]
        return ", ".join(repr(values[name]) for name in names) if inside else "end"
    if isinstance(node, ast.Assign):
        target = node.targets[0]
        if isinstance(target, ast.Tuple):
            return ", ".join(repr(values[name.id]) for name in target.elts if isinstance(name, ast.Name))
        name = target.value if isinstance(target, ast.Subscript) else target
    elif isinstance(node, ast.AugAssign):
        name = node.target
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        name = node.value.func.value
    else:
        return "ok"
    return repr(values[name.id])  # type: ignore[union-attr]
