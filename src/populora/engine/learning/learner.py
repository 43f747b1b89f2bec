"""One mixed update of all members: the clipped policy loss, its gradients, and AdamW, per adapter slot.

Updating N adapters in one batch equals N separate updates (`populora.engine.learning.update`). Gradient clipping, step count and skipping
are per slot. Weights change only if every loss and gradient is finite and sampler and learner agree.

The loss is PPO's (Schulman et al. 2017) with separate bounds (DAPO's clip-higher). The old log-probabilities are the sampler's own, or the
learner's of this forward. Either way a token's weight learner / sampler is truncated, because an engine of another precision may find a
token far less likely.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch

from populora.core.config import LearnerConfig
from populora.core.errors import AdapterEffectError
from populora.core.types import Generation, UpdateStats
from populora.engine.learning.batching import TrainGroup, TrainRow, micro_batches, split_by_tokens
from populora.engine.learning.update import check_update, make_batch
from populora.engine.model.adapted_model import MAX_TOKEN_FACTOR, AdaptedModel
from populora.engine.model.bank import LoraBank
from populora.engine.model.packing import PromptGroup


class Learner(Protocol):
    """Updates the adapters of a run's bank, in this process or in others."""

    agreement: float
    """The largest allowed mean difference (nats) of log-probabilities between sampler and learner."""

    @property
    def computation(self) -> Mapping[str, str]:
        """What computes attention and the base's products, in words."""
        ...

    def logprobs(self, answers: Mapping[int, Sequence[Generation]]) -> dict[int, torch.Tensor]:
        """Compute the log-probabilities (nats) of all N tokens of the answers of each slot (-1: the bare base), on the CPU.

        Returns for each slot [2, N]: under its adapter, and under the bare base. Both come from forwards of the same shape, so that they
        are equal to the last bit if the adapter does nothing.
        """
        ...

    def update(self, rows: Sequence[TrainRow], scales: Mapping[int, float] | None = None) -> dict[int, UpdateStats]:
        """Make one optimiser step for every slot that has rows and an advantage other than zero, of its step size times its scale (1 where
        ``scales`` has none).

        Raises `PopuloraError` with the slot for a loss or gradient that is not finite, `AdapterEffectError` when sampler
        and learner disagree and `ConfigError` for a row over the token budget; weights are then as before. Raises
        `AdapterEffectError` as well for a slot whose gradient changes no weight.
        """
        ...


