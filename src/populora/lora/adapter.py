"""One LoRA adapter as plain tensors: what operators take and give, and what is saved as a PEFT folder.

Convention of the code: A is [r, in], B is [out, r], delta = B A (the paper writes B A^T). ``alpha / rank`` is the scale of
the delta inside the model and never part of the factors (reading 28).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch

Factors = tuple[torch.Tensor, torch.Tensor]
"""A [r, in] and B [out, r] of one module, fp32 on the CPU."""


@dataclass(frozen=True)
class Adapter:
    """Factors per module in the model's order (keys such as ``model.layers.0.self_attn.q_proj``), rank and alpha."""

    modules: dict[str, Factors]
    rank: int
    alpha: float

    def fingerprint(self) -> str:
        """SHA-256 over names, shapes and bytes: equal exactly when the adapters are equal to the byte."""
        digest = hashlib.sha256(f"{self.rank}:{self.alpha}".encode())
        for name, (a, b) in self.modules.items():
            digest.update(f"{name}:{tuple(a.shape)}:{tuple(b.shape)}".encode())
            digest.update(a.detach().contiguous().numpy().tobytes())
            digest.update(b.detach().contiguous().numpy().tobytes())
        return digest.hexdigest()
