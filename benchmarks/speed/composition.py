"""The plain composition: a step as it is written with PEFT, transformers and torch alone, one adapter after the other.

It does the work of a step that populora did: the same tokens (`plain_sampling`), as many processes as there were programs (`programs`),
the same update (`plain_training`). Where there was a choice it was given the faster one, and this costs it nothing: old
log-probabilities, answers that only have to be parsed, the complexity of programs, everything between the phases (rendering, parsing,
rewards, ratings, the buffer), diagnostics, and the adapters' way from learner to sampler.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from models import in_peft

from populora.core.config import Config
from populora.engine.model.bank import LoraBank
from populora.engine.model.loading import load_base

MOMENTS = {"first_moment": "exp_avg", "second_moment": "exp_avg_sq"}
"""AdamW's running means in the bank and in torch."""


@dataclass(frozen=True)
class Composition:
    """PEFT's model with adapters "0", "1", ..., an optimiser for each, and the bank that says where their weights lie in a flat row."""

    model: Any
    optimisers: dict[int, torch.optim.AdamW]
    bank: LoraBank

    def parameters(self, slot: int) -> dict[tuple[str, str], torch.nn.Parameter]:
        """By module and letter, A or B."""
        modules = {name: self.model.base_model.model.get_submodule(name) for name in self.bank.modules}
        return {(name, letter): getattr(module, f"lora_{letter}")[str(slot)].weight for name, module in modules.items() for letter in "AB"}


def composition(config: Config, bank: LoraBank) -> Composition:
    """On a base of its own. AdamW is torch's fused one, the fastest."""
    if config.lora.ranks or config.learner.old_logprobs != "sampler":
        raise SystemExit("the plain composition needs adapters of one rank (no lora.ranks) and learner.old_logprobs = 'sampler'")
    made, settings = Composition(in_peft(bank, load_base(config.base)[0], config.lora.targets), {}, bank), config.learner
    for slot in range(bank.slots):
        made.optimisers[slot] = torch.optim.AdamW(
            made.parameters(slot).values(), lr=settings.learning_rate, betas=settings.betas, eps=settings.epsilon,
            weight_decay=settings.weight_decay, fused=True,
        )  # fmt: skip
    return made


def put_back(made: Composition, before: Mapping[str, torch.Tensor]) -> None:
    """Give it the adapters and the optimisers' state from before the step."""
    for slot, optimiser in made.optimisers.items():
        parameters = made.parameters(slot)
        for key, value in rows_of(made.bank, before["master"], slot):
            parameters[key].data.copy_(value)
            optimiser.state[parameters[key]]["step"] = before["steps"][slot].float()
        for ours, theirs in MOMENTS.items():
            for key, value in rows_of(made.bank, before[ours], slot):
                optimiser.state[parameters[key]][theirs] = value.clone(memory_format=torch.contiguous_format)


def weights(made: Composition) -> torch.Tensor:
    """Its adapters in the layout of the bank's master, [S, P]."""
    flat = torch.zeros_like(made.bank.master)
    for slot in made.optimisers:
        parameters = made.parameters(slot)
        for key, value in rows_of(made.bank, flat, slot):
            value.copy_(parameters[key].detach())
    return flat


def rows_of(bank: LoraBank, flat: torch.Tensor, slot: int) -> Iterator[tuple[tuple[str, str], torch.Tensor]]:
    """Views of one slot in a tensor of the master's layout, by module and letter."""
    for name, (a, b) in bank.by_module(flat).items():
        yield (name, "A"), a[slot]
        yield (name, "B"), b[slot]
