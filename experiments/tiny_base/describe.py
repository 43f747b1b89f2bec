"""Messages for code_f: what a program does, in words, at three levels of detail.

``names`` tells target names and constants, ``constants`` leaves the names out, ``vague`` leaves the constants out too.
A vaguer message makes a harder problem: the level is a lever that a teacher can learn to pull.
"""

import ast

LEVELS = ("names", "constants", "vague")
_OPERATORS = {ast.Add: "plus", ast.Sub: "minus", ast.Mult: "times", ast.FloorDiv: "div", ast.Mod: "mod"}
_COMPARE = {ast.Gt: "more", ast.Lt: "less", ast.Eq: "equal", ast.NotEq: "unequal", ast.In: "contains"}
_CALLS = {
    "len": "length", "sum": "total", "max": "biggest", "min": "smallest", "abs": "gap", "sorted": "sort", "count": "count",
    "get": "lookup", "upper": "upper", "replace": "swap", "join": "join", "append": "append", "str": "text", "g": "helper",
    "tuple": "pair", "values": "index", "list": "map",
}  # fmt: skip


def _words(node: ast.AST, level: str) -> list[str]:  # noqa: PLR0911 - one line for each kind of expression
    """Operation words of an expression, in reading order."""

    def many(*nodes: ast.AST) -> list[str]:
        return [word for item in nodes for word in _words(item, level)]

    match node:
        case ast.Constant():
            return [] if level == "vague" else [repr(node.value)]
        case ast.BinOp():
            return [*many(node.left), _OPERATORS[type(node.op)], *many(node.right)]
        case ast.Compare():
            return [*many(node.left), _COMPARE[type(node.ops[0])], *many(*node.comparators)]
        case ast.BoolOp():
            word = "both" if isinstance(node.op, ast.And) else "either"
            return [word, *many(*node.values)]
        case ast.UnaryOp():
            return ["otherwise", *many(node.operand)]
        case ast.Call(func=ast.Name(id=name)):
            return [_CALLS.get(name, "map"), *many(*node.args)]
        case ast.Call(func=ast.Attribute(value=value, attr=name)):
            return [*many(value), _CALLS.get(name, "map"), *many(*node.args)]
        case ast.Subscript(slice=ast.Slice() as piece):
            if piece.step is not None:
                return [*many(node.value), "reverse"]
            return [*many(node.value), "cut", *many(*[bound for bound in (piece.lower, piece.upper) if bound])]
        case ast.ListComp():
            tests = [test for generator in node.generators for test in generator.ifs]
            return ["keep" if tests else "map", *many(node.elt, *tests)]
        case ast.List() | ast.Tuple():
            return ["pair", *many(*node.elts)]
        case _:
            return []


def _statement(node: ast.stmt, level: str) -> str:
    named = level == "names"
    match node:
        case ast.Return():
            words = ["give", *_words(node.value, level)] if node.value else ["give"]
            if named and isinstance(node.value, ast.Name):
                words.append(node.value.id)
        case ast.Assign(targets=[ast.Tuple() as target]):
            words = ["pair", *_words(node.value, level)]
        case ast.Assign(targets=[target]):
            name = ast.unparse(target)[0]
            words = [*([name] if named else []), "set", *_words(node.value, level)]
        case ast.AugAssign():
            name = [ast.unparse(node.target)] if named else []
            words = [*name, _OPERATORS[type(node.op)], *_words(node.value, level)]
        case ast.Expr():
            name = [ast.unparse(node.value)[0]] if named else []
            words = [*name, *_words(node.value, level)]
        case ast.If():
            inner = f"branch {' '.join(_words(node.test, level))} ({_block(node.body, level)})"
            return inner + (f" otherwise ({_block(node.orelse, level)})" if node.orelse else "")
        case ast.For():
            return f"each {' '.join(_words(node.iter, level))}({_block(node.body, level)})"
        case ast.While():
            return f"until {' '.join(_words(node.test, level))} ({_block(node.body, level)})"
        case ast.FunctionDef():
            return f"helper ({_block(node.body, level)})"
        case _:
            return ""
    return " ".join(words)


def _block(body: list[ast.stmt], level: str) -> str:
    return "; ".join(_statement(node, level) for node in body)


def describe(program: str, level: str) -> str:
    """The message for a program of the grammar at one of `LEVELS`."""
    definitions = [node for node in ast.parse(program).body if isinstance(node, ast.FunctionDef)]
    return "; ".join([*(_statement(node, level) for node in definitions[:-1]), _block(definitions[-1].body, level)])
