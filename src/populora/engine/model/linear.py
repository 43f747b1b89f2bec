"""The linear modules that carry a bank of stacked adapters: ``y = W x + (alpha / r) B_s A_s x`` for a token of slot s.

Modules that read the same input (q, k and v of a layer) are computed together when the first of them is called: the input meets their
A's in one product, and in the backward its gradient is written once. The gradients of A and B are added to the bank's own in
place, without tensors as large as the bank in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from populora.core.errors import BaseModelError
from populora.engine.model.bank import Family
from populora.engine.model.routing import Mixture, Route, outer, product

Scale = float | torch.Tensor
"""alpha / r, one for all tokens or one for each [N, 1]."""


class Current:
    """The route of the forward that is under way and its tokens' scale; without a forward there is none."""

    def __init__(self, device: torch.device) -> None:
        self.route: Route | Mixture | None = None
        self.scale: Scale = 1.0
        self.anchor = torch.zeros((), device=device, requires_grad=True)
        """Makes outputs differentiable where the input is not (the first layer)."""

    @contextmanager
    def follow(self, route: Route | Mixture | None, scale: Scale) -> Iterator[None]:
        """Route the forwards inside the block; entered again where a checkpointed layer is recomputed in the backward."""
        before = self.route, self.scale
        self.route, self.scale = route, scale
        try:
            yield
        finally:
            self.route, self.scale = before


class StackedLinears:
    """The K linears that read one input, and the adapters' factors of all slots."""

    def __init__(self, linears: Sequence[nn.Linear], family: Family, current: Current):
        self.linears, self.family, self.current = list(linears), family, current
        self._part = (slice(None), family)
        self._input: torch.Tensor | None = None
        self._outputs: dict[int, torch.Tensor] = {}

    def output(self, index: int, x: torch.Tensor) -> torch.Tensor:
        """Output of the linear ``index`` for x [..., in], N tokens sorted by slot. The first one asked computes them all."""
        if x is not self._input or index not in self._outputs:
            self._input, self._outputs = x, dict(enumerate(self._forward(x)))
        result = self._outputs.pop(index)
        if not self._outputs:
            self._input = None
        return result

    def _forward(self, x: torch.Tensor) -> Sequence[torch.Tensor]:
        route = self.current.route
        if route is None or x.numel() != route.tokens * x.shape[-1]:
            raise BaseModelError(f"a forward of {x.numel() // x.shape[-1]} tokens came without its route: call AdaptedModel.forward")
        if isinstance(route, Route) and not route.counts:
            return [linear(x) for linear in self.linears]
        rows = x.reshape(route.tokens, -1)
        if isinstance(route, Mixture):
            outputs = self.mixed_rows(rows, route.weights)
        elif torch.is_grad_enabled():
            outputs = _Stacked.apply(rows, self.current.anchor, self, route, self.current.scale)
        else:
            outputs = self.forward_rows(rows, route, self.current.scale)[0]
        return [output.view(*x.shape[:-1], -1) for output in outputs]

    def forward_rows(self, x: torch.Tensor, route: Route, scale: Scale) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """Outputs [N, out] of x [N, in], and the low-rank activations [adapted tokens, K r]."""
        family = self._family_of(route)
        low = product(route.adapted(x), family.a.mT, route)
        scaled, alpha = (low, scale) if isinstance(scale, float) else ((low * scale).to(low.dtype), 1.0)
        outputs = tuple(linear(x) for linear in self.linears)
        for y, own, b in zip(outputs, self._own(scaled), family.b, strict=True):
            product(own, b.mT, route, route.adapted(y), alpha)
        return outputs, low

    def mixed_rows(self, x: torch.Tensor, weights: torch.Tensor) -> Sequence[torch.Tensor]:
        """Outputs [N, out] of x [N, in] for weights [N, S]: every token meets all adapters, whose products are then weighed. For the
        few tokens of a decoding step this costs no more than reading the adapters, and takes one operation for A and one for each B."""
        slots, kinds = weights.shape[1], len(self.linears)
        low = (x @ self.family.a.flatten(0, 1).T).view(len(x), slots, kinds, -1)
        own = low.new_empty(kinds, len(x), slots, low.shape[3])
        torch.mul(low.permute(2, 0, 1, 3), weights[:, :, None], out=own)
        parts = zip(self.linears, own.flatten(2), self.family.b, strict=True)
        return [linear(x).addmm_(part, b.mT.flatten(0, 1)) for linear, part, b in parts]

    def backward_rows(
        self, grads: Sequence[torch.Tensor], x: torch.Tensor, low: torch.Tensor, route: Route, scale: Scale, wanted: bool
    ) -> torch.Tensor | None:
        """Add the factors' gradients to the bank's; the gradient of x where it is ``wanted``."""
        family, low_grad = self._family_of(route), torch.empty_like(low)
        parts = zip(grads, self._own((low * scale).to(low.dtype)), self._own(low_grad), family.b, family.grad_b, strict=True)
        for grad, own, own_grad, b, grad_b in parts:
            adapted = route.adapted(grad)
            own_grad.copy_(product(adapted, b, route))
            outer(adapted, own, route, grad_b)
        low_grad.mul_(scale)
        outer(low_grad, route.adapted(x), route, family.grad_a)
        if not wanted:
            return None
        first, *others = zip(grads, self.linears, strict=True)
        grad_x = first[0] @ first[1].weight
        for grad, linear in others:
            grad_x.addmm_(grad, linear.weight)
        product(low_grad, family.a, route, route.adapted(grad_x))
        return grad_x

    def _family_of(self, route: Route) -> Family:
        """The factors of the route's slots; kept, for the next forward mostly has the same."""
        if self._part[0] != route.slots:
            self._part = (route.slots, self.family.of(route.slots))
        return self._part[1]

    def _own(self, low: torch.Tensor) -> Sequence[torch.Tensor]:
        """Each linear's columns of the low-rank activations."""
        return low.chunk(len(self.linears), 1)


class _Stacked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, anchor: torch.Tensor, linears: StackedLinears, route: Route, scale: Scale) -> Any:
        outputs, low = linears.forward_rows(x, route, scale)
        ctx.save_for_backward(x, low)
        ctx.linears, ctx.route, ctx.scale = linears, route, scale
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        x, low = ctx.saved_tensors
        grad_x = ctx.linears.backward_rows(grads, x, low, ctx.route, ctx.scale, ctx.needs_input_grad[0])
        return grad_x, None, None, None, None


class StackedLoraLinear(nn.Module):
    """Takes the place of one linear of the base."""

    def __init__(self, base: nn.Linear, index: int, shared: StackedLinears):
        super().__init__()
        self.base, self.index, self.shared = base, index, shared

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [1, N, in] -> [1, N, out], tokens sorted by slot."""
        return self.shared.output(self.index, x)
