"""Assign a step's training work to learners: longest processing time first (Graham 1969), with owners.

Each rank (learner process) owns some adapters and computes their items (`populora.engine.learning.work_splitting`), unless its load would
exceed ``1 + TOLERANCE`` times the ideal. Work above that ceiling moves, from the most loaded rank first, to the rank with most room, on the
owner's node if possible. This helper borrows the adapter's weights and sends back one gradient, so each pair of slot and helper has a fixed
cost. A ceiling that cannot be kept is raised. The result depends on the arguments alone, so a repeated step gives identical results.
Costs are in tokens; the quadratic cost of attention is ignored.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

TOLERANCE = 0.02
RAISE = 1.25
"""Factor on the slack of a ceiling that cannot be kept."""
Items = dict[int, list[tuple[int, int]]]
"""Items by slot as (tokens, index), largest first."""
Moved = dict[tuple[int, int], list[int]]
"""Indices of items by (slot, helper)."""


@dataclass(frozen=True)
class Assignment:
    """Every item is either in ``kept`` or in ``moved``, as an index into its slot's work."""

    kept: dict[int, list[int]]
    """Items that the owner computes, by slot."""
    moved: Moved
    """Items that a helper (a rank) computes. The order is that in which an owner adds the helpers' gradients to its own."""
    loads: tuple[float, ...]
    """Tokens by rank: its items and its costs of helping."""
    ideal: float
    """Mean load in tokens, or the largest item if that is more: a lower bound of every assignment."""


def owners_of(slots: int, ranks: int) -> dict[int, int]:
    """Return the rank that owns each slot: slot modulo ranks. This mixes teachers, whose slots come first, and students. Owners never
    change, so optimiser moments never move."""
    return {slot: slot % ranks for slot in range(slots)}


def assign(
    work: Mapping[int, Sequence[int]], owners: Mapping[int, int], ranks: int, help_cost: float, nodes: Sequence[int], far_cost: float
) -> Assignment:
    """Assign items to ranks: ``work[slot]`` are the tokens of the slot's items, ``owners[slot]`` its rank, ``nodes`` each rank's node.
    A pair of slot and helper costs ``help_cost`` tokens on one node and ``far_cost`` on two. The makespan never exceeds that without help.
    """
    owned: list[Items] = [{} for _ in range(ranks)]
    for slot in sorted(work):
        items = [(tokens, index) for index, tokens in enumerate(work[slot])]
        owned[owners[slot]][slot] = sorted(items, key=lambda item: (-item[0], item[1]))
    loads = np.array([float(sum(tokens for items in slots.values() for tokens, _ in items)) for slots in owned])
    ideal = max(float(loads.mean()), max((float(tokens) for sizes in work.values() for tokens in sizes), default=0.0))
    slack = TOLERANCE * ideal
    while (result := _reduce_max_load(owned, loads.copy(), ideal + slack, np.asarray(nodes), help_cost, far_cost)) is None:
        slack *= RAISE
    moved, loads = result
    gone = {(slot, index) for (slot, _), indices in moved.items() for index in indices}
    kept = {slot: [index for index in range(len(work[slot])) if (slot, index) not in gone] for slot in sorted(work)}
    return Assignment(kept, {pair: sorted(moved[pair]) for pair in sorted(moved)}, tuple(loads.tolist()), ideal)


def _reduce_max_load(
    owned: Sequence[Items], loads: np.ndarray, ceiling: float, nodes: np.ndarray, near: float, far: float
) -> tuple[Moved, np.ndarray] | None:
    """Move items until no rank is above ``ceiling``, updating ``loads`` [ranks]. Returns None if that fails."""
    moved: Moved = {}
    donors = sorted(np.flatnonzero(loads > ceiling).tolist(), key=lambda rank: (-loads[rank], rank))
    left: dict[int, Items] = {donor: {slot: list(items) for slot, items in owned[donor].items()} for donor in donors}
    for far_cost in (math.inf, far):  # ranks of another node get room on a node only after its own ranks
        for donor in donors:
            costs = np.where(nodes == nodes[donor], near, far_cost)
            while loads[donor] > ceiling and _move_work(donor, left[donor], ceiling, costs, loads, moved):
                pass
    return (moved, loads) if loads.max() <= ceiling else None


def _move_work(donor: int, left: Items, ceiling: float, costs: np.ndarray, loads: np.ndarray, moved: Moved) -> bool:
    """Move items of the donor's largest slot, largest first, to the rank with most room. Returns False if nothing fits."""
    rooms = ceiling - loads - costs
    helper = int(rooms.argmax())
    fitting = [slot for slot, items in left.items() if items and items[-1][0] <= rooms[helper] and (slot, helper) not in moved]
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
