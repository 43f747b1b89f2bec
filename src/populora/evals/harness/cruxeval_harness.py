"""CRUXEval inside the sandbox: evaluate an answer, an expression, after the item's program. Loaded as ``harness``.

The official grader executes ``assert <gold output> == <answer>`` after the program. Here the answer is parsed as that statement would be,
but its value leaves the sandbox and is compared outside, so that no program can know or change what it is compared with.
Deviation: ``<answer>`` has to be part of the comparison; ``5 or [1]`` would decide alone.
"""

import ast
import collections.abc
import decimal
import fractions
import json
import re

import numpy


def f(request):
    """Evaluate the answer in the JSON of ``{"code", "answer", "call"}``; ``call`` says that it is an input, a call of f."""
    question = json.loads(request)
    namespace = {}
    exec(compile(question["code"], "<program>", "exec"), namespace)
    answer = question["answer"].strip()
    whole = question["call"] and re.match(r"assert\b", answer)
    compared, *others = ast.parse(answer if whole else f"assert _ == {answer}").body
    expression, holds = (_call(compared), None) if whole else _sides(compared)
    value = _plain(eval(compile(expression, "<answer>", "eval"), namespace))
    if holds is not None and not eval(compile(holds, "<answer>", "eval"), namespace):
        raise ValueError("what follows in the comparison does not hold")
    exec(compile(ast.Module(others, []), "<answer>", "exec"), namespace)
    return value


def _call(statement):
    """Return the call in an assertion: ``f(x)`` of ``assert f(x) == y, "message"``."""
    match statement:
        case ast.Assert(test=ast.Compare(left=ast.Call(func=ast.Name("f")) as call, ops=[ast.Eq(), *_])):
            return ast.Expression(call)
    raise ValueError("not the assertion of a call of f")


def _sides(statement):
    """Split a chain of comparisons: of ``_ == a == b``, ``a`` is the answer, and ``a == b`` has to hold."""
    match statement:
        case ast.Assert(test=ast.Compare(left=ast.Name("_"), ops=[ast.Eq(), *ops], comparators=[value, *rest])):
            chain = ast.Expression(ast.Compare(value, ops, rest)) if ops else None
            return ast.Expression(value), chain and ast.fix_missing_locations(chain)
    raise ValueError("not a value")


def _plain(value):
    """Convert a value to the built-in type that it is equal to: a Counter to a dict, ``numpy.int64(5)`` to 5."""
    if isinstance(value, numpy.generic):
        return _plain(value.item())
    if isinstance(value, (decimal.Decimal, fractions.Fraction)) and value == float(value):
        return int(value) if value == int(value) else float(value)
    if isinstance(value, dict):
        return {_plain(key): _plain(part) for key, part in value.items()}
    if isinstance(value, bytearray):
        return bytes(value)
    for kind in (bool, int, float, complex, str, bytes):
        if isinstance(value, kind):
            return value if type(value) is kind else kind(value)
    for kind in (list, tuple, frozenset):
        if isinstance(value, kind):
            return kind([_plain(part) for part in value])
    return {_plain(part) for part in value} if isinstance(value, collections.abc.Set) else value
