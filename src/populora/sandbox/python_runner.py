"""The runner of Python: programs with a function ``f``, argument lists, literals. Standard library only.

The trainer writes values back from their trees (`populora.sandbox.values`), so that a program that forges its reply cannot show one value
and compare as another. Hence there is no ``write_inputs`` or ``write_output``.
"""

import ast
import gc
import opcode
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

from populora.sandbox import complexity, expressions
from populora.sandbox.runner import Refused
from populora.sandbox.trees import MAX_DEPTH, is_plain

_SCALARS = (type(None), bool, int, float, complex, str, bytes)
_SET_OPERATIONS = {opcode.opmap[name] for name in ("BUILD_SET", "SET_ADD", "SET_UPDATE")}
_GET_ITER, _BINARY = opcode.opmap["GET_ITER"], opcode.opmap["BINARY_OP"]
_CHANCE = frozenset(
    "set frozenset hash id object exec eval compile getattr globals vars __import__ import_module __hash__ __builtins__ f_builtins "
    "__base__ __bases__ __mro__ __subclasses__ random urandom getrandom secrets uuid time timeit datetime times numpy threading "
    "ctypes".split()
)
_VIEWS = frozenset(("keys", "items"))
_UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)


def load(program: str, rules: Sequence[str], accept_expressions: bool = False) -> "Call":
    """Compile a program. ``rules`` are banned imports: a word bans every import with that component, ``a.b`` also the attribute.

    With ``accept_expressions`` arguments may be pure expressions, too (`populora.sandbox.expressions`).
    """
    return Call(_compiled(program, rules), accept_expressions)


class Call:
    """Calls the ``f`` of a program. Its top level is executed again for each input text: what one input leaves behind in the program is not
    there for the next one."""

    def __init__(self, code: types.CodeType, accept_expressions: bool) -> None:
        self._code, self._accept_expressions = code, accept_expressions
        self._arguments: dict[str, ast.expr] = {}
        self._loaded: tuple[types.ModuleType, Any] | None = None
        self.doubtful = _is_doubtful(code)

    def __call__(self, text: str, repetition: int) -> Any:
        """Return ``f(<text>)``. The arguments are made anew for every call."""
        if text not in self._arguments:
            self._arguments[text] = self._checked(text)
        if repetition == 0 and self._loaded:  # collected, because its functions hold it: a large table would count once for each input
            self._loaded = None
            sys.modules.pop("program", None)
            gc.collect()
        module, entry = self._executed()
        return entry(*_evaluated(self._arguments[text], module))

    def _executed(self) -> tuple[types.ModuleType, Any]:
        if self._loaded is None:
            module = types.ModuleType("program")
            sys.modules["program"] = module
            exec(self._code, module.__dict__)  # noqa: S102 - this is the place where untrusted programs run, behind the jail
            self._loaded = module, module.__dict__.get("f")
            if not callable(self._loaded[1]):
                raise Refused("no_entry_point")
        return self._loaded

    def _checked(self, text: str) -> ast.expr:
        """Parse arguments: literals, or pure expressions where they are accepted."""
        node = _arguments(text)
        self.doubtful = self.doubtful or _has_set(node)
        try:
            _evaluate(node)
        except Refused:
            if not self._accept_expressions or not expressions.is_pure(node):
                raise
        return node


def _evaluated(node: ast.expr, module: types.ModuleType) -> Any:
    try:
        return _evaluate(node)
    except Refused:
        return expressions.evaluate(node, module.__dict__, is_plain)


def parse_inputs(text: str) -> tuple[Any, ...]:
    """Read an argument list of literals."""
    return _evaluate(_arguments(text))


def parse_output(text: str) -> Any:
    """Read one literal."""
    return _evaluate(_literal(text))


def measure(program: str) -> tuple[list[int], str]:
    """Compute the four metrics of `populora.sandbox.complexity`, and the text that identifies the program."""
    try:
        return [*complexity.measure(program)], complexity.normal_form(program)
    except Exception as error:
        raise Refused("syntax") from error


def _has_set(node: ast.expr) -> bool:
    return any(isinstance(part, ast.Set | ast.Call) for part in ast.walk(node))


def _is_doubtful(code: types.CodeType) -> bool:
    """Return True if the program makes or walks over sets or names a source of chance: agreement of two processes may then be luck."""
    codes = list(_with_inner(code))
    names = set().union(*(part.co_names for part in codes))
    apart = not _VIEWS.isdisjoint(names) and not all(_combinations(part).isdisjoint(_COMBINING_APART) for part in codes)
    return apart or not _CHANCE.isdisjoint(names) or any(map(_has_set_order, codes))


