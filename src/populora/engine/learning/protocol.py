"""What the step asks of whatever updates the members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from populora.core.types import Generation
from populora.engine.learning.batching import TrainRow
from populora.engine.learning.update import SlotUpdate


class Updater(Protocol):
    """Updates the adapters of a run's bank, in this process or in others."""

    @property
    def agreement(self) -> float:
        """Largest mean difference (nats) of log-probabilities between sampler and learner."""
        ...

    def logprobs(self, slot: int, answers: Sequence[Generation]) -> torch.Tensor:
        """Log-probabilities (nats) of all the answers' tokens [N], on the CPU, under the adapter in ``slot`` (-1: the bare base)."""
        ...

    def update(self, rows: Sequence[TrainRow]) -> dict[int, SlotUpdate]:
        """One optimiser step for every slot that has rows and an advantage other than zero.

        Raises `PopuloraError` naming the slot for a loss or gradient that is not finite, `AdapterEffectError` when sampler
        and learner disagree and `ConfigError` for a row over the token budget; weights are then as before. Raises
        `AdapterEffectError` as well for a slot whose gradient moves no weight.
        """
        ...
