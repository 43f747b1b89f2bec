"""Which learner computes what of a step: longest processing time first (Graham 1969), with owners.

Each rank (learner process) holds the whole base and owns some adapters. The rows of an adapter come in pieces
(`populora.engine.learning.work_splitting`), and its owner computes them, without any gradient traffic, unless it would have more than
``1 + tolerance`` times the ideal load. What is above that ceiling moves, from the most loaded rank first and to the rank with most room,
on the owner's node if there is room there. Such a helper needs the adapter's weights and sends back one gradient, however many of its
pieces it computes: a pair of slot and helper has a fixed cost. If the ceiling cannot be kept, it is raised until it can.

The result is a function of the arguments alone: a step that is replayed after a fault gives the same bytes. Cost is counted in
tokens; attention over long rows, which grows with the square of their length, is not counted apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from populora.core.errors import PopuloraError

RAISE = 1.25
"""A ceiling that cannot be kept is tried again with so many times the slack."""


@dataclass(frozen=True)
class Share:
    """What one rank computes of one slot: ``pieces`` are indices into the slot's work, ascending."""

    slot: int
    pieces: tuple[int, ...]


@dataclass(frozen=True)
class Help:
    """``helper`` (a rank) sends a gradient of ``slot`` to the slot's owner."""

    slot: int
    helper: int


@dataclass(frozen=True)
class Assignment:
    """Who computes what; every piece stands in exactly one share."""

    shares: tuple[tuple[Share, ...], ...]
    """By rank, in the order of computing: first where it helps, so that its gradients travel while it computes its own slots."""
    helps: tuple[Help, ...]
    """By slot, then helper: the order in which an owner adds gradients to its own."""
    loads: tuple[float, ...]
    """By rank, tokens: its pieces and its costs of helping."""
    ideal: float
    """Tokens: the mean load, or the largest piece if that is more. No assignment is below it."""

    @property
    def makespan(self) -> float:
        """Tokens of the most loaded rank, for which all others wait."""
        return max(self.loads)


@dataclass(frozen=True)
class _Step:
    """The arguments, checked. ``loads`` [ranks] are those of owners without help; ``owned[rank][slot]`` are the slot's pieces as (tokens,
    index), largest first."""

    loads: np.ndarray
    owned: tuple[dict[int, list[tuple[int, int]]], ...]
    nodes: np.ndarray
    near: float
    far: float


def owners_of(slots: int, ranks: int) -> dict[int, int]:
    """The rank that owns each slot: slot modulo ranks.

    Ranks own equally many slots, up to one, and each some of both roles, since teachers' slots come first. The owner depends on nothing
    that changes in a run: an optimiser's moments never travel, and a rank that starts again knows what to load.
    """
    if slots < 1 or ranks < 1:
        raise PopuloraError(f"expected at least one slot and one rank, got {slots} and {ranks}")
    return {slot: slot % ranks for slot in range(slots)}


def assign(
    work: Mapping[int, Sequence[int]],
    owners: Mapping[int, int],
    ranks: int,
    help_cost: float,
    nodes: Sequence[int] | None = None,
    far_cost: float | None = None,
    tolerance: float = 0.02,
) -> Assignment:
    """Who computes which pieces: ``work[slot]`` are the tokens of its pieces, ``owners[slot]`` is its rank, below ``ranks``.

    ``help_cost`` is that of a pair of slot and helper, in tokens that a rank computes in the same time; ``far_cost`` that of a pair on two
    nodes (default: the same), with the node of each rank in ``nodes``. The makespan is never above that without help, and nobody is
    helped while no owner has more than ``1 + tolerance`` times the ideal. Raises `PopuloraError` for arguments that do not fit together.
    """
    step = _checked(work, owners, ranks, help_cost, nodes, far_cost, tolerance)
    largest = max((tokens for sizes in work.values() for tokens in sizes), default=0)
    ideal = max(float(step.loads.mean()), float(largest))
    slack = tolerance * ideal
    while (relieved := _relieved(step, ideal + slack)) is None:
        slack *= RAISE
    moved, loads = relieved
    return Assignment(_shares(work, owners, ranks, moved), tuple(Help(*pair) for pair in sorted(moved)), tuple(loads.tolist()), ideal)


