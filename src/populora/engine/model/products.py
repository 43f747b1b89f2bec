"""The frozen base's products on the CPU: by oneDNN where MKL, torch's default, is slower.

The choice depends on the processor and torch alone, never on a timing, so that equal seeds give equal bytes on one machine.

oneDNN compiles code for each number of rows and keeps it. Batches of text hardly ever have the same number twice. So rows are padded with
zeros to one of few numbers: else a run's memory grows by some 10 MB a step, to gigabytes.
"""

from functools import cache
from typing import Any

import torch
from torch import nn

from populora.core.installed import processor

MIN_ROWS = 32
"""Rows from which oneDNN is faster than MKL on an AMD EPYC with AVX-512 (`benchmarks.products`)."""


@cache
def base_products() -> str:
    """Name the library that computes the float32 products of the frozen base on the CPU, with the reason."""
    if not torch.backends.mkl.is_available():
        return "torch's default (it has no MKL)"
    if "amd" not in processor().lower():
        return f"MKL (oneDNN is for AMD's processors, this is {processor() or 'an unknown one'})"
    if (instructions := torch.backends.cpu.get_cpu_capability()) != "AVX512":
        return f"MKL (with {instructions} oneDNN is not faster)"
    if not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        return f"MKL (torch {torch.__version__} lacks oneDNN's linear operator)"
    return "oneDNN (MKL is slower on AMD's processors)"


def faster_products(x: torch.Tensor) -> bool:
    """Return whether `multiply` of x [N, in] uses oneDNN."""
    return _onednn(x) and len(x) >= MIN_ROWS


def padded_rows(rows: int) -> int:
    """Round ``rows`` up to a multiple of `MIN_ROWS` and of an eighth of the power of two below it: eight numbers an octave."""
    step = max(MIN_ROWS, (1 << rows.bit_length()) // 16)
    return -(-rows // step) * step


def multiply(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Compute x [N, in] times weight [out, in] transposed, plus bias [out]. It has no gradient; ``weight`` may be a transposed view."""
    if faster_products(x):
        missing = padded_rows(len(x)) - len(x)
        rows = nn.functional.pad(x, (0, 0, 0, missing)) if missing else x  # `pad` copies x even where nothing is missing
        return torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")[: len(x)]
    return nn.functional.linear(x, weight, bias)


def add_product(into: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> None:
    """Add x [N, in] times weight [out, in] transposed to ``into`` [N, out] in place."""
    if faster_products(x):
        into += multiply(x, weight)
    else:
        into.addmm_(x, weight.T)


def use_base_products(linear: nn.Linear) -> None:
    """Make a frozen linear compute x [.., in] -> [.., out] and the gradient of x by `multiply`. It stays as it is where MKL computes."""

    def forward(input: torch.Tensor) -> torch.Tensor:
        return _Frozen.apply(input, linear) if torch.is_grad_enabled() else _map(linear, input)  # type: ignore[return-value]

    if _onednn(linear.weight):
        linear.forward = forward


def _onednn(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.dtype == torch.float32 and base_products().startswith("oneDNN")


class _Frozen(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, linear: nn.Linear) -> torch.Tensor:
        ctx.linear = linear  # not its weight, because a sharded layer gathers it anew for the backward
        return _map(linear, x)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        grad, weight = grads[0], ctx.linear.weight
        return multiply(grad.reshape(-1, grad.shape[-1]), weight.T).view(*grad.shape[:-1], -1), None


def _map(linear: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    return multiply(x.reshape(-1, x.shape[-1]), linear.weight, linear.bias).view(*x.shape[:-1], -1)
