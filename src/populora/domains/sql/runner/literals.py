"""Literals of SQL: the values of databases and results, and rows of them, read and written in linear time."""

import math
import re
from typing import Any

from populora.sandbox.runner import Refused

Scalar = int | float | str | None
Row = tuple[Scalar, ...]

MAX_BYTES = 1000
"""Longest text of a database or a result, in UTF-8."""

_VALUE = re.compile(
    r"""(?P<null>NULL(?![A-Za-z0-9_]))|(?P<text>'[^']*(?:''[^']*)*')|(?P<blob>x'[0-9a-f]*')
    |(?P<real>[+-]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|[+-]?[0-9]+e[+-]?[0-9]+)|(?P<integer>[+-]?[0-9]+)""",
    re.ASCII | re.IGNORECASE | re.VERBOSE,
)
_SEPARATOR = re.compile(r"\s*(,\s*|$)", re.ASCII)
_UNSHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def read_row(line: str, reason: str) -> Row:
    """Read literals separated by commas. Raises `Refused` with ``reason``, ``value_coerced`` or what `check_shown` raises."""
    values: list[Scalar] = []
    position = 0
    while True:
        value = _VALUE.match(line, position)
        separator = _SEPARATOR.match(line, value.end()) if value else None
        if value is None or separator is None:
            raise Refused(reason)
        values.append(_scalar(value[0], value.lastgroup))
        if not separator[1]:
            return tuple(values)
        position = separator.end()


def write_row(row: Row) -> str:
    """Write a row in its canonical text."""
    return ",".join(map(_literal, row))


def _literal(value: Scalar) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return "NULL" if value is None else repr(value)


def sorting_key(row: Row) -> list[tuple[Any, ...]]:
    """Return a key that sorts rows as SQLite does: NULL, then numbers, then texts."""
    return [(0,) if value is None else (2, value) if isinstance(value, str) else (1, value, isinstance(value, float)) for value in row]


def rounded(value: Scalar) -> Scalar:
    """Round a real to the 15 significant digits that SQLite itself shows. A sum of reals is then the same in any order of rows."""
    return float(f"{value:.15g}") + 0.0 if isinstance(value, float) else value


def check_shown(value: object) -> Scalar:
    """Return a value that the texts can show. Raises `Refused`: ``unsupported_value`` or ``value_too_long``."""
    if isinstance(value, str):
        if _UNSHOWN.search(value):
            raise Refused("unsupported_value")
        if len(value) > MAX_BYTES or len(value.encode()) > MAX_BYTES:
            raise Refused("value_too_long")
        return value
    if value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise Refused("unsupported_value")


def _scalar(text: str, kind: str | None) -> Scalar:
    """Read one literal. Raises `Refused` for blobs, infinite reals, integers beyond 64 bits, and texts as `check_shown`."""
    match kind:
        case "null":
            return None
        case "text":
            return check_shown(text[1:-1].replace("''", "'"))
        case "real":
            return check_shown(float(text) + 0.0)
        case "integer":
            if len(text.lstrip("+-").lstrip("0")) > 19 or not -(2**63) <= int(text) < 2**63:
                raise Refused("value_coerced")
            return int(text)
    raise Refused("unsupported_value")
