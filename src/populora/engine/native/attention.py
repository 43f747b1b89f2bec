"""Causal attention over a packed row by `attention.c`, without padding and without copies of prompts, and its gradient.

The plan is that of `populora.engine.model.attention.PackedAttention`. Threads share its units, of which no two write to the same memory, so
the bytes do not depend on their number.
"""

import ctypes
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch

from populora.engine.native.compiled import Long, Pointer
from populora.engine.native.threads import share


class _Attention(ctypes.Structure):
    _fields_ = [
        ("heads", Long), ("kv_heads", Long), ("size", Long), ("group", Pointer), ("start", Pointer), ("q", Pointer), ("k", Pointer),
        ("v", Pointer), ("output", Pointer), ("total", Pointer), ("gradient", Pointer), ("dq", Pointer), ("dk", Pointer), ("dv", Pointer),
        ("scaling", ctypes.c_float),
    ]  # fmt: skip


class CompiledAttention:
    """An attention plan by ``functions``. ``spans`` lists the lengths of each group's prompt and of its responses, in packed order."""

    def __init__(self, spans: Sequence[Sequence[int]], functions: ctypes.CDLL):
        self.functions = functions
        lengths = [length for group in spans for length in group]
        self.start = np.array([0, *accumulate(lengths)], np.int64)
        self.group = np.array([0, *accumulate(map(len, spans))], np.int64)
        self.longest = max(lengths)

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scaling: float) -> torch.Tensor:
        """Map q [N, heads, d], k and v [N, kv heads, d] to [N, heads, d]."""
        return _Attend.apply(q, k, v, self, scaling)  # type: ignore[return-value]

    def compute(self, tensors: dict[str, torch.Tensor], scaling: float) -> None:
        """Call `attend_units` for all units; with a ``gradient`` among the tensors, the backward."""
        _, heads, size = tensors["q"].shape
        kv_heads = tensors["k"].shape[1]
        arrays = {"group": self.group.ctypes.data, "start": self.start.ctypes.data}
        pointers = {name: tensor.data_ptr() for name, tensor in tensors.items()}
        call = _Attention(heads=heads, kv_heads=kv_heads, size=size, scaling=scaling, **arrays, **pointers)
        address, units, threads = ctypes.addressof(call), kv_heads * (len(self.group) - 1), torch.get_num_threads()
        numbers = self.functions.attention_floats(address, self.longest)

        def attend(part: int, first: int, end: int) -> None:
            scratch = torch.empty(numbers)
            self.functions.attend_units(address, first, end, "gradient" in tensors, self.longest, scratch.data_ptr())

        share(attend, [0, units] if threads == 1 else range(units + 1), threads)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, plan: CompiledAttention, scaling: float) -> torch.Tensor:
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        output, total = torch.empty_like(q), q.new_empty(q.shape[:2])
        plan.compute({"q": q, "k": k, "v": v, "output": output, "total": total}, scaling)
        ctx.save_for_backward(q, k, v, output, total)
        ctx.plan, ctx.scaling = plan, scaling
        return output

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        q, k, v, output, total = ctx.saved_tensors
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        named = {"q": q, "k": k, "v": v, "output": output, "total": total, "gradient": grads[0].contiguous(), "dq": dq, "dk": dk, "dv": dv}
        ctx.plan.compute(named, ctx.scaling)
        return dq, dk, dv, None, None
