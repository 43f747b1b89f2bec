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
    """Compare the JSON of ``{"gold", "answer"}``; returns that of ``equal``, ``different`` or ``unreadable:…``."""
    question = json.loads(request)
    try:
        gold, answer = (parse(f"\\boxed{{{question[name]}}}", parsing_timeout=0) for name in ("gold", "answer"))
        equal = verify(gold, answer, timeout_seconds=0)
    except Exception as error:
        return json.dumps(f"unreadable:{type(error).__name__}")
    return json.dumps("equal" if equal else "different" if answer else "unreadable:nothing")


for _gold, _answer in (("\\frac{x}{2}", "0.5x"), ("\\{1, 2\\}", "(1, 2]"), ("x = 5", "5\\%")):
    f(json.dumps({"gold": _gold, "answer": _answer}))  # fills the parser's caches once, for all children
