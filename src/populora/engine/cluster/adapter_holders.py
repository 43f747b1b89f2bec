"""Which engines hold which adapters, and which of them samples a request.

Without ``cluster.adapter_copies`` each engine holds all adapters. Hundreds of adapters take much of a GPU, and all of them would be sent to
every engine after each step, so each may be on a few engines only.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from populora.core.config import ClusterConfig

Holders = Mapping[int, Sequence[int]]
"""Engines by slot."""
BEFORE_ALL = 1 << 32
"""Weight of an adapter's own responses: more than an engine ever has."""


def holders_of(slots: int, cluster: ClusterConfig) -> Holders:
    """Return the engines that hold each slot's adapter: ``adapter_copies`` at equal distances from slot modulo engines on, or all for 0.
    Teachers have the first slots, and neighbours would leave some engines without one. All engines answer as the bare base, slot -1."""
    engines, copies = cluster.engines, cluster.adapter_copies
    if not copies:
        return dict.fromkeys(range(-1, slots), range(engines))
    distance = engines // copies
    return {slot: [(slot + distance * copy) % engines for copy in range(copies)] for slot in range(slots)} | {-1: range(engines)}


def held_slots(holders: Holders, engines: int) -> list[list[int]]:
    """Return the slots that each engine holds."""
    held: list[list[int]] = [[] for _ in range(engines)]
    for slot in sorted(slot for slot in holders if slot >= 0):
        for engine in holders[slot]:
            held[engine].append(slot)
    return held


class EngineLoads:
    """The responses that each engine has to sample. A request goes to the engine with fewest of them. Where an adapter is on some engines
    only, the fewest of this adapter count first: its responses have similar lengths, and its engines share them."""

    def __init__(self, holders: Holders, engines: int):
        self._holders = {slot: np.asarray(of_slot) for slot, of_slot in holders.items()}
        self._responses, self._of_slot = np.zeros(engines, int), np.zeros((len(holders), engines), int)  # the last row is slot -1's

    def add(self, slot: int, samples: int) -> int:
        """Choose an engine for a request, and count its responses there until they are removed."""
        holders = self._holders[slot]
        loads = self._responses[holders]
        if len(holders) < len(self._responses):
            loads += BEFORE_ALL * self._of_slot[slot, holders]
        engine = int(holders[loads.argmin()])
        self._responses[engine] += samples
        self._of_slot[slot, engine] += samples
        return engine

    def remove(self, slot: int, engine: int, samples: int) -> None:
        """Forget the responses of a request."""
        self._responses[engine] -= samples
        self._of_slot[slot, engine] -= samples
