"""The registry of operators. A third-party operator is an `Operator` behind an entry point of group ``populora.adapters.operators``:

    [project.entry-points."populora.adapters.operators"]
    my_operator = "my_package:MY_OPERATOR"

Entry points are loaded when a name that is not built in is asked for, never at import.
"""

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from populora.adapters.adapter import Adapter
from populora.adapters.operators.crossovers import dare, extrapolative, layer_wise, soup, svd_subspace
from populora.adapters.operators.merges import della, fisher, linear_0_5, slerp, task_arithmetic, ties
from populora.adapters.operators.mutations import (
    component_masking,
    copy_parent,
    full_gaussian,
    layer_gaussian,
    neftune,
    rank_perturbation,
    svd_structured,
)
from populora.core.errors import ConfigError, did_you_mean

GROUP = "populora.adapters.operators"


@dataclass(frozen=True)
class Operator:
    """A named operator. ``function(parents, rng, **strength)`` is pure and returns a child of the parents' rank and shapes.

    Strengths are its keyword-only arguments, each with a default. With ``takes_refactor`` it is also given ``refactor``.
    """

    name: str
    arity: int
    """Number of parents: 1 for a mutation, 2 for a crossover. With ``takes_more`` the minimum, and the number that evolution uses."""
    function: Callable[..., Adapter]
    summary: str
    takes_refactor: bool = False
    control: bool = False
    """A child may equal its parent; `populora.adapters.operators.breeding.breed` refuses such children of other operators."""
    mixes_factors: bool = False
    """It combines the parents' factors entry by entry at its default strengths, so they must share a basis."""
    min_rank: int = 1
    """The smallest rank it works on at its default strengths."""
    takes_more: bool = False
    """It takes any number of parents from ``arity`` on."""
    in_paper: bool = True
    """It is in the paper's catalogue, which the retention benchmark compares by default."""

    @property
    def alias(self) -> str:
        """The long name, such as ``svd_structured`` for m1."""
        return self.function.__name__

    @property
    def strengths(self) -> dict[str, float | str]:
        """Strengths and their defaults."""
        parameters = inspect.signature(self.function).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "refactor"}

    def check_arity(self, parents: int) -> None:
        """Raise `ConfigError` for another number of parents than the operator takes."""
        if parents != self.arity and not (self.takes_more and parents > self.arity):
            raise ConfigError(f"operator '{self.name}' takes {self.arity}{' or more' * self.takes_more} parent(s), got {parents}")

    def check_refactor(self, refactor: str) -> None:
        """Raise `ConfigError` for a ``refactor`` that the operator would not use; empty stands for the default."""
        if refactor and not self.takes_refactor:
            raise ConfigError(f"operator '{self.name}' splits no singular values: leave refactor out")

    def check_strength(self, strength: Mapping[str, float | str]) -> None:
        """Raise `ConfigError` for a strength that the operator does not have, or of another type."""
        defaults = self.strengths
        for name, value in strength.items():
            if name not in defaults:
                hint = did_you_mean(name, defaults, cutoff=0.4)
                raise ConfigError(f"operator '{self.name}' has no strength '{name}'.{hint} It has: {', '.join(defaults) or 'none'}.")
            kind = str if isinstance(defaults[name], str) else (int, float)
            fits = isinstance(value, kind) and not isinstance(value, bool)
            if not fits or not (isinstance(value, str) or abs(value) <= sys.float_info.max):
                expected = "a word" if kind is str else "a finite number"
                raise ConfigError(f"operator '{self.name}', strength '{name}': expected {expected}, got {value!r}")


