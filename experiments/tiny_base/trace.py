"""Run the generator's own programs and write down what happened, line by line.

Only text that ``grammar.py`` made is executed here: this is the corpus builder, not the verifier. A line of a trace is
the executed source line and its effect, ``x += y  # 5 + 3; x = 8``: copying the line makes the program counter explicit,
which a small model needs (a list of bare values is learned far worse).
"""

import ast
import copy
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
    """Tell whether a value stays inside the small ranges of the embedded domain."""
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
        self.templates: dict[int, list[str]] = {}

    def template(self, line: int) -> list[str]:
        if line not in self.templates:
            self.templates[line] = _template(self.statements[line])
        return self.templates[line]

    def run(self, arguments: tuple[object, ...]) -> Run:
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
        self.pending: dict[int, tuple[int, str]] = {}  # frame id -> line that is being executed, its expression with values put in

    def on_call(self, frame: FrameType, event: str, argument: object):
        if frame.f_code.co_name == "g":
            values = ", ".join(f"{name} = {value!r}" for name, value in frame.f_locals.items())
            self.trace.append((self.program.lines[frame.f_lineno - 1], values))
        return self.on_line if frame.f_code.co_name in ("f", "g") else None

    def on_line(self, frame: FrameType, event: str, argument: object):
        if event == "line" and self.pending.get(id(frame), (0, ""))[0] == frame.f_lineno:
            return self.on_line  # from Python 3.12 on, a comprehension reports its own line once more for every element
        self.events += 1
        if self.events > MAX_EVENTS or not all(in_range(value) for value in frame.f_locals.values()):
            raise Rejected("too long or out of range")
        if event == "line":
            self._finish(frame, frame.f_lineno, None)
            self.pending[id(frame)] = frame.f_lineno, _with_values(self.program.template(frame.f_lineno), frame.f_locals)
        elif event == "return":
            self._finish(frame, None, argument)
        return self.on_line

    def _finish(self, frame: FrameType, next_line: int | None, returned: object) -> None:
        line, expression = self.pending.pop(id(frame), (0, ""))
        if line:
            effect = _effect(self.program.statements[line], frame.f_locals, next_line, returned)
            self.trace.append((self.program.lines[line - 1], f"{expression}; {effect}" if expression else effect))


class _Marker(ast.NodeTransformer):
    """Marks the variables of an expression, but not in comprehensions, which bind names of their own."""

    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name(f"\0{node.id}\0")


def _template(node: ast.stmt) -> list[str]:
    """The expression that a statement evaluates, cut at its variables: text, name, text, …, text. Empty if it calculates nothing."""
    match node:
        case ast.AugAssign():
            expression: ast.expr | None = ast.BinOp(ast.Name(node.target.id), node.op, node.value)  # type: ignore[union-attr]
        case ast.Assign() | ast.Return():
            expression = node.value
        case ast.Expr(value=ast.Call(args=[argument])):
            expression = argument
        case ast.If() | ast.While():
            expression = node.test
        case _:
            return []
    parts = expression.elts if isinstance(expression, (ast.Tuple, ast.List)) else [expression]
    if all(part is None or isinstance(part, (ast.Name, ast.Constant)) for part in parts):
        return []
    return ast.unparse(_Marker().visit(copy.deepcopy(expression))).split("\0")  # type: ignore[arg-type]


def _with_values(template: list[str], values: dict[str, object]) -> str:
    """The expression with integers put in (``5 + 3`` for ``x += y``): reading variables and calculating are two small steps
    instead of one large one. Nothing where there is no integer to put in."""
    if not any(type(values.get(name)) is int for name in template[1::2]):
        return ""
    return "".join(str(values[part]) if index % 2 and type(values.get(part)) is int else part for index, part in enumerate(template))


def _effect(node: ast.stmt, values: dict[str, object], next_line: int | None, returned: object) -> str:
    if isinstance(node, ast.Return):
        return repr(returned)
    if isinstance(node, (ast.If, ast.While, ast.For)):
        inside = next_line is not None and node.body[0].lineno <= next_line <= (node.body[-1].end_lineno or 0)
        if not isinstance(node, ast.For):
            return str(inside)
        return _bound(node.target, values) if inside else "end"
    if isinstance(node, ast.Assign):
        return _bound(node.targets[0], values)
    if isinstance(node, ast.AugAssign):
        return _bound(node.target, values)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        return _bound(node.value.func.value, values)
    return "ok"


def _bound(target: ast.expr, values: dict[str, object]) -> str:
    """``x = 3`` for every name that a statement set. The name stands right before its value: reading a variable is then one
    look back for its name, whatever the line looked like that set it."""
    part = target.value if isinstance(target, ast.Subscript) else target
    names = [node.id for node in ast.walk(part) if isinstance(node, ast.Name)]
    return ", ".join(f"{name} = {values[name]!r}" for name in names)
