"""One mixed update of all members.

The loss of a slot is the mean over all response tokens of that slot in the whole batch (DAPO's token mean); the denominators
are known before the first backward, so updating N adapters in one batch equals N separate updates. Gradient clip, step count
and skipping are per slot. Nothing changes unless every loss and gradient is finite and sampler and learner agree.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from populora.config import LearnerConfig
from populora.errors import AdapterEffectError, PopuloraError
from populora.learner.batching import TrainRow, Unit, micro_batches
from populora.learner.loss import divergence, policy_loss, truncation
from populora.learner.optimizer import adamw_step, clip_coefficient
from populora.lora.model import RARE, AdaptedModel
from populora.lora.packing import Group, pack
from populora.types import Generation

__all__ = ["Learner", "SlotUpdate", "TrainRow"]


@dataclass(frozen=True)
class SlotUpdate:
    """What one update did to one slot; means are over its response tokens. A ``skipped`` slot had no advantage to learn from."""

    loss: float = 0.0
    grad_norm: float = 0.0
    """Before clipping."""
    entropy: float = 0.0
    clip_fraction: float = 0.0
    kl: float = 0.0
    """Between sampler and learner."""
    ess: float = 1.0
    """Effective sample size under the truncated importance weights learner / sampler, as a share of the tokens."""
    mean_difference: float = 0.0
    """Mean of |log-probability in the learner - in the sampler|, nats."""
    max_difference: float = 0.0
    """Largest of them."""
    tokens: int = 0
    skipped: bool = False


class Learner:
    """Updates the adapters of ``adapted`` in place. ``agreement`` (nats; default: the model's) bounds
    `SlotUpdate.mean_difference`; infinity allows rows that older weights sampled."""

    def __init__(self, adapted: AdaptedModel, config: LearnerConfig, agreement: float | None = None):
        self.adapted, self.config = adapted, config
        self.agreement = adapted.agreement if agreement is None else agreement

    @torch.inference_mode()
    def logprobs(self, slot: int, answers: Sequence[Generation]) -> torch.Tensor:
        """Log-probabilities (nats) of all the answers' tokens [N], on the CPU, under the adapter in ``slot`` (-1: the bare base)."""
        packed = pack([Group(slot, answer.prompt_tokens, (answer.tokens,)) for answer in answers], self.adapted.device)
        return self.adapted.logprobs(packed)[0].cpu()

    def update(self, rows: Sequence[TrainRow]) -> dict[int, SlotUpdate]:
        """One optimiser step for every slot that has rows and an advantage other than zero.

        Raises `PopuloraError` naming the slot for a loss or gradient that is not finite, `AdapterEffectError` when sampler
        and learner disagree and `ConfigError` for a row over the token budget; weights are then as before. Raises
        `AdapterEffectError` as well for a slot whose gradient moves no weight.
        """
        _check(rows, self.adapted.bank.slots)
        tokens = Counter[int]()
        for row in rows:
            tokens[row.slot] += len(row.tokens)
        active = sorted({row.slot for row in rows if row.advantage})
        skipped = {slot: SlotUpdate(tokens=tokens[slot], skipped=True) for slot in sorted(set(tokens) - set(active))}
        if not active:
            return skipped
        bank = self.adapted.bank
        bank.gradient.zero_()
        sums = self._accumulate([row for row in rows if row.slot in set(active)], tokens)
        norms = bank.gradient.norm(dim=1).tolist()
        updates = {slot: _summary(sums[slot].tolist(), norms[slot], tokens[slot]) for slot in active}
        for slot, update in updates.items():
            self._guard(slot, update)
        for slot in active:
            self._step(slot, norms[slot])
        return dict(sorted((updates | skipped).items()))

    def _accumulate(self, rows: Sequence[TrainRow], tokens: Counter[int]) -> torch.Tensor:
        """Gradients of all micro-batches; returns per slot [S, 8] the sums of loss, entropy, clipped tokens, divergence, difference,
        importance weight and its square, and the largest difference."""
        device, config = self.adapted.device, self.config
        slots = self.adapted.bank.slots
        shares = torch.tensor([1.0 / max(tokens[slot], 1) for slot in range(slots)], device=device)
        sums = torch.zeros(slots, 8, dtype=torch.float64, device=device)
        for units in micro_batches(rows, config.micro_batch_tokens):
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
        return sums

    def _step(self, slot: int, norm: float) -> None:
        bank, config = self.adapted.bank, self.config
        only_decayed = bank.master[slot] * (1.0 - config.learning_rate * config.weight_decay)
        adamw_step(bank, slot, clip_coefficient(norm, config.grad_clip), config)
        if norm > 0.0 and torch.equal(only_decayed, bank.master[slot]):
            raise AdapterEffectError(
                f"slot {slot}: an update must change the adapter, but its gradient (norm {norm:.2e}) had no effect on any weight. "
                "Start a new run with a higher learner.learning_rate."
            )

    def _guard(self, slot: int, update: SlotUpdate) -> None:
        if not (math.isfinite(update.loss) and math.isfinite(update.grad_norm)):
            raise PopuloraError(
                f"slot {slot}: expected a finite loss and gradient, got loss {update.loss} and gradient norm {update.grad_norm}. "
                "No weight was changed: start a new run with a lower learner.learning_rate, or another base.dtype."
            )
        if math.isinf(self.agreement):
            return
        if not (update.mean_difference <= self.agreement and update.max_difference <= RARE * self.agreement):
            raise AdapterEffectError(
                f"slot {slot}: sampler and learner must agree on log-probabilities within {self.agreement} nats in the mean and "
                f"{RARE * self.agreement} for each token, but differ by {update.mean_difference:.2e} and {update.max_difference:.2e}. "
                "The sampler has other weights than the learner (a stale copy?); no weight was changed."
            )
        if not (update.kl <= self.config.max_kl and update.ess >= self.config.min_ess):
            raise AdapterEffectError(
                f"slot {slot}: expected a KL between sampler and learner of at most {self.config.max_kl} (learner.max_kl) and an effective "
                f"sample size of at least {self.config.min_ess} (learner.min_ess), got {update.kl:.2e} and {update.ess:.2f}. The sampler "
                "does not sample from the weights that learn; no weight was changed."
            )


def _check(rows: Sequence[TrainRow], slots: int) -> None:
    for row in rows:
        if not (0 <= row.slot < slots and row.prompt_tokens and row.tokens and len(row.tokens) == len(row.logprobs)):
            raise ValueError(
                f"a row needs a slot below {slots}, a prompt, and a log-probability for each token; got slot {row.slot}, "
                f"{len(row.prompt_tokens)} prompt tokens, {len(row.tokens)} tokens and {len(row.logprobs)} log-probabilities"
            )


def _columns(units: Sequence[Unit], device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Slot, old log-probability and advantage of each response token, in the order of `pack`."""
    rows = [row for unit in units for row in unit.rows]
    slot = torch.tensor([row.slot for row in rows for _ in row.tokens], device=device)
    old = torch.tensor([value for row in rows for value in row.logprobs], dtype=torch.float32, device=device)
    advantages = torch.tensor([row.advantage for row in rows for _ in row.tokens], dtype=torch.float32, device=device)
    return slot, old, advantages


def _summary(sums: list[float], norm: float, tokens: int) -> SlotUpdate:
    loss, entropy, clipped, kl, difference, weight, square = (value / tokens for value in sums[:7])
    return SlotUpdate(loss, norm, entropy, clipped, kl, weight**2 / square if square else math.nan, difference, sums[7], tokens)
