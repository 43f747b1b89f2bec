"""Compute the products of the frozen base by oneDNN, through torch, instead of torch's default (MKL)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch

from populora.engine.model.linear import FusedLinears, Scale
from populora.engine.model.segments import SegmentMap, outer, product


def multiply(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Return x [..., in] times weight [out, in] transposed, plus bias."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


class _Frozen(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(weight)
        return multiply(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return multiply(grads[0], ctx.saved_tensors[0].T), None, None


def _forward(linear: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
    return _Frozen.apply(x, linear.weight, linear.bias)  # type: ignore[return-value]


def _backward_rows(
    linears: FusedLinears,
    grads: Sequence[torch.Tensor],
    x: torch.Tensor,
    low: torch.Tensor,
    segments: SegmentMap,
    scale: Scale,
    wanted: bool,
) -> torch.Tensor | None:
    """Do the same as `FusedLinears.backward_rows`, but for the products with the base's weights."""
    factors, low_grad = linears._factors(segments), torch.empty_like(low)
    parts = zip(grads, linears._split((low * scale).to(low.dtype)), linears._split(low_grad), factors.b, factors.grad_b, strict=True)
    for grad, part, part_grad, b, grad_b in parts:
        adapted = segments.adapted(grad)
        part_grad.copy_(product(adapted, b, segments))
        outer(adapted, part, segments, grad_b)
    low_grad.mul_(scale)
    outer(low_grad, segments.adapted(x), segments, factors.grad_a)
    if not wanted:
        return None
    grad_x = sum(multiply(grad, linear.weight.T) for grad, linear in zip(grads, linears.linears, strict=True))
    product(low_grad, factors.a, segments, segments.adapted(grad_x))
    return grad_x


@contextmanager
def onednn_products() -> Iterator[None]:
    """Use oneDNN for every linear module inside the block."""
    with patch.object(torch.nn.Linear, "forward", _forward), patch.object(FusedLinears, "backward_rows", _backward_rows):
        yield
