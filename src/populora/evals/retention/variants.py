"""What is bred in a cell of the grid, in words that a settings file can hold.

``"x4"`` is an operator at its defaults, ``"x4 swapped"`` has its parents in the other order, ``"m1 epsilon=0"`` another strength,
``"m3 refactor=balanced"`` another way to split singular values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from populora.adapters.operators import Operator, get_operator
from populora.adapters.operators.registry import parse_strength
from populora.adapters.svd import Refactor
from populora.core.errors import ConfigError

SWAPPED, REFACTOR = "swapped", "refactor"


@dataclass(frozen=True)
class Variant:
    """An operator with its strengths; the name is what pupils, rows and figures are called by."""

    name: str
    operator: Operator
    strength: dict[str, float | str]
    refactor: str
    swapped: bool

    @property
    def arity(self) -> int:
        return self.operator.arity


def read_variant(text: str, refactor: str) -> Variant:
    """The variant of that text; ``refactor`` where it names none. Raises `ConfigError` for what no operator has."""
    name, *words = text.split() or [""]
    operator, swapped = get_operator(name), SWAPPED in words
    strength = dict(parse_strength(word) for word in words if word != SWAPPED)
    chosen = str(strength.pop(REFACTOR, refactor))
    if chosen not in get_args(Refactor):
        raise ConfigError(f"'{text}', refactor: expected one of {', '.join(get_args(Refactor))}, got '{chosen}'")
    if REFACTOR in text and not operator.takes_refactor:
        raise ConfigError(f"'{text}': operator '{operator.name}' splits no singular values, so it takes no refactor")
    if swapped and operator.arity != 2:
        raise ConfigError(f"'{text}': operator '{operator.name}' has one parent, so nothing can be swapped")
    operator.check_strength(strength)
    return Variant(" ".join([operator.name, *words]), operator, strength, chosen, swapped)
