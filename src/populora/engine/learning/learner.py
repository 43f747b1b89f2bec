"""One mixed update of all members, in this process.

Updating N adapters in one batch equals N separate updates (`populora.engine.learning.update`). Gradient clip, step count and skipping are
per slot. Nothing changes unless every loss and gradient is finite and sampler and learner agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch

from populora.core.config import LearnerConfig
from populora.core.errors import AdapterEffectError
from populora.core.types import Generation
from populora.engine.learning.batching import TrainRow, Unit, micro_batches
from populora.engine.learning.loss import divergence, policy_loss, truncation
from populora.engine.learning.optimizer import adamw_step, clip_coefficient
from populora.engine.learning.update import SlotUpdate, batch_of, guarded
from populora.engine.model.model import AdaptedModel
from populora.engine.model.packing import Group, pack


class Learner:
    """Updates the adapters of ``adapted`` in place. ``agreement`` (nats; default: the model's) bounds
    `SlotUpdate.mean_difference`; infinity allows rows that older weights sampled."""

    def __init__(self, adapted: AdaptedModel, config: LearnerConfig, agreement: float | None = None):
        self.adapted, self.config = adapted, config
        self.agreement = adapted.agreement if agreement is None else agreement

    @torch.no_grad()
    def logprobs(self, slot: int, answers: Sequence[Generation]) -> torch.Tensor:
        """See `populora.engine.learning.protocol.Updater.logprobs`."""
        packed = pack([Group(slot, answer.prompt_tokens, (answer.tokens,)) for answer in answers], self.adapted.device)
        return self.adapted.logprobs(packed)[0].cpu()

    def update(self, rows: Sequence[TrainRow]) -> dict[int, SlotUpdate]:
        """See `populora.engine.learning.protocol.Updater.update`."""
        bank = self.adapted.bank
        batch = batch_of(rows, bank.slots)
        if not batch.active:
            return batch.skipped
        bank.gradient.zero_()
        sums = self.accumulate(micro_batches(batch.rows, self.config.micro_batch_tokens), batch.tokens)
        norms = self.norms()
        updates = guarded(batch, sums, norms, self.agreement, self.config)
        for slot in batch.active:
            self.step(slot, norms[slot])
        return dict(sorted((updates | batch.skipped).items()))

    def accumulate(self, batches: Iterable[Sequence[Unit]], tokens: Mapping[int, float]) -> dict[int, list[float]]:
        """Add the gradients of some of a step's micro-batches to the bank's; ``tokens`` are the response tokens of the whole step.

        Returns the sums that `guarded` takes, by slot: loss, entropy, clipped tokens, divergence, difference, importance weight and its
        square, and the largest difference.
        """
        device, slots = self.adapted.device, self.adapted.bank.slots
        shares = torch.tensor([1.0 / max(tokens.get(slot, 0), 1) for slot in range(slots)], device=device)
        sums = torch.zeros(slots, 8, dtype=torch.float64, device=device)
        for units in batches:
            self._backward(units, shares, sums)
        return dict(enumerate(sums.tolist()))

    def norms(self) -> dict[int, float]:
        """Norm of the gradient of each slot, before clipping."""
        return dict(enumerate(self.adapted.bank.gradient.norm(dim=1).tolist()))

    def step(self, slot: int, norm: float) -> None:
        """Clip the gradient of a slot, which has this norm, and step. Raises `AdapterEffectError` if that moves no weight."""
        bank, config = self.adapted.bank, self.config
        only_decayed = bank.master[slot] * (1.0 - config.learning_rate * config.weight_decay)
        adamw_step(bank, slot, clip_coefficient(norm, config.grad_clip), config)
        if norm > 0.0 and torch.equal(only_decayed, bank.master[slot]):
            raise AdapterEffectError(
                f"slot {slot}: an update must change the adapter, but its gradient (norm {norm:.2e}) had no effect on any weight. "
                "Start a new run with a higher learner.learning_rate."
            )

    def _backward(self, units: Sequence[Unit], shares: torch.Tensor, sums: torch.Tensor) -> None:
        """One micro-batch: its gradients, and its terms [8] added to ``sums`` [S, 8]."""
        device, config = self.adapted.device, self.config
        slot, sampled, advantages = _columns(units, device)
        packed = pack([unit.group for unit in units], device)
        logprobs, entropies = self.adapted.logprobs(packed)
        # The batch is one optimiser step: before it, the learner's own log-probabilities are those of this very forward.
        old = logprobs.detach() if config.old_logprobs == "recomputed" else sampled
        losses, clipped = policy_loss(logprobs, old, advantages, config.clip_low, config.clip_high)
        losses = losses * truncation(logprobs, old, sampled, config.tis_cap)
        (losses * shares[slot]).sum().backward()
        gap = logprobs.detach() - sampled
        differences, weights = gap.abs(), gap.exp().clamp(max=config.tis_cap)
        terms = (losses.detach(), entropies, clipped.float(), divergence(gap), differences, weights, weights**2)
        sums[:, :7].index_add_(0, slot, torch.stack(terms, 1).double())
        for present in slot.unique().tolist():
            sums[present, 7] = torch.maximum(sums[present, 7], differences[slot == present].max().double())


def _columns(units: Sequence[Unit], device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Slot, old log-probability and advantage of each response token, in the order of `pack`."""
    rows = [row for unit in units for row in unit.rows]
    slot = torch.tensor([row.slot for row in rows for _ in row.tokens], device=device)
    old = torch.tensor([value for row in rows for value in row.logprobs], dtype=torch.float32, device=device)
    advantages = torch.tensor([row.advantage for row in rows for _ in row.tokens], dtype=torch.float32, device=device)
    return slot, old, advantages
