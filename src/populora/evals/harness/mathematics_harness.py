"""Compare mathematical answers with math-verify inside the sandbox. Loaded by a zygote as ``harness``.

math-verify passes text to sympy, which evaluates it and does not finish with some answers (``10^{10^{10}}``). Its own time limits are
signals, which the sandbox refuses; the sandbox's limit of CPU time replaces them. As in AZR's evaluation both sides are put into a box,
and the gold answer is the first argument, since the comparison is not symmetric.
"""

import json
import logging

from math_verify import parse, verify

logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that time limits are off


def f(request):
    """Turn the JSON of ``{"pairs": [[gold, answer], …]}`` into that of ``equal``, ``different`` or ``unreadable:…`` for each pair."""
    return json.dumps([_compared(gold, answer) for gold, answer in json.loads(request)["pairs"]])


def _compared(gold, answer):
    try:
        expected, actual = (parse(f"\\boxed{{{text}}}", parsing_timeout=0) for text in (gold, answer))
        equal = verify(expected, actual, timeout_seconds=0)
    except Exception as error:
        return f"unreadable:{type(error).__name__}"
    if equal:
        return "equal"
    return "different" if actual else "unreadable:nothing"


_REHEARSAL = [["\\frac{x}{2}", "0.5x"], ["\\{1, 2\\}", "(1, 2]"], ["x = 5", "5\\%"]]
f(json.dumps({"pairs": _REHEARSAL}))  # fills the parser's caches once, for all children
