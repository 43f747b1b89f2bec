"""Compute the products of the frozen base by oneDNN, through torch, instead of torch's default (MKL)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch

from populora.engine.model.linear import FusedLinears


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


def _base_gradient(linears: FusedLinears, grads: Sequence[torch.Tensor]) -> torch.Tensor:
    first, *others = (multiply(grad, linear.weight.T) for grad, linear in zip(grads, linears.linears, strict=True))
    return sum(others, first)


@contextmanager
def onednn_products() -> Iterator[None]:
    """Use oneDNN for every linear module inside the block."""
    with patch.object(torch.nn.Linear, "forward", _forward), patch.object(FusedLinears, "base_gradient", _base_gradient):
        yield
