"""Programs that the tiny base's generator writes hardly ever: recursion, nested loops, sets, lambdas, string methods and others.

Each family is a hand-written program with gaps for small constants, and calls that fit it. They ask whether what is learned in
self-play carries over to other programs, as the paper asks with benchmarks of other origin.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Draw = Callable[[np.random.Generator], str]


@dataclass(frozen=True)
class Family:
    """``program`` has gaps for constants: ``K`` of 2 to 5, ``M`` of 1 to 3. ``inputs`` draws the text of a call's arguments."""

    name: str
    program: str
    inputs: Draw


def integer(low: int, high: int) -> Draw:
    return lambda rng: str(int(rng.integers(low, high + 1)))


def integers(low: int = 0, high: int = 9, least: int = 2, most: int = 4) -> Draw:
    return lambda rng: str([int(value) for value in rng.integers(low, high + 1, int(rng.integers(least, most + 1)))])


def word(letters: str = "abcde", least: int = 2, most: int = 5) -> Draw:
    return lambda rng: repr("".join(rng.choice(list(letters), int(rng.integers(least, most + 1)))))


def both(*draws: Draw) -> Draw:
    return lambda rng: ", ".join(draw(rng) for draw in draws)


FAMILIES = (
    Family("recursive sum", "def f(x):\n    if x <= 0:\n        return K\n    return x + f(x - M)", integer(1, 7)),
    Family("recursive list", "def f(a):\n    if not a:\n        return 0\n    return a[0] * K + f(a[1:])", integers(0, 4, 1, 3)),
    Family("recursive text", "def f(s):\n    if len(s) < 2:\n        return s\n    return f(s[1:]) + s[0]", word()),
    Family("two recursions", "def f(x):\n    if x < 2:\n        return 1\n    return f(x - 1) + f(x - 2) + K", integer(1, 6)),
    Family(
        "nested loops",
        "def f(a, b):\n    r = 0\n    for x in a:\n        for y in b:\n            if x < y:\n                r += K\n    return r",
        both(integers(most=3), integers(most=3)),
    ),
    Family(
        "break",
        "def f(a, x):\n    r = 0\n    for v in a:\n        if v > x:\n            break\n        r += v\n    return r + K",
        both(integers(), integer(2, 9)),
    ),
    Family(
        "continue",
        "def f(a):\n    r = []\n    for v in a:\n        if v % K == 0:\n            continue\n        r.append(v + M)\n    return r",
        integers(),
    ),
    Family("set", "def f(a, b):\n    return sorted(set(a) & set(b))", both(integers(0, 5), integers(0, 5))),
    Family("union of sets", "def f(a, b):\n    return sorted(set(a) | set(b))", both(integers(0, 5), integers(0, 5))),
    Family("lambda", "def f(a):\n    return sorted(a, key=lambda v: v % K)", integers()),
    Family("map", "def f(a):\n    return list(map(lambda v: v * K - M, a))", integers(0, 8)),
    Family("zip", "def f(a, b):\n    return [x - y for x, y in zip(a, b)]", both(integers(), integers())),
    Family("any and all", "def f(a):\n    return any(v > K for v in a), all(v > M for v in a)", integers(0, 7)),
    Family("slices", "def f(a):\n    return a[::2] + a[1::2]", integers(0, 9, 3, 5)),
    Family("find", "def f(s, t):\n    return s.find(t) * K", both(word("ab", 3, 5), word("ab", 1, 2))),
    Family("split", "def f(s):\n    return s.split('c')", word("abc", 3, 5)),
    Family("chained", "def f(x, y):\n    return K if K < x <= y else y - x", both(integer(0, 9), integer(0, 9))),
    Family("bits", "def f(x, y):\n    return (x & y) + (x | K)", both(integer(0, 7), integer(0, 7))),
    Family("dictionary", "def f(a):\n    return {v: v * K for v in a if v > M}", integers(0, 6)),
    Family(
        "two counters",
        "def f(a):\n    i, r = 0, 0\n    while i < len(a):\n        r = r * K + a[i]\n        i += M\n    return r",
        integers(0, 3, 2, 4),
    ),
)
