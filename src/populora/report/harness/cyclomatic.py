"""radon's cyclomatic complexity of programs, inside the sandbox, because parsing is part of what is untrusted. Loaded by a zygote.

Of a whole program: 1 and what each of its functions and methods has above 1, closures included, as the paper's count begins from 1.
"""

import json

from radon.complexity import cc_visit


def f(request):
    """The JSON of ``{"programs": [text, …]}`` to that of a list with a number for each, null where radon cannot read it."""
    return json.dumps([_radon(program) for program in json.loads(request)["programs"]])


def _radon(program):
    try:
        blocks = cc_visit(program)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    functions = [block for block in blocks if hasattr(block, "is_method")]
    return 1 + sum(block.complexity - 1 for block in functions)
