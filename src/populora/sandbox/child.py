"""The work of one forked child: run a program, parse literals, measure source. Standard library only.

The jail confines the program; nothing in this module does. Values leave as tagged trees (`populora.sandbox.values`).
"""

import ast
import builtins
import opcode
import sys
import types
from typing import Any

from populora.sandbox import complexity, expressions

MAX_DEPTH = 60
_SCALARS = (type(None), bool, int, float, complex, str, bytes)
_TAGS = (
    (int, "i"), (str, "str"), (bool, "bool"), (type(None), "None"), (float, "f"), (list, "l"), (tuple, "t"), (dict, "d"), (set, "s"),
    (frozenset, "z"), (bytes, "y"), (complex, "c"),
)  # fmt: skip
_SET_OPERATIONS = {opcode.opmap[name] for name in ("BUILD_SET", "SET_ADD", "SET_UPDATE")}
_GET_ITER, _BINARY = opcode.opmap["GET_ITER"], opcode.opmap["BINARY_OP"]
_CHANCE = frozenset(
    "set frozenset hash id exec eval compile getattr globals vars __import__ import_module __hash__ random urandom getrandom secrets uuid "
    "time datetime times numpy threading".split()
)
_VIEWS = frozenset(("keys", "items"))
_UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)


class JobError(Exception):
    """The verdict is ``error``; the text is its reason."""


def perform(job: dict[str, Any], calls: int, limits: dict[str, Any]) -> dict[str, Any]:
    """Do one job and return its result as JSON-ready data."""
    try:
        return {"run": _run, "parse": _parse, "measure": _measure}[job["mode"]](job, calls, limits)
    except JobError as refusal:
        return {"kind": "error", "reason": str(refusal)}
    except BaseException as error:  # noqa: BLE001 - the program's own failure, whatever it raises, is its result
        return {"kind": "error", "reason": _name(error)}


