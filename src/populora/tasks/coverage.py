"""Problem-space coverage: a CVT archive of 4096 cells over the four program metrics (paper, appendix "Problem-Space Coverage").

In a centroidal Voronoi tessellation (Vassiliades et al. 2018) of the unit cube [0, 1]^4 each program belongs to the nearest centroid
of its normalised descriptor. The paper gives neither ranges nor centroids, and coverage depends on both, so both are fixed: the ranges by
the metrics of the domain (values outside are clipped), and `centroids.npz`, made by ``python -m populora.tasks.coverage`` from a named
random stream. Each domain of a run has an archive of its own.

Deviation: the paper reports true coverage for the population but (all problems) / 4096 for its baseline. Here every arm gets
both numbers, ``coverage`` and ``proxy``; they must not be compared with each other.
"""

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import KDTree  # pyright: ignore[reportMissingTypeStubs]

from populora.core.errors import PopuloraError, RunDirectoryError
from populora.core.rng import stream
from populora.domains.declaration import AXES, Domain

CELLS = 4096
CENTROIDS_FILE = Path(__file__).with_name("centroids.npz")


def lloyd(samples: int = 50_000, rounds: int = 25) -> NDArray[np.float32]:
    """Compute centroids [4096, 4] of a uniform sample of the unit cube by Lloyd's algorithm; an empty cell keeps its centroid."""
    points = stream(0, "coverage", "centroids").random((samples, AXES))
    centroids = points[:CELLS].copy()
    for _ in range(rounds):
        cells = _nearest(KDTree(centroids), points)
        sizes = np.bincount(cells, minlength=CELLS)
        sums = np.stack([np.bincount(cells, weights=axis, minlength=CELLS) for axis in points.T], axis=1)
        centroids = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centroids)
    return centroids.astype(np.float32)


@cache
def centroids() -> NDArray[np.float32]:
    """Load the shipped centroids [4096, 4]; read-only."""
    with np.load(CENTROIDS_FILE, allow_pickle=False) as archive:
        loaded: NDArray[np.float32] = archive["centroids"]
    loaded.setflags(write=False)
    return loaded


@cache
def _tree() -> KDTree:
    return KDTree(centroids())


def ranges_of(domain: Domain) -> NDArray[np.float64]:
    """Return the lowest and highest value of each metric [4, 2]."""
    return np.array([[metric.low, metric.high] for metric in domain.metrics], dtype=np.float64)


def normalise(descriptors: ArrayLike, ranges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Map descriptors [n, 4] to the unit cube, clipped to ``ranges`` [4, 2]. Raises `PopuloraError` for another shape."""
    values = np.asarray(descriptors, dtype=np.float64)
    values = values.reshape(0, AXES) if values.size == 0 else values
    if values.ndim != 2 or values.shape[1] != AXES:
        raise PopuloraError(f"expected descriptors of shape [n, {AXES}], one column a metric, got {list(values.shape)}")
    return np.clip((values - ranges[:, 0]) / (ranges[:, 1] - ranges[:, 0]), 0.0, 1.0)


def cells_of(descriptors: ArrayLike, domain: Domain) -> NDArray[np.int64]:
    """Find the cell [n] of each descriptor [n, 4]."""
    return _nearest(_tree(), normalise(descriptors, ranges_of(domain)))


def _nearest(tree: KDTree, points: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.asarray(tree.query(points)[1], dtype=np.int64)  # pyright: ignore[reportUnknownMemberType] scipy ships no types


def tessellation_sha256(domain: Domain) -> NDArray[np.uint8]:
    """Compute the SHA-256 [32] of ranges and centroids; coverage numbers are comparable exactly when it is equal."""
    digest = hashlib.sha256(ranges_of(domain).astype("<f8").tobytes() + centroids().astype("<f4").tobytes())
    return np.frombuffer(digest.digest(), dtype=np.uint8)


class Archive:
    """Counts of a run's valid programs of one domain by cell, and their distinct descriptors."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._counts = np.zeros(CELLS, dtype=np.int64)
        self._descriptors: set[tuple[int, ...]] = set()

    def add(self, descriptors: Sequence[Sequence[int]]) -> None:
        """Count a batch of descriptors in the order of the domain's metrics."""
        self._counts += np.bincount(cells_of(descriptors, self._domain), minlength=CELLS)
        self._descriptors.update(tuple(int(value) for value in descriptor) for descriptor in descriptors)

    @property
    def filled(self) -> int:
        """Cells with at least one program."""
        return int(np.count_nonzero(self._counts))

    @property
    def total_problems(self) -> int:
        """All programs ever added, repeats included."""
        return int(self._counts.sum())

    def summary(self) -> dict[str, float]:
        """Return ``coverage`` (filled cells, fraction), ``distinct_descriptors``, ``total_problems`` and the paper's ``proxy``."""
        return {
            "coverage": self.filled / CELLS,
            "distinct_descriptors": float(len(self._descriptors)),
            "total_problems": float(self.total_problems),
            "proxy": self.total_problems / CELLS,
        }

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return plain arrays: ``counts`` [4096], ``descriptors`` [n, 4] in sorted order, and the ``tessellation`` they refer to."""
        descriptors = np.array(sorted(self._descriptors), dtype=np.int64).reshape(-1, AXES)
        return {"counts": self._counts.copy(), "descriptors": descriptors, "tessellation": tessellation_sha256(self._domain)}

    @classmethod
    def restore(cls, state: dict[str, NDArray[np.generic]], domain: Domain) -> Self:
        """Rebuild the archive from `state`. Raises `RunDirectoryError` if its cells are not this version's cells."""
        if not np.array_equal(state["tessellation"], tessellation_sha256(domain)):
            recorded, expected = state["tessellation"].tobytes().hex()[:12], tessellation_sha256(domain).tobytes().hex()[:12]
            raise RunDirectoryError(
                f"the coverage archive was filled with tessellation {recorded}, this version of populora has {expected}: "
                "the numbers would not be comparable. Resume with the version that wrote the run."
            )
        archive = cls(domain)
        archive._counts = state["counts"].astype(np.int64)
        archive._descriptors = {tuple(row) for row in state["descriptors"].tolist()}
        return archive


if __name__ == "__main__":
    np.savez(CENTROIDS_FILE, centroids=lloyd())
