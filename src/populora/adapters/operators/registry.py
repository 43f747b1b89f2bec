"""The operators by name. A third-party operator is an `Operator` behind an entry point of group ``populora.adapters.operators``:

    [project.entry-points."populora.adapters.operators"]
    my_operator = "my_package:MY_OPERATOR"

Entry points are loaded when a name that is not built in is asked for, never at import.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from populora.adapters.adapter import Adapter
from populora.adapters.operators.controls import copy_parent, linear_0_5
from populora.adapters.operators.crossovers import dare, extrapolative, layer_wise, svd_subspace
from populora.adapters.operators.merges import della, fisher, slerp, task_arithmetic, ties
from populora.adapters.operators.mutations import (
    component_masking,
    full_gaussian,
    layer_gaussian,
    neftune,
    rank_perturbation,
    svd_structured,
)
from populora.core.errors import ConfigError

GROUP = "populora.adapters.operators"


@dataclass(frozen=True)
class Operator:
    """A named operator. ``function(parents, rng, **strength)`` is pure and returns a child of the parents' rank and shapes.

    Strengths are its keyword-only arguments, each with a default. With ``takes_refactor`` it is also given ``refactor``.
    """

    name: str
    arity: int
    """Number of parents: 1 for a mutation, 2 for a crossover."""
    function: Callable[..., Adapter]
    summary: str
    takes_refactor: bool = False
    control: bool = False
    """Whether a child may well equal its parent; `populora.adapters.operators.breeding.breed` refuses such children of other operators."""
    mixes_factors: bool = False
    """Whether it combines the parents' factors entry by entry at its default strengths, which presumes that they share a basis."""
    min_rank: int = 1
    """The smallest rank it works on at its default strengths."""

    @property
    def alias(self) -> str:
        """The speaking name, such as ``svd_structured`` for m1."""
        return self.function.__name__

    @property
    def strengths(self) -> dict[str, float | str]:
        """Strengths and their defaults."""
        parameters = inspect.signature(self.function).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "refactor"}


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
    )
}  # fmt: skip
"""The built-in operators, by the paper's names."""


def get_operator(name: str) -> Operator:
    """The operator of that name or alias, built in or from an entry point. Raises `ConfigError` naming the nearest."""
    known = _built_in()
    if name.lower() in known:
        return known[name.lower()]
    third_party = {point.name: point for point in entry_points(group=GROUP)}
    if name in third_party:
        return _load(third_party[name])
    near = difflib.get_close_matches(name, [*known, *third_party], n=1, cutoff=0.4)
    hint = f"Did you mean '{near[0]}'? " if near else ""
    raise ConfigError(f"unknown operator '{name}'. {hint}Known: {', '.join([*OPERATORS, *third_party])}.")


def _built_in() -> dict[str, Operator]:
    """By name and by alias; all in small letters."""
    return OPERATORS | {operator.alias: operator for operator in OPERATORS.values()}


def available_operators() -> dict[str, Operator]:
    """All operators by name, the built-in ones first. Loads every entry point. Raises `ConfigError` for one that does not load."""
    return OPERATORS | {point.name: _load(point) for point in entry_points(group=GROUP)}


def _load(point: EntryPoint) -> Operator:
    where = f"operator '{point.name}' (entry point {point.value})"
    if point.name.lower() in _built_in():
        raise ConfigError(f"{where}: a built-in operator has that name. Its package has to choose another.")
    try:
        operator = point.load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{where} cannot be loaded: {error}. Repair or uninstall its package.") from error
    if not isinstance(operator, Operator):
        raise ConfigError(f"{where}: expected a populora.adapters.operators.registry.Operator, got {type(operator).__name__}")
    if operator.name != point.name:
        raise ConfigError(f"{where}: it calls itself '{operator.name}'. Name and entry point must be equal.")
    if operator.arity not in (1, 2):
        raise ConfigError(f"{where}: expected an operator of 1 or 2 parents, got arity {operator.arity}")
    return operator