def _has_set_order(code: types.CodeType) -> bool:
    """Return True if this part of a program makes or walks over sets."""
    used, constants = set(code.co_code[::2]), [type(constant) for constant in code.co_consts]
    walks = frozenset in constants and _GET_ITER in used  # `for x in {1, 2}` keeps the set as a constant
    views = not _VIEWS.isdisjoint(code.co_names) and not _combinations(code).isdisjoint(_COMBINING)  # `a.keys() & b.keys()` is a set
    return walks or views or not _SET_OPERATIONS.isdisjoint(used)


def _with_inner(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a program's code and that of its functions and classes."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _with_inner(constant)


def _combinations(code: types.CodeType) -> set[int]:
    """Collect the binary operators in the code, by their numbers in the bytecode."""
    return {operator for name, operator in zip(code.co_code[::2], code.co_code[1::2], strict=True) if name == _BINARY}


def _numbers(*signs: str) -> set[int]:
    return set().union(*(_combinations(compile(f"a {sign} b", "", "exec")) for sign in signs))


_COMBINING_APART = _numbers("&", "|", "^", "&=", "|=", "^=")
"""Operators that may combine a view which another part of the program made. Subtracting is too common to doubt every program with it."""
_COMBINING = _COMBINING_APART | _numbers("-", "-=")


def _compiled(program: str, banned: Sequence[str]) -> types.CodeType:
    """Compile the program. The tree is built only where there may be an import: it costs more than all the rest."""
    try:
        if banned and ("import" in program or not program.isascii()) and _imports_banned(ast.parse(program), banned):
            raise Refused("banned_import")
        return compile(program, "<program>", "exec", dont_inherit=True)
    except _UNPARSABLE as error:
        raise Refused("syntax") from error


def _imports_banned(tree: ast.Module, banned: Sequence[str]) -> bool:
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                names.update(alias.name for alias in aliases)
            case ast.ImportFrom(module=module, names=aliases):
                names.update(f"{module or ''}.{alias.name}" for alias in aliases)
            case ast.Call(func=ast.Name(id="__import__") | ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name)), *_]):
                names.add(name)
            case ast.Attribute(value=ast.Name(id=owner), attr=attribute):
                names.add(f"{owner}.{attribute}" if f"{owner}.{attribute}" in banned else "")
    return any(word in name.split(".") or f"{name}.".startswith(f"{word}.") for name in names for word in banned)


def _literal(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except _UNPARSABLE as error:
        raise Refused("not_a_literal") from error


def _arguments(text: str) -> ast.expr:
    """Parse a list of arguments as a tuple. The text must stay inside the call's own parentheses."""
    match _literal(f"f({text}\n)"):
        case ast.Call(func=ast.Name(id="f"), args=arguments, keywords=[]):
            return ast.Tuple(arguments, ast.Load())
    raise Refused("not_a_literal")


def _evaluate(node: ast.expr, depth: int = 0) -> Any:
    """Evaluate a literal, as `ast.literal_eval` does but with ``frozenset({…})`` and without ``...``."""
    if depth > MAX_DEPTH:
        raise Refused("unsupported_value")
    try:
        match node:
            case ast.Constant(value=value) if type(value) in _SCALARS:
                return value
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=ast.Constant(value=int() | float() | complex() as number)):
                if type(number) is not bool:
                    return -number if isinstance(sign, ast.USub) else number
            case ast.BinOp(op=ast.Add() | ast.Sub() as sign, left=left, right=ast.Constant(value=complex() as imaginary)):
                real = _evaluate(left, depth + 1)
                if type(real) in (int, float):
                    return real + imaginary if isinstance(sign, ast.Add) else real - imaginary
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                kind = {ast.List: list, ast.Tuple: tuple, ast.Set: set}[type(node)]
                return kind([_evaluate(item, depth + 1) for item in items])
            case ast.Dict(keys=keys, values=values) if None not in keys:
                return {_evaluate(key, depth + 1): _evaluate(value, depth + 1) for key, value in zip(keys, values, strict=True) if key}
            case ast.Call(func=ast.Name(id="set" | "frozenset" as name), args=[], keywords=[]):
                return set() if name == "set" else frozenset()
            case ast.Call(func=ast.Name(id="frozenset"), args=[ast.Set() as inner], keywords=[]):
                return frozenset(_evaluate(inner, depth))
    except TypeError as error:  # an unhashable element
        raise Refused("not_a_literal") from error
    raise Refused("not_a_literal")
