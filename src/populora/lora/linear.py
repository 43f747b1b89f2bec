"""A frozen Hugging Face causal LM whose linear modules carry a bank of stacked adapters.

y = W x + (alpha / r) B_s A_s x for a token of slot s. The route is handed to each forward of `AdaptedModel`; it lives only as
long as that forward. Dropout is not supported (sampler and learner would disagree).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from populora.errors import BaseModelError
from populora.lora import attention
from populora.lora.attention import DecodeAttention, PackedAttention
from populora.lora.bank import LoraBank, Stacked
from populora.lora.head import chosen_logprobs
from populora.lora.packing import Group, Packed, pack
from populora.lora.routing import Route, lora_delta

AGREEMENT = {torch.float32: 1e-5, torch.bfloat16: 0.05, torch.float16: 0.01}
"""Largest mean difference (nats) between the log-probabilities of tokens in sampler and learner, by precision of the base."""
RARE = 100.0
"""A single token may differ by so many times the mean's bound: rounding grows on a token that is badly conditioned."""
PROBE = 8  # tokens of the check that the base is the plain causal LM we take it for


class _Forward:
    """Route and factors of the forward that is under way, shared by one model's linears; without a route there is none."""

    def __init__(self) -> None:
        self.route: Route | None = None
        self.factors: dict[str, Stacked] = {}


class StackedLoraLinear(nn.Module):
    """A frozen linear plus the low-rank products of all slots, each token through its own. x: [1, N, in], sorted by slot."""

    def __init__(self, base: nn.Linear, name: str, scale: float, current: _Forward):
        super().__init__()
        self.base, self.name, self.scale, self.current = base, name, scale, current

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        route = self.current.route
        if route is None or x.numel() != route.tokens * x.shape[-1]:
            raise BaseModelError(f"a forward of {x.numel() // x.shape[-1]} tokens came without its route: call AdaptedModel.forward")
        y = self.base(x)
        if route.counts:
            delta = lora_delta(x.reshape(route.tokens, -1)[route.bare :], *self.current.factors[self.name], route)
            padded = F.pad(delta, (0, 0, route.bare, 0)) if route.bare else delta
            y = y.add_(padded.view_as(y), alpha=self.scale)
        return y


class AdaptedModel:
    """``model`` frozen in eval mode, its ``targets`` replaced in place, and the ``bank`` they read.

    Raises `BaseModelError` for a target that matches no linear module and for a base that is not a plain causal LM with full
    attention and an untouched linear head.
    """

    def __init__(self, model: Any, targets: Sequence[str], slots: int, rank: int, alpha: float):
        self.model = model.eval().requires_grad_(False)
        self.backbone, self.head = model.get_decoder(), model.get_output_embeddings()
        linears = _matching(model, targets, self.head)
        window = getattr(model.config, "sliding_window", None)  # up to its length, attention within a window is full attention
        self.context = min(int(model.config.max_position_embeddings), window or sys.maxsize)
        self.device = self.head.weight.device
        self.agreement = AGREEMENT[self.head.weight.dtype]
        shapes = {name: (linear.in_features, linear.out_features) for name, linear in linears.items()}
        self.bank = LoraBank(shapes, slots, rank, alpha, self.device)
        self._current = _Forward()
        expected = self._plain_logits()
        for name, linear in linears.items():
            model.set_submodule(name, StackedLoraLinear(linear, name, self.bank.scale, self._current))
        model.set_attn_implementation(attention.NAME)
        self._check_base(expected)

    def forward(self, ids: torch.Tensor, positions: torch.Tensor, route: Route, plan: PackedAttention | DecodeAttention) -> torch.Tensor:
        """Last hidden states [N, d] of a packed row of tokens: ids and positions [N]. With gradients on, a backward from them
        adds to ``bank.gradient``."""
        self._current.route = route
        self._current.factors = self.bank.tracked() if torch.is_grad_enabled() else self.bank.factors
        try:
            output = self.backbone(input_ids=ids[None], position_ids=positions[None], use_cache=False, attention_plan=plan)
        finally:
            self._current.route, self._current.factors = None, {}
        return output.last_hidden_state[0]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """fp32 logits [..., V] of hidden states [..., d]."""
        return self.head(hidden).float()

    def logprobs(self, packed: Packed) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities (differentiable) and entropies [M] of a pack's response tokens, at temperature 1, in nats."""
        hidden = self.forward(packed.ids, packed.positions, packed.route, packed.plan)
        return chosen_logprobs(self.head, hidden.index_select(0, packed.predictors), packed.targets)

    def _plain_logits(self) -> torch.Tensor:
        with torch.inference_mode():
            return self.model(self._probe()[None]).logits[0].float()

    def _probe(self) -> torch.Tensor:
        return torch.arange(PROBE, device=self.device) % self.head.out_features

    def _check_base(self, expected: torch.Tensor) -> None:
        kinds = set(getattr(self.model.config, "layer_types", None) or {"full_attention"})
        packed = pack([Group(-1, self._probe().tolist())], self.device)
        with torch.inference_mode():
            ours = self.logits(self.forward(packed.ids, packed.positions, packed.route, packed.plan))
        tolerance = 1e-4 if self.head.weight.dtype == torch.float32 else 0.05
        difference = float((ours - expected).abs().max() / expected.abs().max())
        if kinds != {"full_attention"} or not difference < tolerance:
            raise BaseModelError(
                "expected a causal LM with full attention and a plain linear head; this one has layers of kind "
                f"{', '.join(sorted(kinds))} and logits that differ by {difference:.1e} relative. Choose another base.path."
            )


def _matching(model: Any, targets: Sequence[str], head: nn.Module) -> dict[str, nn.Linear]:
    """Linear modules by name, in the model's order, whose last name part is one of the targets."""
    linears = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear) and module is not head}
    for target in targets:
        if not any(_named(name, target) for name in linears):
            known = ", ".join(sorted({name.rsplit(".", 1)[-1] for name in linears}))
            raise BaseModelError(f"lora.targets: '{target}' matches no linear module of the base; it has {known}")
    return {name: linear for name, linear in linears.items() if any(_named(name, target) for target in targets)}


def _named(name: str, target: str) -> bool:
    return name == target or name.endswith("." + target)
