"""SVD of a LoRA delta through its factors, and the way back from singular components to factors (paper, appendix "Full LoRA
Operator Catalog").

With ``B = Q_b R_b`` and ``A^T = Q_a R_a`` the delta is ``B A = Q_b (R_b R_a^T) Q_a^T``, so only an r x r core needs an SVD and the
out x in matrix is never formed. Each R is the Cholesky factor of a Gram matrix in fp64, a quarter of the time of a Householder QR;
where columns are zero or nearly dependent (``B = 0``, fewer dimensions than components) Householder takes over, which is finite for
any factor. ``alpha / rank`` stays outside (reading 28).

Deviation, the default of the operators: the paper's balanced split turns a zero singular value into a zero row of A *and* a zero
column of B. Both gradients are then exactly zero for ever, and the child cannot relearn that direction. ``revive`` keeps the delta
and gives such a component a fresh row of A as at LoRA initialisation, with its column of B zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch.nn.functional import pad

Refactor = Literal["revive", "balanced"]

DEAD = 1e-5
"""A component counts as zero when its singular value is at most this share of the largest: just above the error of fp32."""
INDEPENDENT = 1e-4
"""A column counts as independent when at least this share of it is outside the span of those before it: Gram matrices in fp64
then give vectors orthonormal to about 1e-6, as fp32 can hold them."""


class Spectrum(NamedTuple):
    """Components of one delta, ``u * s @ v.T``, with ``u = b @ left`` and ``v = a.T @ right``.

    The vectors are kept as combinations of factors, because operators only scale, mix and select them: that happens in the small
    ``left`` and ``right``, and the long vectors are computed once, for the child. Operators may break the orthonormality.
    """

    a: torch.Tensor
    """[k, in], fp32; k is r unless the factors are deficient."""
    b: torch.Tensor
    """[out, k], fp32."""
    left: torch.Tensor
    """[k, r], fp64 as are ``s`` and ``right``: their products with a and b cancel where columns are nearly dependent."""
    s: torch.Tensor
    """[r], not negative; descending as long as no operator has changed it."""
    right: torch.Tensor
    """[k, r]."""

    @property
    def u(self) -> torch.Tensor:
        """[out, r], fp64."""
        return self.b.double() @ self.left

    @property
    def v(self) -> torch.Tensor:
        """[in, r], fp64."""
        return (self.right.T @ self.a.double()).T

    def part(self, start: int | None, stop: int | None) -> Spectrum:
        """Components ``start`` to before ``stop``."""
        chosen = slice(start, stop)
        return self._replace(left=self.left[:, chosen], s=self.s[chosen], right=self.right[:, chosen])


def double_qr_svd(a: torch.Tensor, b: torch.Tensor) -> Spectrum:
    """SVD of ``b @ a`` for a [r, in] and b [out, r], always with r components.

    Signs are fixed: no column of u has a negative sum. Where out or in is smaller than r, the components that cannot exist are
    zero columns with singular value 0. The factors must be finite.
    """
    missing = b.shape[1] - min(*b.shape, a.shape[1])
    basis_b, triangle_b, r_b = _qr(b)
    basis_a, triangle_a, r_a = _qr(a.T)
    core_u, s, core_vt = torch.linalg.svd(r_b @ r_a.T, full_matrices=False)
    left = torch.linalg.solve_triangular(triangle_b, core_u, upper=True)
    right = torch.linalg.solve_triangular(triangle_a, core_vt.T, upper=True)
    sign = torch.where(basis_b.sum(dim=0).double() @ left < 0, -1.0, 1.0)
    left, right = left * sign, right * sign
    if missing:
        left, s, right = (pad(part, (0, missing)) for part in (left, s, right))
    return Spectrum(basis_a.T, basis_b, left, s, right)


def singular_values(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The min(out, in, r) leading singular values of ``b @ a``, descending, fp64."""
    return torch.linalg.svdvals(_qr(b)[2] @ _qr(a.T)[2].T)


def _qr(tall: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """``tall = Q r`` as ``(basis, triangle, r)`` with ``basis = Q triangle``: either ``(tall, r, r)`` or ``(Q, 1, r)``.

    Triangles are fp64, bases fp32.
    """
    long = tall.double()
    gram = long.T @ long
    lower, failed = torch.linalg.cholesky_ex(gram)
    if not failed and bool((lower.diagonal() > INDEPENDENT * gram.diagonal().sqrt()).all()):
        return tall, lower.T, lower.T
    q, r = torch.linalg.qr(tall)
    return q, torch.eye(len(r), dtype=torch.float64), r.double()


def truncated_svd(dense: torch.Tensor, rank: int, rng: np.random.Generator) -> Spectrum:
    """The leading ``rank`` components of a dense delta [out, in] that has more: block power iteration from a random start.

    Eight spare vectors and four iterations leave an error within 0.5 % of the exact SVD's on deltas that X1 has thinned.
    """
    start = rng.standard_normal((dense.shape[1], rank + 8), dtype=np.float32)
    q = torch.linalg.qr(dense @ torch.from_numpy(start)).Q
    for _ in range(4):
        q = torch.linalg.qr(dense @ torch.linalg.qr(dense.T @ q).Q).Q
    q = pad(q, (0, max(0, rank - q.shape[1])))  # out or in is smaller than the rank
    return double_qr_svd(q.T @ dense, q).part(0, rank)


def dead_components(s: torch.Tensor) -> torch.Tensor:
    """Mask of the singular values that are zero up to fp32 accuracy (`DEAD`); all of them for a zero delta, never an infinite one."""
    return (s <= DEAD * s.max()) & torch.isfinite(s)


def recombine(parts: Sequence[Spectrum]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A [r, in] and B [out, r], fp32, whose product is the sum of all ``parts``, r components together; and which of them are dead.

    Split evenly (paper): ``B = u sqrt(s)``, ``A = sqrt(s) v^T``. Dead components are zero, or nearly, in both.
    """
    s = torch.cat([part.s for part in parts])
    a, b = torch.empty(len(s), parts[0].a.shape[1]), torch.empty(parts[0].b.shape[0], len(s))
    stop = 0
    for part in parts:
        start, stop, root = stop, stop + len(part.s), part.s.sqrt()
        a[start:stop] = (part.right * root).T @ part.a.double()
        b[:, start:stop] = part.b.double() @ (part.left * root)
    return a, b, dead_components(s)


def revive(a: torch.Tensor, b: torch.Tensor, dead: torch.Tensor, rng: np.random.Generator) -> None:
    """Give dead components fresh rows of A from U(-1/sqrt(in), 1/sqrt(in)), in place, and zero columns of B.

    This is what PEFT's kaiming uniform with a = sqrt(5) amounts to. Without dead components nothing is drawn.
    """
    if bool(dead.any()):
        bound = 1.0 / math.sqrt(a.shape[1])
        fresh = rng.uniform(-bound, bound, size=(int(dead.sum()), a.shape[1]))
        a[dead] = torch.from_numpy(fresh).to(a.dtype)
        b[:, dead] = 0.0
