"""The tessellation that a run's coverage refers to, kept in its directory: ``archive/tessellation.npz``.

Coverage numbers of two runs can be compared exactly when these files are equal.
"""

from __future__ import annotations

import io
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from populora.core.errors import RunDirectoryError
from populora.core.files import disk_errors, write_file
from populora.tasks.coverage import METRICS, RANGES, centroids, tessellation_file

TESSELLATION = Path("archive", "tessellation.npz")


def keep_tessellation(folder: Path) -> None:
    """Write the file unless the run has it. Raises `RunDirectoryError`, also where what it has are not this version's cells."""
    file = folder / TESSELLATION
    if not file.exists():
        with disk_errors(file.parent, "create"):
            file.parent.mkdir(exist_ok=True)
        write_file(file, tessellation_file())
    ranges, centres = read_tessellation(folder)
    if not (np.array_equal(ranges, RANGES) and np.array_equal(centres, centroids())):
        raise RunDirectoryError(
            f"the cells of '{file}' are not those that this version of populora counts: resume with the one that wrote it"
        )


def read_tessellation(folder: Path) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """Ranges [4, 2] and centroids [cells, 4] of a run. Raises `RunDirectoryError` where there are none or they are damaged."""
    file = folder / TESSELLATION
    if not file.exists():
        raise RunDirectoryError(f"there is no '{file}': earlier versions of populora kept none")
    with disk_errors(file, "read"):
        data = file.read_bytes()
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as found:
            ranges, centres = np.asarray(found["ranges"], np.float64), np.asarray(found["centroids"], np.float32)
    except (ValueError, KeyError, EOFError, BadZipFile, TypeError, AttributeError) as error:
        raise RunDirectoryError(f"'{file}' is damaged ({error}): restore it from a backup") from error
    axes = len(METRICS)
    shaped = ranges.shape == (axes, 2) and centres.ndim == 2 and len(centres) > 0 and centres.shape[1] == axes
    if not (shaped and np.isfinite(centres).all() and np.isfinite(ranges).all() and (ranges[:, 0] < ranges[:, 1]).all()):
        shapes = f"ranges {list(ranges.shape)}, centroids {list(centres.shape)}"
        raise RunDirectoryError(f"'{file}' is damaged: expected finite ranges [{axes}, 2] and centroids [cells, {axes}], got {shapes}")
    return ranges, centres
