"""The runner of the calculator (`populora.sandbox.runner`). It walks over the tree of an expression and evaluates no Python."""

import ast
import operator
import re

from populora.sandbox.runner import Refused

MAX_CHARS, MAX_DEPTH, MAX_POWER, MAX_NUMBER = 200, 12, 50, 10**15
OPERATORS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.Pow: operator.pow, ast.USub: operator.neg, ast.UAdd: operator.pos,
}  # fmt: skip
FUNCTIONS = {"abs": (abs, 1), "min": (min, 2), "max": (max, 2)}
BINDING = re.compile(r"\s*([a-z][a-z0-9_]{0,15})\s*=\s*([+-]?[0-9]{1,15})\s*", re.ASCII)


def load(program, rules):
    """Check an expression once. It depends on nothing that a further ``repetition`` could change, and nothing in it can be banned."""
    tree = read_expression(program)
    return lambda inputs, repetition: value_of(tree, parse_inputs(inputs))


def read_expression(program):
    """Return the tree of an expression. Its parts are those that `value_of` knows."""
    if len(program) > MAX_CHARS:
        raise Refused("expression_too_long")
    try:
        tree = ast.parse(program.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Refused("not_an_expression") from error
    if not all(map(is_allowed, ast.walk(tree))):
        raise Refused("not_an_expression")
    if depth_of(tree) > MAX_DEPTH:
        raise Refused("expression_too_deep")
    return tree


def is_allowed(node):
    """Return True for a part of Python's grammar that is one of the calculator's too."""
    match node:
        case ast.Constant(value=value):
            return type(value) is int
        case ast.BinOp(op=sign) | ast.UnaryOp(op=sign):
            return type(sign) in OPERATORS
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return name in FUNCTIONS and len(arguments) == FUNCTIONS[name][1]
    return isinstance(node, ast.Name | ast.operator | ast.unaryop | ast.Load)


def value_of(node, bindings):
    """Compute the value of a tree. Every number on the way is bounded, so that no step takes long."""
    match node:
        case ast.Constant(value=value):
            pass
        case ast.Name(id=name):
            if name not in bindings:
                raise Refused("unknown_variable")
            value = bindings[name]
        case ast.Call(func=ast.Name(id=name), args=arguments):
            value = FUNCTIONS[name][0](*(value_of(argument, bindings) for argument in arguments))
        case ast.UnaryOp(op=sign, operand=operand):
            value = OPERATORS[type(sign)](value_of(operand, bindings))
        case ast.BinOp(op=sign, left=left, right=right):
            value = combined(type(sign), value_of(left, bindings), value_of(right, bindings))
    if abs(value) > MAX_NUMBER:
        raise Refused("number_too_large")
    return value


def combined(sign, left, right):
    """Apply an operator, unless its value is no integer or a huge one."""
    if sign in (ast.FloorDiv, ast.Mod) and right == 0:
        raise Refused("division_by_zero")
    if sign is ast.Pow and not 0 <= right <= MAX_POWER:
        raise Refused("exponent_out_of_range")
    return OPERATORS[sign](left, right)


def parse_inputs(text):
    """Read bindings such as ``x = 3, y = -1``, each name once."""
    matches = [BINDING.fullmatch(part) for part in text.split(",")] if text.strip() else []
    bindings = {match[1]: int(match[2]) for match in matches if match}
    if len(bindings) < len(matches):
        raise Refused("not_bindings")
    return bindings


def write_inputs(bindings):
    """Write bindings in the order of their names: equal values have equal texts."""
    return ", ".join(f"{name} = {value}" for name, value in sorted(bindings.items()))


def parse_output(text):
    """Read an integer."""
    if not re.fullmatch(r"\s*[+-]?[0-9]{1,16}\s*", text, re.ASCII):
        raise Refused("not_an_integer")
    return int(text)


write_output = str


def measure(program):
    """Return depth, operators and functions, different variables, constants; and the expression without layout."""
    tree = read_expression(program)
    nodes = list(ast.walk(tree))
    calls = sum(isinstance(node, ast.Call) for node in nodes)
    signs = sum(isinstance(node, ast.operator | ast.unaryop) for node in nodes)
    variables = {node.id for node in nodes if isinstance(node, ast.Name)} - set(FUNCTIONS)
    constants = sum(isinstance(node, ast.Constant) for node in nodes)
    return (depth_of(tree), signs + calls, len(variables), constants), ast.unparse(tree)


def depth_of(node):
    """Return the number of operators and functions around the innermost part."""
    parts = [depth_of(part) for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
    return 1 + max(parts) if parts else 0
