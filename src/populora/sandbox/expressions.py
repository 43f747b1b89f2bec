"""Evaluate arguments that are pure expressions: ``range(3)``, ``'a b'.split()``, ``lambda x: x < 2``, a name of the program.

Twelve of CRUXEval's 800 inputs are. Accepted names are a few pure built-ins and copies of the program's own plain values, accepted
attributes are the methods of plain values: an argument can neither reach the interpreter nor change the program. Training accepts
literals only.
"""

import ast
import builtins
import copy
from collections.abc import Callable
from typing import Any

PURE = (
    "abs bool bytes chr complex dict enumerate filter float frozenset int len list map max min ord range reversed set sorted str sum "
    "tuple zip"
).split()
METHODS = frozenset(
    "split rsplit splitlines join strip lstrip rstrip upper lower title capitalize swapcase replace zfill ljust rjust center count index "
    "find startswith endswith encode decode isdigit isalpha reverse sort append extend insert pop copy keys values items get union".split()
)

_NODES = (
    ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp,
    ast.Subscript, ast.Slice, ast.Call, ast.keyword, ast.Starred, ast.Lambda, ast.arguments, ast.arg, ast.Name, ast.Attribute,
    ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context,
)  # fmt: skip


def is_pure(node: ast.AST) -> bool:
    """Return True if the expression stays within the accepted subset."""
    return all(isinstance(part, _NODES) and (not isinstance(part, ast.Attribute) or part.attr in METHODS) for part in ast.walk(node))


def evaluate(node: ast.expr, program: dict[str, Any], is_plain: Callable[[Any], bool]) -> Any:
    """Evaluate a pure expression with copies of the plain values of ``program``. Raises what the expression raises."""
    names = {name: copy.deepcopy(value) for name, value in program.items() if is_plain(value)}
    names["__builtins__"] = {name: getattr(builtins, name) for name in PURE}
    code = compile(ast.fix_missing_locations(ast.Expression(node)), "<arguments>", "eval", dont_inherit=True)
    return eval(code, names)  # noqa: S307 - in a child, behind the jail