def _relieved(step: _Step, ceiling: float) -> tuple[dict[tuple[int, int], list[int]], np.ndarray] | None:
    """Pieces by (slot, helper) that leave no rank above ``ceiling``, and the loads [ranks] with them; None where none were found."""
    loads = step.loads.copy()
    moved: dict[tuple[int, int], list[int]] = {}
    donors = sorted(np.flatnonzero(loads > ceiling).tolist(), key=lambda rank: (-loads[rank], rank))
    left = {donor: {slot: list(pieces) for slot, pieces in step.owned[donor].items()} for donor in donors}
    for elsewhere in (math.inf, step.far):  # nobody takes room on another node before those of that node have had it
        for donor in donors:
            costs = np.where(step.nodes == step.nodes[donor], step.near, elsewhere)
            while loads[donor] > ceiling and _hand_over(donor, left[donor], ceiling, costs, loads, moved):
                pass
    return (moved, loads) if loads.max() <= ceiling else None


def _hand_over(
    donor: int,
    left: dict[int, list[tuple[int, int]]],
    ceiling: float,
    costs: np.ndarray,
    loads: np.ndarray,
    moved: dict[tuple[int, int], list[int]],
) -> bool:
    """Move pieces of one of the donor's slots, the largest that it has left, to the rank with most room; False if nothing fits."""
    rooms = ceiling - loads - costs
    helper = int(rooms.argmax())
    fitting = [slot for slot, pieces in left.items() if pieces and pieces[-1][0] <= rooms[helper] and (slot, helper) not in moved]
    if not fitting:
        return False
    slot = max(fitting, key=lambda slot: sum(tokens for tokens, _ in left[slot]))
    loads[helper] += costs[helper]
    kept: list[tuple[int, int]] = []
    for tokens, index in left[slot]:
        if loads[donor] > ceiling and loads[helper] + tokens <= ceiling:
            moved.setdefault((slot, helper), []).append(index)
            loads[donor] -= tokens
            loads[helper] += tokens
        else:
            kept.append((tokens, index))
    left[slot] = kept
    return True


def _shares(
    work: Mapping[int, Sequence[int]], owners: Mapping[int, int], ranks: int, moved: Mapping[tuple[int, int], Sequence[int]]
) -> tuple[tuple[Share, ...], ...]:
    helping: list[list[Share]] = [[] for _ in range(ranks)]
    owning: list[list[Share]] = [[] for _ in range(ranks)]
    gone: dict[int, set[int]] = {slot: set() for slot in work}
    for (slot, helper), pieces in sorted(moved.items()):
        helping[helper].append(Share(slot, tuple(sorted(pieces))))
        gone[slot].update(pieces)
    for slot in sorted(work):
        if kept := tuple(index for index in range(len(work[slot])) if index not in gone[slot]):
            owning[owners[slot]].append(Share(slot, kept))
    return tuple((*one, *other) for one, other in zip(helping, owning, strict=True))


def _checked(
    work: Mapping[int, Sequence[int]],
    owners: Mapping[int, int],
    ranks: int,
    near: float,
    nodes: Sequence[int] | None,
    far: float | None,
    tolerance: float,
) -> _Step:
    far = near if far is None else far
    if not (0.0 <= near <= far < math.inf and 0.0 < tolerance < math.inf):
        raise PopuloraError(
            f"expected 0 <= help_cost <= far_cost and a tolerance above 0, all finite; got {near}, {far} and a tolerance of {tolerance}"
        )
    if ranks < 1 or (nodes is not None and len(nodes) != ranks):
        raise PopuloraError(f"expected at least one rank and a node for each, got {ranks} ranks and nodes {nodes}")
    loads = np.zeros(ranks)
    owned: tuple[dict[int, list[tuple[int, int]]], ...] = tuple({} for _ in range(ranks))
    for slot in sorted(work):
        if not 0 <= owners.get(slot, -1) < ranks:
            raise PopuloraError(f"slot {slot}: expected an owner among {ranks} ranks, got {owners.get(slot)}")
        if any(tokens <= 0 for tokens in work[slot]):
            raise PopuloraError(f"slot {slot}: expected pieces of at least one token, got {list(work[slot])}")
        loads[owners[slot]] += sum(work[slot])
        owned[owners[slot]][slot] = sorted(
            ((tokens, index) for index, tokens in enumerate(work[slot])), key=lambda piece: (-piece[0], piece[1])
        )
    return _Step(loads, owned, np.zeros(ranks, int) if nodes is None else np.asarray(nodes), near, far)
