"""SVD of LoRA deltas through their factors, and the way back from singular components to factors (paper, appendix "Full LoRA
Operator Catalog").

With ``B = Q_b R_b`` and ``A^T = Q_a R_a`` the delta is ``B A = Q_b (R_b R_a^T) Q_a^T``, so only an r x r core needs an SVD and the
out x in matrix is never formed. Each R is the Cholesky factor of a Gram matrix, in fp64 unless columns are nearly orthogonal, which
takes a fraction of a Householder QR. Zero columns (``B = 0``, revived components) are left out of it; modules whose factors have
nearly dependent columns, or fewer dimensions than components, take Householder in fp64. ``alpha / rank`` stays outside (reading 28).

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

from populora.adapters.adapter import Factors

Refactor = Literal["revive", "balanced"]

DEAD = 2e-6
"""A component counts as zero when its singular value is at most this share of the largest: just above the error of fp32 factors."""
SMALLEST = 1e-30
"""Sums of squares in fp32 below this lack bits, or are 0."""
INDEPENDENT = 1e-3
"""A column counts as independent when at least this share of it is outside the span of those before it. Its fp32 rounding shows in its
direction by the inverse of that share: vectors are orthonormal to 1e-4 at worst, to 1e-6 where columns are nearly orthogonal."""
ORTHOGONAL = 0.9
"""The share from which a Gram matrix in fp32 is as good. A usually meets this bound, because it starts random."""


class Spectrum(NamedTuple):
    """Components of one delta, ``u * s @ v.T``, with ``u = b @ left`` and ``v = a.T @ right``, fp32.

    The vectors are kept as combinations of factors, because operators only scale, mix and select them: that happens in the small
    ``left`` and ``right``, and the long vectors are computed once, for the child. Vectors of dead components may be shorter than 1, and
    operators may break the orthonormality of others.
    """

    a: torch.Tensor
    """[k, in]: the factor itself, or a basis of it where it is deficient; k is r unless in is smaller."""
    b: torch.Tensor
    """[out, k], likewise."""
    left: torch.Tensor
    """[k, r]."""
    s: torch.Tensor
    """[r]; descending and not negative as long as no operator has changed it."""
    right: torch.Tensor
    """[k, r]."""

    @property
    def u(self) -> torch.Tensor:
        """[out, r]."""
        return self.b @ self.left

    @property
    def v(self) -> torch.Tensor:
        """[in, r]."""
        return (self.right.T @ self.a).T

    def part(self, start: int | None, stop: int | None) -> Spectrum:
        """Select the components from ``start`` to before ``stop``."""
        columns = slice(start, stop)
        return self._replace(left=self.left[:, columns], s=self.s[columns], right=self.right[:, columns])


def double_qr_svd(pairs: Sequence[Factors]) -> list[Spectrum]:
    """Compute the SVD of ``b @ a`` for each pair of a [r, in] and b [out, r], always with r components.

    Signs are fixed: no column of u has a negative sum over every (1 + out // 64)-th row, whatever the factorisation. Where out or in
    is smaller than r, the components that cannot exist are zero columns with singular value 0. The factors must be finite.
    """
    spectra: dict[int, Spectrum] = {}
    for rank in {len(a) for a, _ in pairs}:  # cores of one size go through LAPACK together: calling costs as much as computing
        places = [place for place, (a, _) in enumerate(pairs) if len(a) == rank]
        r_b, full_b, share_b = _triangles([pairs[place][1] for place in places])
        r_a, full_a, share_a = _triangles([pairs[place][0].T for place in places])
        u, s, vt = torch.linalg.svd((r_b * full_b) @ (r_a * full_a).mT)
        left, right = (torch.linalg.solve_triangular(r, core, upper=True) for r, core in ((r_b, u), (r_a, vt.mT)))
        sign = _signs([pairs[place][1] for place in places], left)
        left, s, right = (left * sign).float(), s.float(), (right * sign).float()
        for index, place in enumerate(places):
            if min(share_a[index], share_b[index]) > INDEPENDENT:
                spectra[place] = Spectrum(*pairs[place], left[index], s[index], right[index])
            else:
                spectra[place] = _householder_svd(*pairs[place])
    return [spectra[place] for place in range(len(pairs))]


def _triangles(talls: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, list[float]]:
    """Compute the triangular factors R [n, r, r] (fp64) of [m, r] matrices.

    Also returns [n, r, 1], which is 0 for zero columns, else 1; and the share of the least independent column (`INDEPENDENT`). A zero
    column has 1 on the diagonal of R, so that R can be inverted. Where the share is 0, R is 1.
    """
    grams = torch.stack([tall.T @ tall for tall in talls])
    r, full, shares = _cholesky(grams)
    small = (grams.diagonal(dim1=1, dim2=2).amin(dim=1) < SMALLEST).tolist()
    rough = [index for index, share in enumerate(shares) if share <= ORTHOGONAL or small[index]]
    if rough:
        r[rough], full[rough], exact = _cholesky(torch.stack([tall.T @ tall for tall in (talls[index].double() for index in rough)]))
        for index, share in zip(rough, exact, strict=True):
            shares[index] = share
    return r, full, shares


def _cholesky(grams: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, list[float]]:
    stacked = grams.double()
    sizes = stacked.diagonal(dim1=1, dim2=2)
    empty = (sizes == 0).double()
    lower, failed = torch.linalg.cholesky_ex(stacked + empty.diag_embed())
    shares = (lower.diagonal(dim1=1, dim2=2) / (sizes + empty).sqrt()).amin(dim=1)
    fine = (failed == 0) & (shares > INDEPENDENT)
    r = torch.where(fine[:, None, None], lower.mT, torch.eye(lower.shape[1]))
    return r, 1 - empty[..., None], torch.where(fine, shares, 0.0).tolist()


def _householder_svd(a: torch.Tensor, b: torch.Tensor) -> Spectrum:
    """Do the same as `double_qr_svd` for factors of any condition."""
    q_b, r_b = torch.linalg.qr(b.double())
    q_a, r_a = torch.linalg.qr(a.T.double())
    u, s, vt = torch.linalg.svd(r_b @ r_a.T, full_matrices=False)
    left, s, right = (pad(part, (0, b.shape[1] - len(s))) for part in (u, s, vt.T))
    (sign,) = _signs([q_b], left[None])
    return Spectrum(*(part.float() for part in (q_a.T, q_b, left * sign, s, right * sign)))


def _signs(bases: Sequence[torch.Tensor], left: torch.Tensor) -> torch.Tensor:
    """Return 1 or -1 for each column of ``basis @ left``, [n, 1, r]."""
    some_rows = torch.stack([basis[:: 1 + len(basis) // 64].sum(dim=0) for basis in bases]).double()
    return torch.where(some_rows[:, None] @ left < 0, -1.0, 1.0)


def truncated_svd(dense: torch.Tensor, rank: int, rng: np.random.Generator) -> Spectrum:
    """Compute the leading ``rank`` components of a dense delta [out, in] that has more: block power iteration from a random start.

    Eight spare vectors and four iterations leave an error within 0.5 % of the exact SVD's on deltas that X1 has thinned.
    """
    start = rng.standard_normal((dense.shape[1], rank + 8), dtype=np.float32)
    q = torch.linalg.qr(dense @ torch.tensor(start)).Q  # a copy: NumPy's memory is not aligned
    for _ in range(4):
        q = torch.linalg.qr(dense @ torch.linalg.qr(dense.T @ q).Q).Q
    q = pad(q, (0, max(0, rank - q.shape[1])))  # out or in is smaller than the rank
    return double_qr_svd([(q.T @ dense, q)])[0].part(0, rank)


def dead_components(s: torch.Tensor) -> torch.Tensor:
    """Mask the singular values that are zero up to fp32 accuracy (`DEAD`); all of them for a zero delta, never an infinite one."""
    size = s.abs()
    return (size <= DEAD * size.max()) & torch.isfinite(s)


def recombine(parts: Sequence[Spectrum]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return A [r, in] and B [out, r], fp32, whose product is the sum of all ``parts``, r components together; and which of these are dead.

    Split evenly (paper): ``B = u sqrt(s)``, ``A = sqrt(s) v^T``. Dead components are zero in both.
    """
    s = torch.cat([part.s for part in parts])
    dead = dead_components(s)
    root = s.abs().sqrt().masked_fill(dead, 0.0)
    a, b = torch.empty(len(s), parts[0].a.shape[1]), torch.empty(parts[0].b.shape[0], len(s))
    stop = 0
    for part in parts:
        start, stop = stop, stop + len(part.s)
        scale = root[start:stop]
        torch.mm((part.right * scale).T, part.a, out=a[start:stop])
        torch.mm(part.b, part.left * (scale * part.s.sign()), out=b[:, start:stop])
    return a, b, dead


def revive(a: torch.Tensor, dead: torch.Tensor, rng: np.random.Generator) -> None:
    """Give the components marked in ``dead`` [r] fresh rows of A [r, in] from U(-1/sqrt(in), 1/sqrt(in)), in place.

    This is what PEFT's kaiming uniform with a = sqrt(5) amounts to. Where none is marked nothing is drawn.
    """
    if bool(dead.any()):
        bound = 1.0 / math.sqrt(a.shape[1])
        fresh = torch.from_numpy(rng.random((int(dead.sum()), a.shape[1]), dtype=np.float32))
        a[dead] = fresh.mul_(2 * bound).sub_(bound)
