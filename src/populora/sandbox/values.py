"""Python values as data: the trainer never parses literals, it renders them from the tagged tree that a child sends.

A tree is JSON: None, booleans and strings are themselves; ``["i", "12"]`` int, ``["f", "0.5"]`` float,
``["c", "0.0", "1.0"]`` complex, ``["y", "00ff"]`` bytes in hex, ``["l", …]`` list, ``["t", …]`` tuple, ``["s", …]`` set,
``["z", …]`` frozenset, ``["d", k, v, …]`` dict. Domains other than Python also have ``["m", …]``, a `Multiset`.
Literal and both canonical texts come from the same tree, so a forged reply cannot show one value and compare as another.
"""

import math
import re
from dataclasses import dataclass, replace
from typing import Any

from populora.sandbox.trees import MAX_DEPTH

_WRITTEN_OUT = 21
_INT = re.compile(r"0|-?[1-9][0-9]{0,4299}")


@dataclass(frozen=True)
class Value:
    """One value. Two values are the same if the chosen canonical texts are equal."""

    literal: str
    """The text that prompts show. In Python: literal text; of an argument list without its parentheses; infinity is ``1e999``, sets are
    sorted. Other domains write their own."""
    canonical: str
    """Type-tagged text: ``1``, ``True`` and ``1.0`` differ (strict equality)."""
    comparable: str
    """Text under Python's ``==``: ``True == 1 == 1.0``, ``-0.0 == 0.0``, a set equals its frozenset."""
    text: str | None = None
    """The string itself, where the value is one."""
    unordered: "Value | None" = None
    """The elements of a list as a multiset (in domains other than Python): it matches a multiset as well as the same list."""

    @property
    def is_multiset(self) -> bool:
        """Whether the order of its elements means nothing."""
        return self.canonical.startswith("m[")

    @property
    def comparables(self) -> tuple[str, ...]:
        """The ``comparable`` texts of all values that this one matches."""
        return (self.comparable, self.unordered.comparable) if self.unordered else (self.comparable,)


class TooLong(ValueError):
    """The literal is longer than allowed."""


def value_from_tree(tree: Any, *, longest: float = math.inf, as_arguments: bool = False) -> Value:
    """Build the value of a tagged tree. ``as_arguments`` drops the outer tuple's parentheses from the literal.

    Raises `ValueError` for a tree that no Python value has (also NaN, and elements of a set that are equal or unhashable), `TooLong`
    for a literal of more than ``longest`` characters, as soon as its scalars alone have more.
    """
    value = _value(tree, 0, [longest])
    if len(value.literal) > longest:
        raise TooLong("too long")
    if not as_arguments:
        return value
    if not value.canonical.startswith("t["):
        raise ValueError("an argument list is a tuple")
    return replace(value, literal=value.literal[1:-1].removesuffix(","))


def value_of_domain(tree: Any, text: str) -> Value:
    """Build a value with the ``text`` that the runner of its domain wrote. Raises `ValueError` as `value_from_tree`."""
    match tree:
        case [("l" | "m") as tag, *items]:
            parts = [_value(item, 1, [math.inf]) for item in items]
            unordered = _multiset(text, parts)
            return unordered if tag == "m" else replace(_sequence(tag, parts, items), literal=text, unordered=unordered)
    return replace(value_from_tree(tree), literal=text)


def _multiset(text: str, parts: list[Value]) -> Value:
    canonical, comparable = (",".join(sorted(texts)) for texts in ([p.canonical for p in parts], [p.comparable for p in parts]))
    return Value(text, f"m[{canonical}]", f"m[{comparable}]")


def _value(tree: Any, depth: int, room: list[float]) -> Value:
    if depth > MAX_DEPTH:
        raise ValueError("nested too deeply")
    match tree:
        case [("l" | "t" | "s" | "z") as tag, *items]:
            return _sequence(tag, [_value(item, depth + 1, room) for item in items], items)
        case ["d", *items] if len(items) % 2 == 0:
            return _dict([_value(item, depth + 1, room) for item in items], items[::2])
    value = _scalar(tree)
    room[0] -= len(value.literal)
    if room[0] < 0:
        raise TooLong("too long")
    return value


