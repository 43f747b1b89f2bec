"""A frozen Hugging Face causal LM whose linear modules carry a bank of stacked adapters.

The route is handed to each forward of `AdaptedModel`; it lives only as long as that forward. Dropout is not supported (sampler and
learner would disagree).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from populora.core.errors import BaseModelError
from populora.engine.model import attention
from populora.engine.model.attention import AttentionPlan
from populora.engine.model.bank import LoraBank
from populora.engine.model.head import chosen_logprobs
from populora.engine.model.linear import Current, StackedLinears, StackedLoraLinear
from populora.engine.model.packing import Group, Packed, pack
from populora.engine.model.routing import Mixture, Route
from populora.engine.planning.model_shape import targeted

AGREEMENT = {torch.float32: 1e-5, torch.bfloat16: 0.05, torch.float16: 0.01}
"""Largest mean difference (nats) between the log-probabilities of tokens in sampler and learner, by precision of the base."""
RARE = 100.0
"""A single token may differ by so many times the mean's bound: rounding grows on a token that is badly conditioned."""
Checkpointing = Literal["none", "mlp", "layer"]
"""What is computed again in the backward instead of being kept: nothing, the MLPs, or whole layers."""
PROBE = 8  # tokens of the check that the base is the plain causal LM we take it for


class AdaptedModel:
    """``model`` frozen in eval mode, its ``targets`` replaced in place, and the ``bank`` they read.

    Raises `BaseModelError` for a target that matches no linear module and for a base that is not a plain causal LM with full
    attention and an untouched linear head.
    """

    def __init__(self, model: Any, targets: Sequence[str], slots: int, rank: int, alpha: float, checkpointing: Checkpointing = "none"):
        self.model = model.eval().requires_grad_(False)
        self.backbone, self.head = model.get_decoder(), model.get_output_embeddings()
        linears = _matching(model, targets, self.head)
        window = getattr(model.config, "sliding_window", None)  # up to its length, attention within a window is full attention
        self.context = min(int(model.config.max_position_embeddings), window or sys.maxsize)
        self.device, dtype = self.head.weight.device, self.head.weight.dtype
        self.agreement = AGREEMENT[dtype]
        expected, families = self._probed(linears)
        shapes = [{name: (linears[name].in_features, linears[name].out_features) for name in names} for names in families]
        self.bank = LoraBank(shapes, slots, rank, alpha, self.device, dtype)
        self._current = Current(self.device)
        for names, family in zip(families, self.bank.families, strict=True):
            shared = StackedLinears([linears[name] for name in names], family, self._current)
            for index, name in enumerate(names):
                model.set_submodule(name, StackedLoraLinear(linears[name], index, shared))
        model.set_attn_implementation(attention.NAME)
        self._check_base(expected)
        if checkpointing != "none":
            for layer in self.backbone.layers:
                again = layer if checkpointing == "layer" else layer.mlp
                again.forward = self._recomputed_in_backward(again.forward)

    def forward(self, ids: torch.Tensor, positions: torch.Tensor, route: Route | Mixture, plan: AttentionPlan) -> torch.Tensor:
        """Last hidden states [N, d] of a packed row of tokens: ids and positions [N]. With gradients on, a backward from them
        adds to ``bank.gradient``, but not from a mixture."""
        scale = self.bank.scale(route) if isinstance(route, Route) and route.counts else 1.0
        with self._current.follow(route, scale):
            output = self.backbone(input_ids=ids[None], position_ids=positions[None], use_cache=False, attention_plan=plan)
        return output.last_hidden_state[0]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """fp32 logits [..., V] of hidden states [..., d]."""
        return self.head(hidden).float()

    def logprobs(self, packed: Packed) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities (differentiable) and entropies [M] of a pack's response tokens, at temperature 1, in nats."""
        hidden = self.forward(packed.ids, packed.positions, packed.route, packed.plan)
        return chosen_logprobs(self.head, hidden.index_select(0, packed.predictors), packed.targets)

    def _recomputed_in_backward(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """``forward`` without its activations kept; its second run, in the backward, follows the route of the first."""

        def checkpointed(*arguments: Any, **named: Any) -> Any:
            if not torch.is_grad_enabled():
                return forward(*arguments, **named)
            again = self._current.follow(self._current.route, self._current.scale)
            return checkpoint(
                forward, *arguments, use_reentrant=False, preserve_rng_state=False, context_fn=lambda: (nullcontext(), again), **named
            )

        return checkpointed

    @torch.no_grad()  # not inference mode: what shards of a base gather in it could not be used in a backward
    def _probed(self, linears: dict[str, nn.Linear]) -> tuple[torch.Tensor, list[list[str]]]:
        """The base's own logits for a probe, and its adapted modules by the input that they read."""
        readers: list[tuple[torch.Tensor, list[str]]] = []

        def read(linear: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            if not readers or readers[-1][0] is not inputs[0]:
                readers.append((inputs[0], []))
            readers[-1][1].append(names[linear])

        names: dict[nn.Module, str] = {linear: name for name, linear in linears.items()}
        hooks = [linear.register_forward_pre_hook(read) for linear in names]
        logits = self.model(self._probe()[None]).logits[0].float()
        for hook in hooks:
            hook.remove()
        idle = sorted(set(linears) - {name for _, found in readers for name in found})
        if idle:
            raise BaseModelError(f"lora.targets: the base never uses its module '{idle[0]}': leave it out of lora.targets")
        return logits, [found for _, found in readers]

    def _probe(self) -> torch.Tensor:
        return torch.arange(PROBE, device=self.device) % self.head.out_features

    def _check_base(self, expected: torch.Tensor) -> None:
        kinds = set(getattr(self.model.config, "layer_types", None) or {"full_attention"})
        packed = pack([Group(-1, self._probe().tolist())], self.device)
        with torch.no_grad():
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
    return {name: linears[name] for name in targeted(linears, targets)}
