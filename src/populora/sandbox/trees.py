"""Plain values as tagged trees, on the child's side; `populora.sandbox.values` reads them. Standard library only."""

from collections import Counter, OrderedDict, defaultdict
from typing import Any

from populora.sandbox.runner import Multiset, Refused

MAX_DEPTH = 60
_TAGS = (
    (int, "i"), (str, "str"), (bool, "bool"), (type(None), "None"), (float, "f"), (list, "l"), (tuple, "t"), (dict, "d"), (set, "s"),
    (frozenset, "z"), (bytes, "y"), (complex, "c"), (Multiset, "m"), (Counter, "d"), (defaultdict, "d"), (OrderedDict, "d"),
)  # fmt: skip
"""Types and the tags of what their values equal: a ``Counter`` equals the dict with its items."""


def tree_of(value: Any, room: list[float], depth: int = 0) -> Any:
    """Build the tagged tree of a value of exactly these types. ``room`` holds the characters left for its literal."""
    kind = type(value)
    tag = next((tag for exact, tag in _TAGS if exact is kind), "")  # by identity: a metaclass may claim to be equal to all of them
    if depth > MAX_DEPTH or not tag or (tag in "fc" and value != value) or (tag == "m" and depth):
        raise Refused("unsupported_value")
    room[0] -= _least_length(value, tag)
    if room[0] < 0:
        raise Refused("output_limit")
    match tag:
        case "None" | "bool" | "str":
            return value
        case "i":
            return ["i", _digits(value)]
        case "f":
            return ["f", repr(value)]
        case "c":  # no literal has a part of -0.0
            return ["c", repr(value.real + 0.0), repr(value.imag + 0.0)]
        case "y":
            return ["y", value.hex()]
        case "d":
            return ["d", *(tree_of(part, room, depth + 1) for pair in dict.items(value) for part in pair)]
    return [tag, *(tree_of(item, room, depth + 1) for item in value)]


def _least_length(value: Any, tag: str) -> float:
    """Lower bound of the literal's characters, with the separator."""
    if tag == "i":
        return 1 + value.bit_length() * 0.3
    if tag in ("f", "c"):
        return len(repr(value)) + 1
    return len(value) + 2 if tag in ("str", "y") else 2


def is_plain(value: Any) -> bool:
    try:
        tree_of(value, [1e6])
    except Refused:
        return False
    return True


def _digits(value: int) -> str:
    try:
        return str(value)
    except ValueError as error:  # more digits than Python converts
        raise Refused("output_limit") from error


def order_free(tree: Any) -> str:
    """Write a tree as a text that does not depend on the order of a set's or multiset's elements or a dict's items."""
    if not isinstance(tree, list):
        return repr(tree)
    parts = [order_free(part) for part in tree[1:]]
    if tree[0] == "d":
        parts = sorted(f"{key}:{value}" for key, value in zip(parts[::2], parts[1::2], strict=True))
    return f"{tree[0]}[{','.join(sorted(parts) if tree[0] in 'szm' else parts)}]"