class InProcessLearner:
    """Updates the adapters of ``adapted`` in place.

    ``agreement`` (nats; default: the model's) bounds `UpdateStats.mean_difference`; infinity allows rows that older weights sampled.
    """

    def __init__(self, adapted: AdaptedModel, config: LearnerConfig, agreement: float | None = None):
        self.adapted, self.config = adapted, config
        self.agreement = adapted.agreement if agreement is None else agreement
        self.computation = adapted.computation

    @torch.no_grad()
    def logprobs(self, answers: Mapping[int, Sequence[Generation]]) -> dict[int, torch.Tensor]:
        """See `Learner.logprobs`."""
        if not answers:
            return {}
        slots = sorted(answers)
        groups = [PromptGroup(slot, answer.prompt_tokens, (answer.tokens,)) for slot in slots for answer in answers[slot]]
        parts = split_by_tokens(range(len(groups)), [group.tokens for group in groups], 0, self.config.micro_batch_tokens)
        values = torch.cat([self._with_and_without([groups[index] for index in part]) for part, _ in parts], 1)
        tokens = [sum(len(answer.tokens) for answer in answers[slot]) for slot in slots]
        _give_memory_back()
        return dict(zip(slots, values.split(tokens, 1), strict=True))

    def update(self, rows: Sequence[TrainRow], scales: Mapping[int, float] | None = None) -> dict[int, UpdateStats]:
        """See `Learner.update`."""
        bank = self.adapted.bank
        batch = make_batch(rows, bank.slots, self.config)
        if not batch.active:
            return batch.skipped
        bank.gradient.zero_()
        sums = self.accumulate(micro_batches(batch.rows, self.config.micro_batch_tokens), batch.tokens)
        norms = self.norms()
        updates = check_update(batch, sums, norms, self.agreement, self.config)
        for slot in batch.active:
            self.step(slot, norms[slot], (scales or {}).get(slot, 1.0))
        return dict(sorted((updates | batch.skipped).items()))

    def accumulate(self, batches: Iterable[Sequence[TrainGroup]], tokens: Mapping[int, float]) -> dict[int, list[float]]:
        """Add the gradients of some of a step's micro-batches to the bank's; ``tokens`` are the response tokens of the whole step.

        Returns the sums that `check_update` takes, by slot: loss, entropy, clipped tokens, KL, difference, importance weight and its
        square, KL from the base, outliers, and the largest difference.
        """
        device, slots = self.adapted.device, self.adapted.bank.slots
        shares = torch.tensor([1.0 / max(tokens.get(slot, 0), 1) for slot in range(slots)], device=device)
        sums = torch.zeros(slots, 10, dtype=torch.float64, device=device)
        for groups in batches:
            self._backward(groups, shares, sums)
        by_slot = dict(enumerate(sums.tolist()))
        _give_memory_back()
        return by_slot

    def norms(self) -> dict[int, float]:
        """Return the norm of each slot's gradient, before clipping."""
        return dict(enumerate(self.adapted.bank.gradient.norm(dim=1).tolist()))

    def step(self, slot: int, norm: float, scale: float) -> None:
        """Clip the gradient of a slot, which has this norm, and make a step of its size times ``scale``. Raises `AdapterEffectError` if it
        changes no weight."""
        moved = adamw_step(self.adapted.bank, slot, clip_coefficient(norm, self.config.grad_clip), self.config, scale)
        if norm > 0.0 and not moved:
            raise AdapterEffectError(
                f"slot {slot}: an update must change the adapter, but its gradient (norm {norm:.2e}) had no effect on any weight. "
                "Start a new run with a higher learner.learning_rate or learner.teacher_learning_rate, a shorter learner.warmup_steps or "
                "no learner.decay_steps."
            )

    def _backward(self, groups: Sequence[TrainGroup], shares: torch.Tensor, sums: torch.Tensor) -> None:
        """Add the gradients of one micro-batch to the bank's, and its terms to ``sums`` [S, 10]."""
        device, config = self.adapted.device, self.config
        slot, sampled, advantages = _columns(groups, device)
        packed = self.adapted.pack([group.prompt_group for group in groups])
        logprobs, entropies = self.adapted.logprobs(packed)
        # The batch is one optimiser step, so the learner's old log-probabilities are those of this very forward.
        old = logprobs.detach() if config.old_logprobs == "recomputed" else sampled
        losses, clipped = policy_loss(logprobs, old, advantages, config.clip_low, config.clip_high)
        if config.tis_cap:
            losses = losses * truncation(logprobs, old, sampled, config.tis_cap)
        total, base = losses, logprobs.detach()
        if config.base_kl:
            base = self._base_logprobs([group.prompt_group for group in groups])
            total = losses + config.base_kl * kl_penalty(logprobs, base)
        (total * shares[slot]).sum().backward()
        gap = logprobs.detach() - sampled
        differences, weights = gap.abs(), gap.exp().clamp(max=config.tis_cap or math.inf)
        gaps = (kl(sampled, logprobs.detach()), differences, weights, weights**2)
        outliers = (differences > MAX_TOKEN_FACTOR * self.agreement).float()
        terms = (losses.detach(), entropies, clipped.float(), *gaps, kl(logprobs.detach(), base), outliers)
        sums[:, :-1].index_add_(0, slot, torch.stack(terms, 1).double())
        sums[:, -1].scatter_reduce_(0, slot, differences.double(), "amax")  # nothing is read back from a GPU

    def _with_and_without(self, groups: Sequence[PromptGroup]) -> torch.Tensor:
        """Compute the log-probabilities of the groups' response tokens [2, M] on the CPU, under their adapters and under the bare base."""
        return torch.stack([self.adapted.logprobs(self.adapted.pack(groups))[0], self._base_logprobs(groups)]).cpu()

    @torch.no_grad()
    def _base_logprobs(self, groups: Sequence[PromptGroup]) -> torch.Tensor:
        """Compute the bare base's log-probabilities of the groups' response tokens [M]."""
        return self.adapted.logprobs(self.adapted.pack([replace(group, slot=-1) for group in groups]))[0]


