"""Numbers in scientific notation, read from text and compared exactly.

math-verify reads ``4.5e33`` as 4.5 times Euler's e times 33, which is how 58 of Minerva's 272 gold answers are written. Rewritten as
``4.5 \\times 10^{33}`` they are read, but small numbers are then rounded (six decimals, or 15): 14 of the 58 equal ten times as much.
Hence numbers are compared here, without it.
"""

from __future__ import annotations

import re
from decimal import Decimal

from populora.evals.answers import tidied

_E_FORM = re.compile(r"[-+]?[0-9]+(?:\.[0-9]+)?[eE][-+]?[0-9]{1,4}")
_UNIT = (
    r"(?:[\s~]|\\[,;: ])*"
    r"(?:(?:(?![eEi](?![a-zA-Z]))[°μΩa-zA-Z]|\\(?:text|mathrm|mbox|textrm|rm)\b)(?:[^=+*^0-9]|\^\s*\{?\s*[-−]?[0-9]\s*\}?)*)?"
)
_NUMERAL = re.compile(
    r"(?P<sign>[-+−]?)\s*(?P<digits>[0-9]+(?:,[0-9]{3})*(?:\.[0-9]*)?|\.[0-9]+)\s*"
    r"(?:[eE](?P<e>[-+]?[0-9]{1,4})|(?:\\times|\\cdot|[*×·x])\s*10\s*\^\s*\{?\s*(?P<ten>[-+−]?[0-9]{1,4})\s*\}?)?" + _UNIT
)
_POWER = re.compile(r"(?P<sign>[-+−]?)\s*10\s*\^\s*\{?\s*(?P<ten>[-+−]?[0-9]{1,4})\s*\}?" + _UNIT)
_EQUALS = re.compile(r"=|\\approx|\\simeq|≈")


def same_number(gold: str, answer: str) -> bool | None:
    """Whether both are the same number; None if the gold answer is not written like ``4.5e33``, or the answer is not a number."""
    value = number(answer) if _E_FORM.fullmatch(gold) else None
    return None if value is None else value == Decimal(gold)


def number(text: str) -> Decimal | None:
    """The value of ``1,200``, ``4.5e33``, ``4.5 \\times 10^{33}``, ``10^8``, also after ``=`` or before a unit; None for anything else."""
    text = _EQUALS.split(tidied(text))[-1].strip()
    power, numeral = _POWER.fullmatch(text), _NUMERAL.fullmatch(text)
    if power:
        return Decimal(f"{power['sign']}1e{power['ten']}".replace("−", "-"))
    if numeral:
        digits, exponent = numeral["digits"].replace(",", ""), numeral["e"] or numeral["ten"] or "0"
        return Decimal(f"{numeral['sign']}{digits}e{exponent}".replace("−", "-"))
    return None