def _name(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "memory"
    nearest = next(kind for kind in type(error).__mro__ if getattr(builtins, kind.__name__, None) is kind)
    return f"exception:{nearest.__name__}"


def _run(job: dict[str, Any], calls: int, limits: dict[str, Any]) -> dict[str, Any]:
    code = _compiled(job["program"], job["banned_imports"])
    arguments = [_arguments(text) for text in job["texts"]]
    literal = [_is_literal(node, limits) for node in arguments]
    module = types.ModuleType("program")
    sys.modules["program"] = module
    exec(code, module.__dict__)  # noqa: S102 - this is the place where untrusted programs run, behind the jail
    entry = module.__dict__.get("f")
    if not callable(entry):
        raise JobError("no_entry_point")
    values: list[Any] = []
    for node, is_literal in zip(arguments, literal, strict=True):
        inputs = [_evaluate(node) if is_literal else expressions.evaluate(node, module.__dict__, _is_plain) for _ in range(calls)]
        trees = [_tag(entry(*values_of_call), [limits["max_output_chars"]]) for values_of_call in inputs]
        if any(_order_free(tree) != _order_free(trees[0]) for tree in trees[1:]):
            return {"kind": "rejected_nondeterministic"}
        values.append(trees[0])
    return {"kind": "ok", "values": values, "doubtful": any(map(_has_set, arguments)) or _is_doubtful(code)}


def _has_set(node: ast.expr) -> bool:
    return any(isinstance(part, ast.Set | ast.Call) for part in ast.walk(node))


def _is_doubtful(code: types.CodeType) -> bool:
    """Return True if the program makes or walks over sets or names a source of chance: agreement of two processes may then be luck."""
    used, kinds = set(code.co_code[::2]), [type(constant) for constant in code.co_consts]
    walks = frozenset in kinds and _GET_ITER in used  # `for x in {1, 2}` keeps the set as a constant
    views = not _VIEWS.isdisjoint(code.co_names) and not _combinations(code).isdisjoint(_COMBINING)  # `a.keys() & b.keys()` is a set
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    chance = walks or views or not _SET_OPERATIONS.isdisjoint(used) or not _CHANCE.isdisjoint(code.co_names)
    return chance or any(map(_is_doubtful, inner))


def _combinations(code: types.CodeType) -> set[int]:
    """Collect the binary operators in the code, by their numbers in the bytecode."""
    return {operator for name, operator in zip(code.co_code[::2], code.co_code[1::2], strict=True) if name == _BINARY}


_COMBINING = set().union(*(_combinations(compile(f"a {sign} b", "", "eval")) for sign in "&|^-"))


def _is_literal(node: ast.expr, limits: dict[str, Any]) -> bool:
    """Return True for literals, False for pure expressions where the limits allow them. Raises `JobError` for anything else."""
    try:
        _evaluate(node)
    except JobError:
        if not limits["expressions"] or not expressions.is_pure(node):
            raise
        return False
    return True


def _parse(job: dict[str, Any], calls: int, limits: dict[str, Any]) -> dict[str, Any]:
    nodes = [_arguments(text) if job["as_arguments"] else _literal(text) for text in job["texts"]]
    return {"kind": "ok", "values": [_tag(_evaluate(node), [2 * limits["max_source_chars"]]) for node in nodes]}


def _measure(job: dict[str, Any], calls: int, limits: dict[str, Any]) -> dict[str, Any]:
    try:
        measured = complexity.measure(job["program"])
        fingerprint = complexity.program_fingerprint(job["program"])
    except Exception as error:
        raise JobError("syntax") from error
    return {"kind": "ok", "measures": [measured.ast_depth, measured.cyclomatic, measured.loc, measured.variables, fingerprint]}


def _compiled(program: str, banned: list[str]) -> types.CodeType:
    """Compile the program. The tree is built only where there may be an import: it costs more than all the rest."""
    try:
        if banned and ("import" in program or not program.isascii()) and _imports_banned(ast.parse(program), banned):
            raise JobError("banned_import")
        return compile(program, "<program>", "exec", dont_inherit=True)
    except _UNPARSABLE as error:
        raise JobError("syntax") from error


def _imports_banned(tree: ast.Module, banned: list[str]) -> bool:
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
        raise JobError("not_a_literal") from error


def _arguments(text: str) -> ast.expr:
    """Parse a list of arguments as a tuple. The text must stay inside the call's own parentheses."""
    match _literal(f"f({text}\n)"):
        case ast.Call(func=ast.Name(id="f"), args=arguments, keywords=[]):
            return ast.Tuple(arguments, ast.Load())
    raise JobError("not_a_literal")


def _evaluate(node: ast.expr, depth: int = 0) -> Any:
    """Evaluate a literal, as `ast.literal_eval` does but with ``frozenset({…})`` and without ``...``."""
    if depth > MAX_DEPTH:
        raise JobError("unsupported_value")
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
        raise JobError("not_a_literal") from error
    raise JobError("not_a_literal")


def _tag(value: Any, room: list[float], depth: int = 0) -> Any:
    """Build the tagged tree of a value of exact built-in types. ``room`` holds the characters left for its literal."""
    kind = type(value)
    tag = next((tag for exact, tag in _TAGS if exact is kind), "")  # by identity: a metaclass may claim to be equal to all of them
    if depth > MAX_DEPTH or not tag or (tag in "fc" and value != value):
        raise JobError("unsupported_value")
    room[0] -= _least_length(value, tag)
    if room[0] < 0:
        raise JobError("output_limit")
    match tag:
        case "None" | "bool" | "str":
            return value
        case "i":
            return ["i", _digits(value)]
        case "f":
            return ["f", repr(value)]
        case "c":  # no literal has a part of -0.0
            return ["c", repr(value.real + 0.0), repr(value.imag + 0.0)]
        case "y":
            return ["y", value.hex()]
        case "d":
            return ["d", *(_tag(part, room, depth + 1) for pair in value.items() for part in pair)]
    return [tag, *(_tag(item, room, depth + 1) for item in value)]


def _least_length(value: Any, tag: str) -> float:
    """Lower bound of the literal's characters, with the separator."""
    if tag == "i":
        return 1 + value.bit_length() * 0.3
    if tag in ("f", "c"):
        return len(repr(value)) + 1
    return len(value) + 2 if tag in ("str", "y") else 2


def _is_plain(value: Any) -> bool:
    try:
        _tag(value, [1e6])
    except JobError:
        return False
    return True


def _digits(value: int) -> str:
    try:
        return str(value)
    except ValueError as error:  # more digits than Python converts
        raise JobError("output_limit") from error


def _order_free(tree: Any) -> str:
    """Write a tree as a text that does not depend on the order of a set's elements or a dict's items."""
    if not isinstance(tree, list):
        return repr(tree)
    parts = [_order_free(part) for part in tree[1:]]
    if tree[0] == "d":
        parts = sorted(f"{key}:{value}" for key, value in zip(parts[::2], parts[1::2], strict=True))
    return f"{tree[0]}[{','.join(sorted(parts) if tree[0] in 'sz' else parts)}]"
