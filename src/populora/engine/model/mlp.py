"""The frozen gated MLP, down(silu(gate x) * up x), with less memory and fewer passes over it than autograd needs.

The backward computes it from the two products that the forward keeps. On a CPU it works in chunks whose intermediate values stay in the
processor's caches. On CUDA the operations between the products are one kernel (`populora.engine.model.fusion`).
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from populora.engine.model.fusion import fused
from populora.engine.model.products import add_product, faster_products, multiply

CHUNK = 512
"""Tokens of a chunk on a CPU."""


def use_frozen_mlp(mlp: Any) -> None:
    """Compute a frozen gated MLP x [.., d] -> [.., d] as above. Another kind of module, and on some CPUs any, stays as it is."""
    linears = [getattr(mlp, name, None) for name in ("gate_proj", "up_proj", "down_proj")]
    activation = getattr(mlp, "act_fn", None)
    plain = all(type(linear) is nn.Linear and linear.bias is None for linear in linears) and len(list(mlp.parameters())) == len(linears)
    if not (plain and activation is not None and type(activation).__name__ in ("SiLU", "SiLUActivation")):
        return
    forward = mlp.forward

    def frozen(x: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled() and (x.is_cuda or faster_products(x.reshape(-1, x.shape[-1]))):
            return _FrozenMlp.apply(x, mlp)  # type: ignore[return-value]
        return mlp.down_proj(fused(gated)(mlp.gate_proj(x), mlp.up_proj(x))) if x.is_cuda else forward(x)

    mlp.forward = frozen


def gated(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Return silu(gate) * up."""
    return F.silu(gate).mul_(up)


def gated_gradients(gate: torch.Tensor, up: torch.Tensor, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of ``gate`` and ``up``, given that of their `gated`."""
    return torch.ops.aten.silu_backward(grad * up, gate), F.silu(gate).mul_(grad)


class _FrozenMlp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, mlp: Any) -> torch.Tensor:
        ctx.mlp, kept, results = mlp, [], []
        for rows in _chunks(x):
            gate, up = multiply(rows, mlp.gate_proj.weight), multiply(rows, mlp.up_proj.weight)
            results.append(multiply((fused(gated) if x.is_cuda else gated)(gate, up), mlp.down_proj.weight))
            kept += [gate, up]
        ctx.save_for_backward(*kept)
        return _joined(results).view(x.shape)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        mlp, kept, results = ctx.mlp, ctx.saved_tensors, []
        gradients = fused(gated_gradients) if grads[0].is_cuda else gated_gradients
        for rows, gate, up in zip(_chunks(grads[0]), kept[::2], kept[1::2], strict=True):
            gate_grad, up_grad = gradients(gate, up, multiply(rows, mlp.down_proj.weight.T))
            result = multiply(gate_grad, mlp.gate_proj.weight.T)
            add_product(result, up_grad, mlp.up_proj.weight.T)
            results.append(result)
        return _joined(results).view(grads[0].shape), None


def _chunks(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Split x [.., d] into rows to compute at a time: `CHUNK` on a CPU, all on CUDA."""
    rows = x.reshape(-1, x.shape[-1])
    return (rows,) if x.is_cuda else rows.split(CHUNK)


def _joined(parts: list[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
