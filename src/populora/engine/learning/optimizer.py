"""AdamW (Loshchilov and Hutter 2019) on one slot of the bank, with the slot's own step count and gradient clip.

torch's optimiser has one step count per parameter and would move every slot of a stacked tensor, also those without data;
here a slot that is not named stays as it is to the bit, and a child starts its bias correction at its own first step.
"""

from __future__ import annotations

import torch

from populora.core.config import LearnerConfig
from populora.engine.model.bank import LoraBank


def clip_coefficient(norm: float, bound: float) -> float:
    """Factor that brings a gradient of this norm to ``bound`` at most (as torch's ``clip_grad_norm_``)."""
    return min(1.0, bound / (norm + 1e-6))


@torch.no_grad()
def adamw_step(bank: LoraBank, slot: int, gradient_scale: float, config: LearnerConfig) -> None:
    """One step of ``slot`` from its row of ``bank.gradient`` times ``gradient_scale``."""
    bank.steps[slot] += 1
    step = int(bank.steps[slot])
    first, second = config.betas
    gradient = bank.gradient[slot] * gradient_scale
    weights, mean, square = bank.master[slot], bank.first_moment[slot], bank.second_moment[slot]
    weights.mul_(1.0 - config.learning_rate * config.weight_decay)
    mean.lerp_(gradient, 1.0 - first)
    square.mul_(second).addcmul_(gradient, gradient, value=1.0 - second)
    denominator = (square.sqrt() / (1.0 - second**step) ** 0.5).add_(config.epsilon)
    weights.addcdiv_(mean, denominator, value=-config.learning_rate / (1.0 - first**step))
    bank.sync(slot)
