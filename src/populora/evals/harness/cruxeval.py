"""CRUXEval inside the sandbox: the value of an answer, which is an expression beside the item's program. Loaded as ``harness``.

The official grader executes ``assert <gold output> == <answer>`` after the program. Here the answer's value leaves the sandbox and is
compared outside, so that no program can know or change what it is compared with. An answer that is itself a comparison, ``a == b``,
is read as the assertion would read it: both sides have to be the gold value.
"""

import ast
import json


def f(request):
    """The JSON of ``{"code", "answer"}`` to the answer's value. Raises what the program or the answer raises."""
    asked = json.loads(request)
    namespace = {}
    exec(compile(asked["code"], "<program>", "exec"), namespace)
    first, *others = [_plain(eval(code, namespace)) for code in _sides(asked["answer"])]
    if any(other != first for other in others):
        raise ValueError("the sides of the comparison differ")
    return first


def _sides(answer):
    body = ast.parse(answer.strip(), mode="eval").body
    chain = isinstance(body, ast.Compare) and all(isinstance(operator, ast.Eq) for operator in body.ops)
    return [compile(ast.Expression(side), "<answer>", "eval") for side in ([body.left, *body.comparators] if chain else [body])]


def _plain(value):
    """The value with subclasses of the built-in types as those types: a Counter equals a dict, and so it is one."""
    if isinstance(value, dict):
        return {_plain(key): _plain(part) for key, part in value.items()}
    for kind in (bool, int, float, complex, str, bytes):
        if isinstance(value, kind):
            return value if type(value) is kind else kind(value)
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            return kind([_plain(part) for part in value])
    return value
