"""Random typed Python programs: what the tiny base learns to read, run and write.

A program is grown from a *budget* of statements (1 to 8). It is real Python in ``ast.unparse`` style: helper functions,
branches, loops, comprehensions, strings, lists, dicts and tuples, so all four complexity measures can grow and shrink.
Nothing here is executed; ``trace.py`` does that and throws away what raises, loops or is constant.
"""

import numpy as np
from experiments.tiny_base.expressions import LETTERS, TYPE_OF, Scope, condition, int_atom, int_expr, int_operand, list_expr, str_expr

SIGNATURES = (
    ("x",), ("x", "y"), ("a",), ("a",), ("a", "x"), ("a", "b"), ("s",), ("s",), ("s", "x"), ("s", "t"), ("d",),
    ("d", "x"), ("a", "s"), ("x", "y", "z"),
)  # fmt: skip


def simple(scope: Scope, nested: bool) -> str:
    """One assignment-like statement. Inside a block only names that exist already, and no loop runs over, are assigned."""
    kinds = ["int"] * (4 if scope.free("int") or not nested else 0) + [
        kind for kind in ("list", "str") for _ in range(2) if scope.free(kind)
    ]
    kinds += ["dict"] if scope.free("dict") else []
    if not kinds:
        return "pass"
    kind = scope.pick(kinds)
    if kind == "int":
        return _assign_int(scope, nested)
    if kind == "dict":
        name = scope.pick(scope.free("dict"))
        scope.set(name)
        key = scope.pick(scope.loop_chars) if scope.loop_chars and scope.chance(0.8) else f"'{scope.pick(LETTERS)}'"
        value = f"{name}.get({key}, 0) + 1" if scope.loop_chars else int_atom(scope)
        return f"{name}[{key}] = {value}"
    if kind == "list":
        name = scope.pick(scope.free("list")) if nested else scope.fresh_or_old("list")
        source = name if nested else scope.pick(scope.have("list"))
        if name in scope.names and scope.chance(0.4 if not nested else 0.75):
            scope.set(name)
            return f"{name}.append({int_expr(scope)})"
        text = f"{name} = {list_expr(scope, source)}"
    else:
        name = scope.pick(scope.free("str")) if nested else scope.fresh_or_old("str")
        source = name if nested else scope.pick(scope.have("str"))
        if name in scope.names and scope.chance(0.3):
            scope.set(name)
            piece = scope.pick(scope.loop_chars) if scope.loop_chars else f"'{scope.pick(LETTERS)}'"
            return f"{name} += {piece}"
        text = f"{name} = {str_expr(scope, source)}"
    scope.set(name)
    return text


def _assign_int(scope: Scope, nested: bool) -> str:
    ints = scope.free("int")
    if len(ints) >= 2 and scope.chance(0.06):
        left, right = ints[0], ints[1]
        scope.set(left)
        scope.set(right)
        return f"{left}, {right} = ({right}, {int_expr(scope)})"
    name = scope.pick(ints) if nested else scope.fresh_or_old("int")
    if name in scope.names and scope.chance(0.55):
        operator = scope.pick(("+=", "+=", "+=", "-=", "*="))
        amount = str(scope.number(2, 3)) if operator == "*=" else (int_atom(scope) if scope.chance(0.35) else int_operand(scope))
        scope.set(name)
        return f"{name} {operator} {amount}"
    text = f"{name} = {int_expr(scope)}"
    scope.set(name)
    return text


def block(scope: Scope, budget: int, depth: int) -> tuple[list[str], int]:
    """Statements of one block and the budget that is left. ``depth`` 0 is the body of ``f``."""
    lines: list[str] = []
    size = budget if depth == 0 else min(budget, scope.number(1, 2))
    while size > 0 and budget > 0:
        if budget >= 2 and depth < 2 and scope.chance(0.5 if depth == 0 else 0.35):
            made, budget = _compound(scope, budget, depth)
        else:
            made, budget = [simple(scope, nested=depth > 0)], budget - 1
        lines += made
        size = budget if depth == 0 else size - 1
    return lines, budget


def _indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


def _compound(scope: Scope, budget: int, depth: int) -> tuple[list[str], int]:
    loops = not scope.loop_ints and not scope.loop_chars
    if not loops or scope.chance(0.5):
        return _branch(scope, budget, depth)
    return _loop(scope, budget, depth)


def _branch(scope: Scope, budget: int, depth: int) -> tuple[list[str], int]:
    lines = [f"if {condition(scope)}:"]
    body, budget = block(scope, budget - 1, depth + 1)
    lines += _indented(body or [simple(scope, nested=True)])
    if budget >= 2 and scope.chance(0.2):
        lines.append(f"elif {condition(scope)}:")
        body, budget = block(scope, budget - 1, depth + 1)
        lines += _indented(body or [simple(scope, nested=True)])
    if budget >= 1 and scope.chance(0.5):
        body, budget = block(scope, budget, depth + 1)
        lines += ["else:", *_indented(body)]
    return lines, budget


def _loop(scope: Scope, budget: int, depth: int) -> tuple[list[str], int]:
    opening: list[str] = []
    if depth == 0 and not scope.have("int") and budget >= 3 and scope.chance(0.8):
        opening, budget = ["r = 0"], budget - 1
        scope.set("r")
    kinds = ["range"] * bool(scope.free("int") or depth == 0) + ["each"] * (4 * bool(scope.have("list")))
    kinds += ["chars"] * (4 * bool(scope.have("str"))) + ["items"] * (4 * bool(scope.have("dict")))
    kinds += ["while"] * (2 * bool(scope.free("int"))) + ["enumerate"] * bool(scope.have("list"))
    if not kinds:
        return [*opening, simple(scope, nested=True)], budget - 1
    head, tail, over = _loop_head(scope, scope.pick(kinds))
    scope.busy += over
    body, budget = block(scope, budget - 1, depth + 1)
    body = body or ([] if tail else [simple(scope, nested=True)])
    scope.loop_ints, scope.loop_chars = [], []
    del scope.busy[len(scope.busy) - len(over) :]
    if tail:
        scope.set(over[0])
    return [*opening, head, *_indented(body + tail)], budget


