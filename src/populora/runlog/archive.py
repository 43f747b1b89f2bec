"""The tessellation that a run's coverage refers to, kept in its directory: ``archive/tessellation.npz``.

Coverage numbers of two runs can be compared exactly when these files are equal.
"""

from __future__ import annotations

import io
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from populora.analysis.coverage import tessellation_file
from populora.errors import RunDirectoryError
from populora.runlog.files import disk_errors, write_file

TESSELLATION = Path("archive", "tessellation.npz")


def keep_tessellation(folder: Path) -> None:
    """Write the file unless the run has it. Raises `RunDirectoryError`."""
    file = folder / TESSELLATION
    if not file.exists():
        with disk_errors(file.parent, "create"):
            file.parent.mkdir(exist_ok=True)
        write_file(file, tessellation_file())


def read_tessellation(folder: Path) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """Ranges [4, 2] and centroids [cells, 4] of a run. Raises `RunDirectoryError`."""
    file = folder / TESSELLATION
    with disk_errors(file, "read"):
        data = file.read_bytes()
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as found:
            return found["ranges"], found["centroids"]
    except (ValueError, KeyError, EOFError, BadZipFile, TypeError, AttributeError) as error:
        raise RunDirectoryError(f"'{file}' is damaged ({error}): restore it from a backup") from error
