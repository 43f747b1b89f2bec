"""The frozen gated MLP, down(silu(gate x) * up x), on the CPU: in chunks whose intermediate values stay in the processor's caches.

The backward computes them from the two products that the forward keeps, which is less memory than autograd needs.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from populora.engine.model.products import add_product, faster_products, multiply

CHUNK = 512
"""Tokens of a chunk."""


def use_chunked_mlp(mlp: Any) -> None:
    """Compute a frozen gated MLP x [.., d] -> [.., d] in chunks while gradients are on. Another kind of module stays as it is."""
    linears = [getattr(mlp, name, None) for name in ("gate_proj", "up_proj", "down_proj")]
    activation = getattr(mlp, "act_fn", None)
    plain = all(type(linear) is nn.Linear and linear.bias is None for linear in linears) and len(list(mlp.parameters())) == len(linears)
    if not (plain and activation is not None and type(activation).__name__ in ("SiLU", "SiLUActivation")):
        return
    forward = mlp.forward

    def chunked(x: torch.Tensor) -> torch.Tensor:
        chosen = torch.is_grad_enabled() and faster_products(x.reshape(-1, x.shape[-1]))
        return _Chunked.apply(x, mlp) if chosen else forward(x)  # type: ignore[return-value]

    mlp.forward = chunked


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, mlp: Any) -> torch.Tensor:
        ctx.mlp, kept, results = mlp, [], []
        for rows in x.reshape(-1, x.shape[-1]).split(CHUNK):
            gate, up = multiply(rows, mlp.gate_proj.weight), multiply(rows, mlp.up_proj.weight)
            results.append(multiply(F.silu(gate).mul_(up), mlp.down_proj.weight))
            kept += [gate, up]
        ctx.save_for_backward(*kept)
        return torch.cat(results).view(x.shape)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        mlp, kept, results = ctx.mlp, ctx.saved_tensors, []
        for rows, gate, up in zip(grads[0].reshape(-1, grads[0].shape[-1]).split(CHUNK), kept[::2], kept[1::2], strict=True):
            inner = multiply(rows, mlp.down_proj.weight.T)
            up_grad = F.silu(gate).mul_(inner)
            result = multiply(torch.ops.aten.silu_backward(inner.mul_(up), gate), mlp.gate_proj.weight.T)
            add_product(result, up_grad, mlp.up_proj.weight.T)
            results.append(result)
        return torch.cat(results).view(grads[0].shape), None
