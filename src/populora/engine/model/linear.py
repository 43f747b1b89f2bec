"""Linear modules with a bank of stacked adapters: ``y = W x + (alpha / r) B_s A_s x`` for a token of slot s.

Modules that read the same input (q, k and v of a layer) are computed together when the first of them is called. The input meets their
A's in one product, and the backward writes its gradient once. The gradients of A and B are added to the bank's in place, without
temporary tensors of the bank's size.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from populora.core.errors import BaseModelError
from populora.engine.model.bank import FusedProjections
from populora.engine.model.products import add_product, multiply
from populora.engine.model.segments import SegmentMap, SlotWeights, outer, product

Scale = float | torch.Tensor
"""alpha / r, one for all tokens or one for each [N, 1]."""


class ForwardContext:
    """The segments of the forward in progress and its tokens' scale. Without a forward there are none."""

    def __init__(self, device: torch.device) -> None:
        self.segments: SegmentMap | SlotWeights | None = None
        self.scale: Scale = 1.0
        self.anchor = torch.zeros((), device=device, requires_grad=True)
        """Makes outputs differentiable where the input is not (the first layer)."""

    @contextmanager
    def follow(self, segments: SegmentMap | SlotWeights | None, scale: Scale) -> Iterator[None]:
        """Use these segments in the forwards inside the block. Entered again where the backward recomputes a checkpointed layer."""
        previous = self.segments, self.scale
        self.segments, self.scale = segments, scale
        try:
            yield
        finally:
            self.segments, self.scale = previous


class FusedLinears:
    """The K linears that read one input, and the adapters' factors of all slots."""

    def __init__(self, linears: Sequence[nn.Linear], projections: FusedProjections, context: ForwardContext):
        self.linears, self.projections, self.context = list(linears), projections, context
        self._cached = (slice(None), projections)
        self._input: torch.Tensor | None = None
        self._outputs: dict[int, torch.Tensor] = {}

    def output(self, index: int, x: torch.Tensor) -> torch.Tensor:
        """Return the output of the linear ``index`` for x [..., in], N tokens sorted by slot. The first call computes all K outputs."""
        if x is not self._input or index not in self._outputs:
            self._input, self._outputs = x, dict(enumerate(self._forward(x)))
        result = self._outputs.pop(index)
        if not self._outputs:
            self._input = None
        return result

    def _forward(self, x: torch.Tensor) -> Sequence[torch.Tensor]:
        segments = self.context.segments
        if segments is None or x.numel() != segments.tokens * x.shape[-1]:
            raise BaseModelError(f"a forward of {x.numel() // x.shape[-1]} tokens came without its segments: call AdaptedModel.forward")
        if isinstance(segments, SegmentMap) and not segments.counts:
            return [linear(x) for linear in self.linears]
        rows = x.reshape(segments.tokens, -1)
        if isinstance(segments, SlotWeights):
            outputs = self.weighted_rows(rows, segments.weights)
        elif torch.is_grad_enabled():
            outputs = _Stacked.apply(rows, self.context.anchor, self, segments, self.context.scale)
        else:
            outputs = self.forward_rows(rows, segments, self.context.scale)[0]
        return [output.view(*x.shape[:-1], -1) for output in outputs]

    def forward_rows(self, x: torch.Tensor, segments: SegmentMap, scale: Scale) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """Compute the outputs [N, out] of x [N, in], and the low-rank activations [adapted tokens, K r]."""
        factors = self._factors(segments)
        low = product(segments.adapted(x), factors.a.mT, segments)
        scaled, alpha = (low, scale) if isinstance(scale, float) else ((low * scale).to(low.dtype), 1.0)
        outputs = tuple(linear(x) for linear in self.linears)
        for y, part, b in zip(outputs, self._split(scaled), factors.b, strict=True):
            product(part, b.mT, segments, segments.adapted(y), alpha)
        return outputs, low

    def weighted_rows(self, x: torch.Tensor, weights: torch.Tensor) -> Sequence[torch.Tensor]:
        """Compute the outputs [N, out] of x [N, in] with all adapters, weighted per token by ``weights`` [N, S].

        For the few tokens of a decoding step this costs no more than reading the adapters, in one operation for A and one for each B.
        """
        slots, kinds = weights.shape[1], len(self.linears)
        low = (x @ self.projections.a.flatten(0, 1).T).view(len(x), slots, kinds, -1)
        weighted = (low * weights[:, :, None, None]).to(low.dtype).permute(2, 0, 1, 3).flatten(2)
        parts = zip(self.linears, weighted, self.projections.b, strict=True)
        return [linear(x).addmm_(part, b.mT.flatten(0, 1)) for linear, part, b in parts]

    def backward_rows(
        self, grads: Sequence[torch.Tensor], x: torch.Tensor, low: torch.Tensor, segments: SegmentMap, scale: Scale, wanted: bool
    ) -> torch.Tensor | None:
        """Add the factors' gradients to the bank's. Returns the gradient of x if ``wanted``."""
        factors, low_grad = self._factors(segments), torch.empty_like(low)
        parts = zip(grads, self._split((low * scale).to(low.dtype)), self._split(low_grad), factors.b, factors.grad_b, strict=True)
        for grad, part, part_grad, b, grad_b in parts:
            adapted = segments.adapted(grad)
            part_grad.copy_(product(adapted, b, segments))
            outer(adapted, part, segments, grad_b)
        low_grad.mul_(scale)
        outer(low_grad, segments.adapted(x), segments, factors.grad_a)
        if not wanted:
            return None
        grad_x = self.base_gradient(grads)
        product(low_grad, factors.a, segments, segments.adapted(grad_x))
        return grad_x

    def base_gradient(self, grads: Sequence[torch.Tensor]) -> torch.Tensor:
        """Compute the gradient of x through the base's weights alone."""
        first, *others = zip(grads, self.linears, strict=True)
        grad_x = multiply(first[0], first[1].weight.T)
        for grad, linear in others:
            add_product(grad_x, grad, linear.weight.T)
        return grad_x

    def _factors(self, segments: SegmentMap) -> FusedProjections:
        """Return the factors of the segments' slots, cached because the next forward usually has the same slots."""
        if self._cached[0] != segments.slots:
            self._cached = (segments.slots, self.projections.for_slots(segments.slots))
        return self._cached[1]

    def _split(self, low: torch.Tensor) -> Sequence[torch.Tensor]:
        """Split the low-rank activations into each linear's columns."""
        return low.chunk(len(self.linears), 1)


class _Stacked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, anchor: torch.Tensor, linears: FusedLinears, segments: SegmentMap, scale: Scale) -> Any:
        outputs, low = linears.forward_rows(x, segments, scale)
        ctx.save_for_backward(x, low)
        ctx.linears, ctx.segments, ctx.scale = linears, segments, scale
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        x, low = ctx.saved_tensors
        grad_x = ctx.linears.backward_rows(grads, x, low, ctx.segments, ctx.scale, ctx.needs_input_grad[0])
        return grad_x, None, None, None, None


class LoraLinear(nn.Module):
    """Replaces one linear of the base."""

    def __init__(self, base: nn.Linear, index: int, shared: FusedLinears):
        super().__init__()
        self.base, self.index, self.shared = base, index, shared

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map x [1, N, in] to [1, N, out], tokens sorted by slot."""
        return self.shared.output(self.index, x)
