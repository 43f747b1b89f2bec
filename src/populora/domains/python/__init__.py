"""The domain of Python, that of the paper and of the Absolute Zero Reasoner: a program is a top-level function ``f``."""

from populora.core.types import Example
from populora.domains.declaration import Domain, Metric
from populora.sandbox.runner import PYTHON, Runner

DOMAIN = Domain(
    name=PYTHON,
    version="1",
    package="populora.domains.python",
    runner=Runner(PYTHON, "populora.sandbox.python_runner"),
    fences=(PYTHON, ""),
    metrics=(  # ranges: the span of short programs, wide enough for growth
        Metric("ast_depth", "AST depth", 0, 20, "AST depth: levels under the module."),
        Metric("cyclomatic", "cyclomatic", 1, 15, "Cyclomatic: 1 + if, elif, for, while, except, and, or, assert and comprehensions' for."),
        Metric("loc", "lines of code", 1, 30, "Lines with code."),
        Metric("variables", "variables", 0, 15, "Variables: names bound."),
    ),
    identity=("def f(x):\n    return x", Example("'Hello world'", "'Hello world'")),
    shown=("loc", "cyclomatic"),
    one_line_inputs=True,
    call="f({inputs})",
    lexer=PYTHON,
    rules=lambda tasks: tasks.banned_imports,
)
