"""Arguments of public benchmarks that are expressions: ``range(3)``, ``'a b'.split()``, ``lambda x: x < 2``, a name of the program.

CRUXEval has twelve of them among its 800 inputs. What is accepted has no names but the program's own (never ``f``) and a few pure
built-in ones, and no attribute through which an argument could reach the interpreter. Training accepts literals only.
"""

import ast
import builtins
from typing import Any

PURE = (
    "abs bool bytes chr complex dict enumerate filter float frozenset int len list map max min ord range reversed set sorted str sum "
    "tuple zip"
).split()

_NODES = (
    ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp,
    ast.Subscript, ast.Slice, ast.Call, ast.keyword, ast.Starred, ast.Lambda, ast.arguments, ast.arg, ast.Name, ast.Attribute,
    ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context,
)  # fmt: skip
_TELLING = ("format", "format_map")
"""Methods of strings that read attributes by name."""


def is_pure(node: ast.AST) -> bool:
    """Whether the expression stays within the accepted subset."""
    return all(isinstance(part, _NODES) and _is_harmless(part) for part in ast.walk(node))


def _is_harmless(node: ast.AST) -> bool:
    name = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "arg", None) or ""
    return not name.startswith("_") and name not in _TELLING


def evaluate(node: ast.expr, program: dict[str, Any]) -> Any:
    """The value of a pure expression among the names of ``program``. Raises what the expression raises."""
    names = {name: value for name, value in program.items() if not name.startswith("_") and name != "f"}
    names["__builtins__"] = {name: getattr(builtins, name) for name in PURE}
    code = compile(ast.fix_missing_locations(ast.Expression(node)), "<arguments>", "eval", dont_inherit=True)
    return eval(code, names)  # noqa: S307 - in a child, behind the jail