OPERATORS: dict[str, Operator] = {
    operator.name: operator
    for operator in (
        Operator(
            "m1", 1, svd_structured, "noise on singular values, small rotations of singular vectors (first_order, or cayley: exact)",
            takes_refactor=True,
        ),
        Operator("m2", 1, layer_gaussian, "Gaussian noise on a random third of the modules"),
        Operator("m3", 1, component_masking, "a random 30 % of the singular components set to zero", takes_refactor=True),
        Operator("m4", 1, full_gaussian, "Gaussian noise on every factor"),
        Operator("m5", 1, neftune, "uniform noise on every A, scaled by its size"),
        Operator(
            "m6", 1, rank_perturbation, "weakest components set to zero, noise on other singular values", takes_refactor=True, min_rank=3
        ),
        Operator("copy_parent", 1, copy_parent, "control: an exact copy", control=True),
        Operator(
            "x1", 2, dare, "drop and rescale the factors of both parents, then average (space: factor, or delta, which takes long)",
            takes_refactor=True, mixes_factors=True,
        ),
        Operator("x2", 2, layer_wise, "each module whole from one parent or the other"),
        Operator("x3", 2, svd_subspace, "leading components of parent 1, trailing ones of parent 2", takes_refactor=True, min_rank=2),
        Operator("x4", 2, extrapolative, "beyond parent 2 along the difference of the parents", mixes_factors=True),
        Operator("x5", 2, task_arithmetic, "a weighted mean of the parents' factors", mixes_factors=True),
        Operator("x6", 2, ties, "small entries trimmed, then the mean of the parents that agree with the elected sign", mixes_factors=True),
        Operator("x7", 2, della, "drop small entries more often than large ones, rescale, then average", mixes_factors=True),
        Operator("x8", 2, slerp, "along the arc between the parents, tensor by tensor", mixes_factors=True),
        Operator("x9", 2, fisher, "a mean in which each entry weighs its own square", mixes_factors=True),
        Operator("linear_0_5", 2, linear_0_5, "control: the mean of the parents' factors", control=True, mixes_factors=True),
        Operator(
            "soup", 2, soup, "the mean of the deltas of two or more parents, at their rank",
            takes_refactor=True, takes_more=True, in_paper=False,
        ),
    )
}  # fmt: skip
"""The built-in operators by name: the paper's seventeen, by its names, and `soup`."""


def get_operator(name: str) -> Operator:
    """Return the operator of that name or alias, built in or from an entry point. Raises `ConfigError` naming the nearest."""
    if not isinstance(name, str):
        raise ConfigError(
            f"expected the name of an operator, got {name!r}: one of your own has an entry point of group '{GROUP}' (docs/operators.md), "
            "or call its function with the parents"
        )
    built_in = OPERATORS | {operator.alias: operator for operator in OPERATORS.values()}
    if name.lower() in built_in:
        return built_in[name.lower()]
    third_party = {point.name: point for point in entry_points(group=GROUP)}
    if name in third_party:
        return _load(third_party[name])
    hint = did_you_mean(name, [*built_in, *third_party], cutoff=0.4)
    raise ConfigError(f"unknown operator '{name}'.{hint} Known: {', '.join([*OPERATORS, *third_party])}.")


def available_operators() -> dict[str, Operator]:
    """Return all operators by name, the built-in ones first. Loads every entry point. Raises `ConfigError` for one that does not load."""
    return OPERATORS | {point.name: _load(point) for point in entry_points(group=GROUP)}


def parse_strengths(texts: Iterable[str], where: str) -> dict[str, float | str]:
    """Read strengths written ``NAME=VALUE``. Raises `ConfigError`, for a name that comes twice with ``where`` it did."""
    strengths: dict[str, float | str] = {}
    for name, value in map(_parse_strength, texts):
        if name in strengths:
            raise ConfigError(f"{where}: expected each name once, got '{name}' twice")
        strengths[name] = value
    return strengths


def _parse_strength(text: str) -> tuple[str, float | str]:
    """Split a strength written ``NAME=VALUE`` into its name and its value, a number if it reads as one. Raises `ConfigError`."""
    name, _, value = text.partition("=")
    if not (name and value):
        raise ConfigError(f"expected a strength as NAME=VALUE, such as epsilon=0.2, got '{text}'")
    for kind in (int, float):
        with suppress(ValueError):
            return name, kind(value)
    return name, value


def _load(point: EntryPoint) -> Operator:
    label = f"operator '{point.name}' (entry point {point.value})"
    try:
        operator = point.load()
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{label} cannot be loaded: {error}. Repair or uninstall its package.") from error
    if point.name.lower() in {alias for built_in in OPERATORS.values() for alias in (built_in.name, built_in.alias)}:
        raise ConfigError(f"{label}: a built-in operator has that name. Its package has to choose another.")
    if not isinstance(operator, Operator) or operator.name != point.name or operator.arity not in (1, 2):
        raise ConfigError(f"{label}: expected an Operator of that name with 1 or 2 parents, got {operator!r}")
    return operator
