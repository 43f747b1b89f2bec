"""Numbers in every notation that models use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from populora.evals.graders.mathematics import parse_number, same_number


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**6), max_value=10**6), st.integers(-300, 300))
def test_a_number_is_read_in_every_notation(value, power):
    wanted = value.scaleb(power)
    forms = (
        f"{value}e{power}",
        f"{value}E{power:+}",
        f"{value} \\times 10^{{{power}}}",
        f"v = {value} \\cdot 10^{{{power}}} \\text{{ m/s}}",
    )
    assert [parse_number(form) for form in forms] == [wanted] * 4
    assert parse_number(f"{wanted:f}") == wanted and parse_number(f"${value:,} \\mathrm{{~J}}$") == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "2^{20}",
        "1, 2",
        "3 + 4e5",
        "\\frac{1}{2}",
        "1e99999",
        "33e4.5",
        "e5",
        "4.5e",
        "10^{x}",
        "1.2.3",
        "2i",
        "3 - 2",
        "3 or 4",
        "3 m = 4 x 5",
    ],
)
def test_what_is_no_number_has_no_value(text):
    assert parse_number(text) is None


def test_numbers_are_compared_only_with_golds_in_the_e_form():
    assert same_number("1e-3", "0.001") and same_number("2e27", "2 \\times 10^{27}") and same_number("1e-8", "10^{-8}")
    assert same_number("4.6e-24", "4.6 \\times 10^{-23}") is False
    assert same_number("1600", "1600") is None and same_number("1e-3", "\\frac{1}{1000}") is None
