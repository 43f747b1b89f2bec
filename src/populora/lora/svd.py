"""SVD of a LoRA delta through its factors, and the way back from singular components to factors (paper, appendix "Full LoRA
Operator Catalog").

With ``B = Q_b R_b`` and ``A^T = Q_a R_a`` the delta is ``B A = Q_b (R_b R_a^T) Q_a^T``, so only an r x r core needs an SVD and the
out x in matrix is never formed. Householder QR is finite for rank-deficient factors and for ``B = 0``. QR runs in the factors' own
dtype (fp32: relative error about 1e-6), the core in fp64. ``alpha / rank`` stays outside (reading 28).

Deviation, the default of the operators: the paper's balanced split turns a zero singular value into a zero row of A *and* a zero
column of B. Both gradients are then exactly zero for ever, and the child cannot relearn that direction. ``revive`` keeps the delta
and gives such a component a fresh row of A as at LoRA initialisation, with its column of B zero.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
import torch

from populora.lora.adapter import Factors

Refactor = Literal["revive", "balanced"]

DEAD = 1e-5
"""A component counts as zero when its singular value is at most this share of the largest: just above the error of fp32."""


class Spectrum(NamedTuple):
    """Components of one delta, ``u * s @ v.T``: u [out, r], s [r] descending, v [in, r]. Operators may break the orthonormality."""

    u: torch.Tensor
    s: torch.Tensor
    v: torch.Tensor


def double_qr_svd(a: torch.Tensor, b: torch.Tensor) -> Spectrum:
    """SVD of ``b @ a`` for a [r, in] and b [out, r], always with r components.

    Signs are fixed: the entry of largest magnitude in each column of u is positive. Where out or in is smaller than r, the
    components that cannot exist are zero columns with singular value 0. The factors must be finite.
    """
    q_b, r_b = torch.linalg.qr(b)
    q_a, r_a = torch.linalg.qr(a.T)
    core_u, s, core_vt = torch.linalg.svd(r_b.double() @ r_a.double().T, full_matrices=False)
    u, v = q_b @ core_u.to(b.dtype), q_a @ core_vt.T.to(a.dtype)
    peak = u.gather(0, u.abs().argmax(dim=0, keepdim=True))
    sign = torch.where(peak < 0, -1.0, 1.0).to(u.dtype)
    missing = b.shape[1] - len(s)
    u, s, v = (torch.nn.functional.pad(part, (0, missing)) for part in (u * sign, s.to(b.dtype), v * sign))
    return Spectrum(u, s, v)


def singular_values(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The min(out, in, r) leading singular values of ``b @ a``, descending, fp64."""
    _, r_b = torch.linalg.qr(b, mode="r")
    _, r_a = torch.linalg.qr(a.T, mode="r")
    return torch.linalg.svdvals(r_b.double() @ r_a.double().T)


def dead_components(s: torch.Tensor) -> torch.Tensor:
    """Mask of the singular values that are zero up to fp32 accuracy (`DEAD`); all of them for a zero delta, never an infinite one."""
    return (s <= DEAD * s.max()) & torch.isfinite(s)


def refactor(spectrum: Spectrum, how: Refactor, rng: np.random.Generator) -> Factors:
    """Factors A [r, in] and B [out, r] with ``B A = u s v^T``, split evenly: ``B = u sqrt(s)``, ``A = sqrt(s) v^T``.

    ``revive`` re-initialises the dead components: row of A from U(-1/sqrt(in), 1/sqrt(in)), which is what PEFT's kaiming
    uniform with a = sqrt(5) amounts to, and column of B zero. ``balanced`` (paper) leaves them and never draws from ``rng``.
    """
    root = spectrum.s.sqrt()
    a, b = (spectrum.v * root).T.contiguous(), spectrum.u * root
    dead = dead_components(spectrum.s)
    if how == "revive" and bool(dead.any()):
        bound = 1.0 / math.sqrt(a.shape[1])
        fresh = rng.uniform(-bound, bound, size=(int(dead.sum()), a.shape[1]))
        a[dead] = torch.from_numpy(fresh).to(a.dtype)
        b[:, dead] = 0.0
    return a, b