def _give_memory_back() -> None:
    """Give a GPU the memory of activations back, which torch keeps for itself: an engine of another process may need it for its cache
    (``engine.release_cache``)."""
    torch.cuda.empty_cache()  # nothing without a GPU


def _columns(groups: Sequence[TrainGroup], device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return slot, old log-probability and advantage of each response token, in the order of `pack`."""
    rows = [row for group in groups for row in group.rows]
    lengths = torch.tensor([len(row.tokens) for row in rows])
    slot = torch.tensor([row.slot for row in rows]).repeat_interleave(lengths)
    old = torch.from_numpy(np.concatenate([row.logprobs for row in rows], dtype=np.float32))
    advantages = torch.tensor([row.advantage for row in rows], dtype=torch.float32).repeat_interleave(lengths)
    return slot.to(device), old.to(device), advantages.to(device)


def policy_loss(
    logprobs: torch.Tensor, old: torch.Tensor, advantages: torch.Tensor, clip_low: float, clip_high: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the loss per token, max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high)) with r = exp(new - old), and where it is clipped."""
    ratio = (logprobs - old).exp()
    plain = -advantages * ratio
    clipped = -advantages * ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    return torch.maximum(plain, clipped), (clipped > plain).detach()


def kl(logprobs: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Estimate a KL from ``logprobs`` to ``other`` for each token that the former's model sampled: exp(d) - 1 - d, d their difference
    (Schulman's k3). It is never negative."""
    gap = other - logprobs
    return gap.expm1() - gap


def kl_penalty(logprobs: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
    """Compute half the squared difference for each token that the member sampled (Schulman's k2).

    Its mean gradient is that of KL(member || base). The gradient of `kl` is that of KL(base || member), which hardly pulls a member back
    from tokens that the base never writes.
    """
    return (logprobs - base) ** 2 / 2


def truncation(logprobs: torch.Tensor, old: torch.Tensor, sampled: torch.Tensor, cap: float) -> torch.Tensor:
    """Compute the constant factor per token that turns the ratio of `policy_loss` into the truncated weight min(new / sampler, cap)."""
    new = logprobs.detach()
    return (new - sampled).exp().clamp(max=cap) / (new - old).exp()


def clip_coefficient(norm: float, bound: float) -> float:
    """Return the factor that scales a gradient of this norm to at most ``bound`` (as torch's ``clip_grad_norm_``)."""
    return min(1.0, bound / (norm + 1e-6))


def step_size(config: LearnerConfig, update: int) -> float:
    """Return the step size of an adapter's update of this number, from 1, before it is scaled."""
    return config.learning_rate * min(1.0, update / max(1, config.warmup_steps))


@torch.no_grad()
def adamw_step(bank: LoraBank, slot: int, gradient_scale: float, config: LearnerConfig, scale: float = 1.0) -> bool:
    """Make one AdamW step (Loshchilov and Hutter 2019) of ``slot`` from its row of ``bank.gradient`` times ``gradient_scale``.

    Its size is that of the slot's next update times ``scale``. Returns False if no weight changed but by its decay.

    torch's optimiser has one step count per parameter and would move every slot of a stacked tensor. Here other slots stay
    bit-identical, and a child's bias correction and warm-up start at its own first step.
    """
    bank.steps[slot] += 1
    step = int(bank.steps[slot])
    rate = step_size(config, step) * scale
    first, second = config.betas
    gradient = bank.gradient[slot] * gradient_scale
    weights, mean, square = bank.master[slot], bank.first_moment[slot], bank.second_moment[slot]
    weights.mul_(1.0 - rate * config.weight_decay)
    decayed = weights.clone()
    mean.lerp_(gradient, 1.0 - first)
    square.mul_(second).addcmul_(gradient, gradient, value=1.0 - second)
    denominator = (square.sqrt() / (1.0 - second**step) ** 0.5).add_(config.epsilon)
    weights.addcdiv_(mean, denominator, value=-rate / (1.0 - first**step))
    bank.sync(slot)
    return not torch.equal(weights, decayed)