def _scalar(tree: Any) -> Value:
    match tree:
        case bool():
            return Value(repr(tree), repr(tree), f"i{int(tree)}")
        case None | str():
            return Value(repr(tree), repr(tree), repr(tree), tree)
        case ["i", str(text)] if _INT.fullmatch(text):
            return Value(text, f"i{text}", _int_comparable(text))
        case ["f", str(text)] if len(text) < 32:
            return _float(text)
        case ["c", str(real), str(imaginary)] if max(len(real), len(imaginary)) < 32:
            return _complex(_float(real), _float(imaginary))
        case ["y", str(text)]:
            literal = repr(bytes.fromhex(text))
            return Value(literal, literal, literal)
    raise ValueError("not a tagged value")


def _int_comparable(text: str) -> str:
    """Write an integer beyond 21 digits that is exactly a float as the float: up to 309 digits would say no more."""
    if len(text.lstrip("-")) <= _WRITTEN_OUT:
        return f"i{text}"
    number = int(text)
    try:
        nearest = float(number)
    except OverflowError:
        return f"i{text}"
    return f"e{nearest!r}" if int(nearest) == number else f"i{text}"


def _float(text: str) -> Value:
    number = float(text)
    if repr(number) != text or number != number:
        raise ValueError("not the shortest text of a number")
    literal = {"inf": "1e999", "-inf": "-1e999"}.get(text, text)
    if not number.is_integer():
        return Value(literal, f"f{text}", f"f{text}")
    return Value(literal, f"f{text}", f"i{int(number)}" if abs(number) < 10**_WRITTEN_OUT else f"e{number!r}")


def _complex(real: Value, imaginary: Value) -> Value:
    sign = "" if imaginary.literal.startswith("-") else "+"
    comparable = real.comparable if imaginary.comparable == "i0" else f"c{real.comparable},{imaginary.comparable}"
    return Value(f"({real.literal}{sign}{imaginary.literal}j)", f"c{real.canonical},{imaginary.canonical}", comparable)


def _sequence(tag: str, parts: list[Value], items: list[Any]) -> Value:
    if tag in "sz":
        _check_keys(parts, items)
        parts = sorted(parts, key=lambda part: (len(part.canonical), part.canonical))
    inner = ", ".join(part.literal for part in parts)
    literal = {
        "l": f"[{inner}]",
        "t": f"({inner},)" if len(parts) == 1 else f"({inner})",
        "s": f"{{{inner}}}",
        "z": f"frozenset({{{inner}}})",
    }
    if not parts:
        literal |= {"s": "set()", "z": "frozenset()"}
    comparables = sorted(part.comparable for part in parts) if tag in "sz" else [part.comparable for part in parts]
    return Value(
        literal[tag], f"{tag}[{','.join(part.canonical for part in parts)}]", f"{'s' if tag == 'z' else tag}[{','.join(comparables)}]"
    )


def _dict(parts: list[Value], keys: list[Any]) -> Value:
    pairs = list(zip(parts[::2], parts[1::2], strict=True))
    _check_keys([key for key, _ in pairs], keys)
    return Value(
        "{" + ", ".join(f"{key.literal}: {value.literal}" for key, value in pairs) + "}",
        "d[" + ",".join(sorted(f"{key.canonical}:{value.canonical}" for key, value in pairs)) + "]",
        "d[" + ",".join(sorted(f"{key.comparable}:{value.comparable}" for key, value in pairs)) + "]",
    )


def _check_keys(parts: list[Value], items: list[Any]) -> None:
    if len({part.comparable for part in parts}) != len(parts) or not all(map(_hashable, items)):
        raise ValueError("equal or unhashable elements")


def _hashable(tree: Any) -> bool:
    if isinstance(tree, list) and tree[0] == "t":
        return all(map(_hashable, tree[1:]))
    return not (isinstance(tree, list) and tree[0] in "lsd")
