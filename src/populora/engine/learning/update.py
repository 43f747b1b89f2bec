"""The batch of one mixed update, and the checks that must pass before any weight changes.

The loss of a slot is the mean over all response tokens of that slot in the whole batch (DAPO's token mean; advantages may have weights that
make it another mean, `populora.training.train_rows`). Its denominator is
computed before the first backward and its sums add up over parts of the batch, so several processes can share the work.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from populora.core.config import LearnerConfig
from populora.core.errors import AdapterEffectError, PopuloraError
from populora.core.types import UpdateStats
from populora.engine.learning.batching import TrainRow
from populora.engine.model.adapted_model import MAX_TOKEN_FACTOR

MAX_OUTLIERS = 1e-4
"""The share of a slot's tokens that may differ by more than `MAX_TOKEN_FACTOR` times the mean's bound; one token always may. In bf16 two
engines now and then disagree on a token by several nats. Its weight in the loss is truncated, if it has one (``learner.tis_cap``)."""


@dataclass(frozen=True)
class Batch:
    """``rows`` of the ``active`` slots, which have an advantage to learn from; response ``tokens`` by slot; stats of ``skipped`` slots."""

    rows: list[TrainRow]
    tokens: Counter[int]
    active: list[int]
    skipped: dict[int, UpdateStats]


def make_batch(rows: Sequence[TrainRow], slots: int, config: LearnerConfig) -> Batch:
    """Check the rows and sort out slots without advantages, which learn nothing unless the KL to the base is penalised.

    Raises `ValueError` for an incomplete row or a slot not below ``slots``.
    """
    tokens = Counter[int]()
    for row in rows:
        if not (0 <= row.slot < slots and row.prompt_tokens and row.tokens and len(row.tokens) == len(row.logprobs)):
            raise ValueError(
                f"a row needs a slot below {slots}, a prompt, and a log-probability for each token; got slot {row.slot}, "
                f"{len(row.prompt_tokens)} prompt tokens, {len(row.tokens)} tokens and {len(row.logprobs)} log-probabilities"
            )
        tokens[row.slot] += len(row.tokens)
    active = {row.slot for row in rows if row.advantage or config.base_kl}
    skipped = {slot: UpdateStats(tokens=tokens[slot], skipped=True) for slot in sorted(set(tokens) - active)}
    return Batch([row for row in rows if row.slot in active], tokens, sorted(active), skipped)


def check_update(
    batch: Batch, sums: Mapping[int, Sequence[float]], norms: Mapping[int, float], agreement: float, config: LearnerConfig
) -> dict[int, UpdateStats]:
    """Compute the statistics of every active slot from its sums (`InProcessLearner.accumulate`) and the norm of its gradient.

    Raises `PopuloraError` with the slot for a loss or gradient that is not finite, and `AdapterEffectError` when sampler and
    learner disagree by more than ``agreement`` nats in the mean, on too many tokens, or more than the settings allow.
    """
    updates = {slot: _stats(sums[slot], norms[slot], batch.tokens[slot], config) for slot in batch.active}
    for slot, update in updates.items():
        _check_slot(slot, update, agreement, config)
    return updates


def _stats(sums: Sequence[float], norm: float, tokens: int, config: LearnerConfig) -> UpdateStats:
    *means, largest = sums
    loss, entropy, clipped, kl, difference, weight, square, base_kl, outliers = (value / tokens for value in means)
    ess = weight**2 / square if square else math.nan
    return UpdateStats(
        loss, norm, entropy, clipped, kl, ess, difference, largest, tokens, base_kl=base_kl if config.base_kl else None, outliers=outliers
    )


def _check_slot(slot: int, update: UpdateStats, agreement: float, config: LearnerConfig) -> None:
    foreign = math.isfinite(update.mean_difference) and update.mean_difference > agreement  # may be so much that the loss overflows
    if not foreign and not (math.isfinite(update.loss) and math.isfinite(update.grad_norm)):
        raise PopuloraError(
            f"slot {slot}: expected a finite loss and gradient, got loss {update.loss} and gradient norm {update.grad_norm}. "
            "No weight was changed: start a new run with a lower learner.learning_rate, or another base.dtype."
        )
    if math.isinf(agreement):
        return
    outliers = round(update.outliers * update.tokens)
    if not (update.mean_difference <= agreement and outliers <= max(1.0, MAX_OUTLIERS * update.tokens)):
        raise AdapterEffectError(
            f"slot {slot}: sampler and learner must agree on log-probabilities within {agreement} nats in the mean and "
            f"{MAX_TOKEN_FACTOR * agreement} for all tokens but one in {1 / MAX_OUTLIERS:,.0f}, but differ by "
            f"{update.mean_difference:.2e}, and {outliers} of {update.tokens:,} tokens by more, up to {update.max_difference:.2e}. "
            "The sampler has other weights than the learner (a stale copy?); no weight was changed."
        )
    min_ess = config.min_ess if config.tis_cap else 0.0  # without weights their effective sample size is nobody's
    if not (update.kl <= config.max_kl and update.ess >= min_ess):
        raise AdapterEffectError(
            f"slot {slot}: expected a KL between sampler and learner of at most {config.max_kl} (learner.max_kl) and an effective "
            f"sample size of at least {min_ess} (learner.min_ess), got {update.kl:.2e} and {update.ess:.2f}. The sampler "
            "does not sample from the weights that learn; no weight was changed."
        )