def _loop_head(scope: Scope, kind: str) -> tuple[str, list[str], list[str]]:
    """First line of a loop, the last lines of its body, and the names it runs over."""
    if kind == "range":
        scope.loop_ints = ["i"]
        return f"for i in range({scope.number(2, 4)}):", [], []
    if kind in ("each", "enumerate"):
        a = scope.pick(scope.have("list"))
        scope.loop_ints = ["v"] if kind == "each" else ["i", "v"]
        return (f"for v in {a}:" if kind == "each" else f"for i, v in enumerate({a}):"), [], [a]
    if kind == "chars":
        s, scope.loop_chars = scope.pick(scope.have("str")), ["c"]
        return f"for c in {s}:", [], [s]
    if kind == "items":
        d, scope.loop_ints, scope.loop_chars = scope.pick(scope.have("dict")), ["v"], ["c"]
        return f"for c, v in {d}.items():", [], [d]
    x = scope.pick(scope.free("int"))
    step = f"{x} -= {scope.number(2, 4)}" if scope.chance(0.6) else f"{x} //= 2"
    return f"while {x} > {scope.number(2, 6)}:", [step], [x]


def _result(scope: Scope) -> str:
    changed = scope.changed or scope.names
    last = changed[-1]
    if len(changed) >= 2 and scope.chance(0.3):
        other = changed[-2]
        kinds = (TYPE_OF[last], TYPE_OF[other])
        if kinds == ("int", "int"):
            return f"{last} {scope.pick(('+', '-', '*'))} {other}" if scope.chance(0.6) else f"({last}, {other})"
        if kinds[0] == kinds[1] and kinds[0] in ("list", "str"):
            return f"{last} + {other}"
        return f"({last}, {other})"
    kind = TYPE_OF[last]
    if kind == "int" and scope.chance(0.2):
        return scope.pick(
            (f"{last} > {scope.number(2, 9)}", f"[{last}, {int_atom(scope)}]", f"{last} * 2", f"{last} % {scope.number(3, 9)}")
        )
    if kind == "list" and scope.chance(0.2):
        return scope.pick((f"sum({last})", f"len({last})", f"tuple({last})"))
    if kind == "str" and scope.chance(0.15):
        return scope.pick((f"len({last})", f"{last}[::-1]", f"{last}.upper()"))
    if kind == "dict" and scope.chance(0.4):
        return scope.pick((f"sorted({last})", f"sum({last}.values())", f"list({last}.values())"))
    return last


def _helper(scope: Scope) -> list[str]:
    inner = Scope(scope.rng, ["m"])
    lines, _ = block(inner, 1, 1) if scope.chance(0.3) else ([], 0)
    result = int_expr(inner)
    if scope.chance(0.4):
        return ["def g(m):", f"    if {condition(inner)}:", f"        return {int_expr(inner)}", f"    return {result}", ""]
    return ["def g(m):", *_indented(lines), f"    return {result}", ""]


def random_program(rng: np.random.Generator, budget: int) -> str:
    """Source text of a random program with entry point ``f``; ``budget`` bounds its statements."""
    while "pass" in (source := _program(rng, budget)):  # a block that found nothing to change: draw again
        pass
    return source


def _program(rng: np.random.Generator, budget: int) -> str:
    scope = Scope(rng, [])
    lines: list[str] = []
    if budget >= 2 and scope.chance(0.16):
        lines, budget = _helper(scope), budget - 1
        scope.helpers = ["g"]
    signature = scope.pick(SIGNATURES)
    scope.names = list(signature)
    lines.append(f"def f({', '.join(signature)}):")
    if scope.chance(0.08) and scope.have("str") and budget >= 3:
        lines.append("    d = {}")
        scope.set("d")
        budget -= 1
    body, _ = block(scope, budget, 0)
    return "\n".join([*lines, *_indented(body), f"    return {_result(scope)}"])


def parameters(program: str) -> list[str]:
    """Parameter names of the entry point of a program of this grammar."""
    head = next(line for line in program.splitlines() if line.startswith("def f("))
    return head[len("def f(") : -len("):")].split(", ")


def random_value(rng: np.random.Generator, kind: str, size: int = 4) -> object:
    """A random argument of the type; ``size`` bounds the length of containers (1 to ``size`` elements, the longest is rarer)."""
    if kind == "int":
        return int(rng.integers(0, 10))
    length = min(int(rng.integers(1, size + 1)), int(rng.integers(1, size + 2)))
    if kind == "list":
        return [int(value) for value in rng.integers(0, 10, length)]
    letters = [LETTERS[int(index)] for index in rng.integers(0, len(LETTERS), length)]
    if kind == "str":
        return "".join(letters)
    return {letter: int(rng.integers(0, 10)) for letter in dict.fromkeys(letters[:3])}


def random_arguments(rng: np.random.Generator, program: str, size: int = 4) -> tuple[object, ...]:
    """Arguments for the entry point of a program of this grammar, typed by its parameter names."""
    return tuple(random_value(rng, TYPE_OF[name], size) for name in parameters(program))
