"""The domain of a calculator: a program is an integer expression, an input binds its variables, an output is an integer."""

from populora.core.types import Example
from populora.domains import Domain, Metric
from populora.sandbox.runner import Runner

REASONS = (
    "not_an_expression", "expression_too_long", "expression_too_deep", "unknown_variable", "division_by_zero", "exponent_out_of_range",
    "number_too_large", "not_bindings", "not_an_integer",
)  # fmt: skip

DOMAIN = Domain(
    name="calculator",
    version="1",
    package="calculator_domain",
    runner=Runner("calculator", "calculator_domain.runner", reasons=REASONS),
    fences=("calculator", ""),
    metrics=(
        Metric("depth", "depth", 0, 8, "Depth: operators and functions around the innermost part."),
        Metric("operators", "operators", 0, 16, "Operators: functions count too."),
        Metric("names", "variables", 0, 6, "Variables: different names."),
        Metric("constants", "constants", 0, 8, "Constants: numbers written out."),
    ),
    identity=("x", Example("x = 7", "7")),
    shown=("operators", "depth"),
    one_line_inputs=True,
)
