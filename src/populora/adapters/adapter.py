"""A LoRA adapter as plain tensors, for operators and PEFT folders.

Convention of the code: A is [r, in], B is [out, r], delta = B A (the paper writes B A^T). ``alpha / rank`` is the scale of
the delta inside the model and never part of the factors (reading 28).
"""

import hashlib
import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch

Factors = tuple[torch.Tensor, torch.Tensor]
"""A [r, in] and B [out, r] of one module, fp32 on the CPU."""


@dataclass(frozen=True, repr=False)
class Adapter:
    """Factors by module in the model's order (keys such as ``model.layers.0.self_attn.q_proj``), rank and alpha."""

    modules: dict[str, Factors]
    rank: int
    """Rank of every module, or the smallest of a folder whose ranks differ by module (`populora.adapters.peft_format.read_folder`)."""
    alpha: float

    def __repr__(self) -> str:
        return f"Adapter({len(self.modules)} modules, rank {self.rank}, alpha {self.alpha:g}, {self.fingerprint()[:12]})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as one array, which moves between processes faster than hundreds of tensors."""
        layout = {name: [(tuple(factor.shape), factor.dtype) for factor in pair] for name, pair in self.modules.items()}
        factors = [factor.detach().cpu().contiguous() for pair in self.modules.values() for factor in pair]
        flat = torch.cat([factor.view(torch.uint8).flatten() for factor in factors]) if factors else torch.empty(0, dtype=torch.uint8)
        return _unpickled, (layout, self.rank, self.alpha, flat.numpy())

    def to(self, dtype: torch.dtype) -> Self:
        """Return the adapter in another precision."""
        return replace(self, modules={name: (a.to(dtype), b.to(dtype)) for name, (a, b) in self.modules.items()})

    def delta(self, module: str) -> torch.Tensor:
        """Return what the adapter adds to the weight of ``module``, without alpha / rank: B A, [out, in]."""
        a, b = self.modules[module]
        return b @ a

    def norm(self) -> float:
        """Return the Frobenius norm of the deltas of all modules."""
        from populora.adapters.operators.similarity import delta_norm

        return delta_norm(self)

    def cosine(self, other: Self) -> float:
        """Return the cosine between the deltas of two adapters of the same modules: 0 if one of them is zero, 1 if both are."""
        from populora.adapters.operators.similarity import delta_cosine

        return delta_cosine(self, other, (self.norm(), other.norm()))

    def singular_values(self) -> dict[str, torch.Tensor]:
        """Return the singular values [r] of each module's delta, the largest first."""
        from populora.adapters.svd import double_qr_svd

        return {name: spectrum.s for name, spectrum in zip(self.modules, double_qr_svd(list(self.modules.values())), strict=True)}

    def fingerprint(self) -> str:
        """Return the SHA-256 over names, shapes and bytes. It does not depend on the order of the modules."""
        digest = hashlib.sha256(f"{self.rank}:{self.alpha}".encode())
        for name, pair in sorted(self.modules.items()):
            digest.update(f"{name}:{tuple(pair[0].shape)}:{tuple(pair[1].shape)}".encode())
            for tensor in pair:
                digest.update(tensor.detach().contiguous().view(torch.uint8).numpy().data)  # its own memory, not a copy
        return digest.hexdigest()


def _unpickled(layout: dict[str, list[tuple[tuple[int, ...], torch.dtype]]], rank: int, alpha: float, flat: np.ndarray) -> Adapter:
    kinds = [kind for pair in layout.values() for kind in pair]
    parts = torch.from_numpy(flat.copy()).split(
        [math.prod(shape) * dtype.itemsize for shape, dtype in kinds]
    )  # the pickled array may be read-only
    factors = iter([part.view(dtype).view(shape) for part, (shape, dtype) in zip(parts, kinds, strict=True)])
    return Adapter({name: (next(factors), next(factors)) for name in layout}, rank, alpha)


def all_finite(tensor: torch.Tensor) -> bool:
    """Return True if no entry is NaN or infinite. The extremes keep NaN, and finding them allocates no tensor of this size."""
    return tensor.numel() == 0 or all(math.isfinite(extreme) for extreme in torch.aminmax(tensor))
