"""One LoRA adapter as plain tensors: what operators take and give, and what is saved as a PEFT folder.

Convention of the code: A is [r, in], B is [out, r], delta = B A (the paper writes B A^T). ``alpha / rank`` is the scale of
the delta inside the model and never part of the factors (reading 28).
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace

import torch

Factors = tuple[torch.Tensor, torch.Tensor]
"""A [r, in] and B [out, r] of one module, fp32 on the CPU."""


@dataclass(frozen=True)
class Adapter:
    """Factors per module in the model's order (keys such as ``model.layers.0.self_attn.q_proj``), rank and alpha."""

    modules: dict[str, Factors]
    rank: int
    """Of every module; of a folder whose ranks differ by module (`read_folder` in `populora.lora.peft_format`) the smallest."""
    alpha: float

    def to(self, dtype: torch.dtype) -> Adapter:
        """The adapter in another precision."""
        return replace(self, modules={name: (a.to(dtype), b.to(dtype)) for name, (a, b) in self.modules.items()})

    def fingerprint(self) -> str:
        """SHA-256 over names, shapes and bytes: equal exactly when the adapters are, in whatever order their modules are listed."""
        digest = hashlib.sha256(f"{self.rank}:{self.alpha}".encode())
        for name, pair in sorted(self.modules.items()):
            digest.update(f"{name}:{tuple(pair[0].shape)}:{tuple(pair[1].shape)}".encode())
            for tensor in pair:
                digest.update(tensor.detach().contiguous().numpy().data)  # its own memory, not a copy
        return digest.hexdigest()


def all_finite(tensor: torch.Tensor) -> bool:
    """Whether no entry is NaN or infinite. Extremes keep NaN, and finding them makes no tensor as large as this one."""
    return tensor.numel() == 0 or all(math.isfinite(extreme) for extreme in torch.aminmax(tensor))
