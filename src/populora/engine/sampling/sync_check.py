"""The effect canary: the classic silent failures of LoRA training, an adapter that does nothing and a sampler with other
weights than the learner, stop the run.

The learner itself compares the log-probabilities of every row before each update; this check asks the sampler again after
the update, so that weights which did not reach it are found before the next step is built on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from populora.core.errors import AdapterEffectError
from populora.core.types import Request
from populora.engine.learning.protocol import Updater
from populora.engine.model.bank import LoraBank
from populora.engine.model.model import RARE
from populora.engine.sampling.protocol import Sampler

TOKENS = 8  # greedy tokens per probe


@dataclass(frozen=True)
class Effect:
    """Absolute differences in log-probability (nats) over the probes' tokens."""

    against_base: dict[int, float]
    """Per trained slot: adapter against bare base, the largest."""
    sampler: float
    """Sampler against learner: the mean of a slot without its worst token, and of those the largest."""


def check_effect(learner: Updater, sampler: Sampler, bank: LoraBank, probes: Sequence[str], slots: Sequence[int] | None = None) -> Effect:
    """Sample the probes greedily under each of ``slots`` (default: all) and compare with learner and bare base.

    Slots whose B is zero are untrained and pass. Raises `AdapterEffectError` naming the slot when a trained adapter changes
    no log-probability, or the sampler's differ from the learner's by more than their agreement: in the mean without the worst
    token, which may differ by `RARE` times as much, as in the learner's guard. In the mean of so few tokens it would decide alone.
    """
    chosen = range(bank.slots) if slots is None else sorted(slots)
    agreement = learner.agreement
    requests = [Request(probe, slot, 1, ("canary", slot, index)) for slot in chosen for index, probe in enumerate(probes)]
    answers = [answer[0] for answer in sampler.generate(requests, TOKENS, 0.0, "")]
    against_base: dict[int, float] = {}
    worst = 0.0
    for slot in chosen:
        mine = [answer for request, answer in zip(requests, answers, strict=True) if request.slot == slot]
        learned, bare = learner.logprobs(slot, mine), learner.logprobs(-1, mine)
        sampled = torch.tensor([value for answer in mine for value in answer.logprobs])
        differences, effect = (sampled - learned).abs(), float((learned - bare).abs().max())
        rare, difference = float(differences.max()), float(differences.sort().values[:-1].sum() / max(len(differences) - 1, 1))
        if not (difference <= agreement and rare <= RARE * agreement):
            ignored = float((sampled - bare).abs().max()) <= RARE * agreement < effect
            raise AdapterEffectError(
                f"slot {slot}: sampler and learner must agree within {agreement} nats in the mean and {RARE * agreement} "
                f"for each token, but differ by {difference:.2e} and {rare:.2e} over its probes. The sampler "
                f"{'answers as the bare base' if ignored else 'has another adapter, perhaps an older one'}: "
                "go on from the last checkpoint with `populora resume`, which is intact; if that does not cure it, set engine.backend to "
                "'inprocess', whose sampler reads the learner's own weights, and report it."
            )
        worst = max(worst, difference)
        if not bank.untrained(slot):
            against_base[slot] = effect
            if effect == 0.0:
                raise AdapterEffectError(
                    f"slot {slot}: a trained adapter must change the base's log-probabilities, but changes none on {len(probes)} probes. "
                    "Its scale (lora.alpha) is zero or the model does not read it."
                )
    return Effect(against_base, worst)
