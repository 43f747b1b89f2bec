"""radon's value of programs, asked of the sandbox."""

from __future__ import annotations

import pytest
from radon.complexity import cc_visit

from populora.report.radon import radon_values
from populora.sandbox.complexity import measure

PLAIN = "def f(x):\n    if x and x > 1:\n        return 1\n    for i in range(x):\n        x += i\n    return x"
HELPED = "def g(x):\n    return x if x else 1\n\ndef f(x):\n    while g(x):\n        x -= 1\n    return x"
METHOD = "class C:\n    def m(self):\n        assert self\n        return [a for a in [] if a]\n\ndef f(x):\n    return C().m()"


@pytest.mark.slow
def test_values_are_radons_and_of_a_plain_program_the_papers_too():
    plain, helped, method, broken = radon_values((PLAIN, HELPED, METHOD, "def f(:"))
    assert plain == cc_visit(PLAIN)[0].complexity == measure(PLAIN).cyclomatic == 4
    assert helped == 1 + sum(block.complexity - 1 for block in cc_visit(HELPED))
    functions = [block for block in cc_visit(METHOD) if type(block).__name__ == "Function"]
    assert method == 1 + sum(block.complexity - 1 for block in functions)
    assert broken is None
