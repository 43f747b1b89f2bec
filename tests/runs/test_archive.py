"""The tessellation that a run keeps, and coverage computed from it again."""

from __future__ import annotations

import io

import numpy as np
import pytest

from populora.core.errors import RunDirectoryError
from populora.core.rng import stream
from populora.runs.archive import TESSELLATION, keep_tessellation, read_tessellation
from populora.tasks.coverage import RANGES, Archive, centroids, covered, tessellation_file


def test_a_run_keeps_ranges_and_centroids_as_they_are_pinned(tmp_path):
    keep_tessellation(tmp_path)
    ranges, centres = read_tessellation(tmp_path)
    assert np.array_equal(ranges, RANGES) and np.array_equal(centres, centroids())


def test_equal_tessellations_are_equal_bytes(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        keep_tessellation(tmp_path / name)
    assert (tmp_path / "one" / TESSELLATION).read_bytes() == (tmp_path / "two" / TESSELLATION).read_bytes()


def archive_of(**arrays) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def test_other_cells_are_not_taken_for_this_versions(tmp_path):
    keep_tessellation(tmp_path)
    keep_tessellation(tmp_path)
    other = archive_of(ranges=RANGES + 1, centroids=centroids())
    (tmp_path / TESSELLATION).write_bytes(other)
    with pytest.raises(RunDirectoryError, match="resume with the one that wrote it"):
        keep_tessellation(tmp_path)
    assert (tmp_path / TESSELLATION).read_bytes() == other, "it is not lost"


def plain_array() -> bytes:
    file = io.BytesIO()
    np.save(file, RANGES)
    return file.getvalue()


WHOLE = tessellation_file()
DAMAGED = {
    "empty": b"",
    "no archive": b"no archive",
    "cut": WHOLE[: len(WHOLE) // 2],
    "flipped": WHOLE[:5000] + b"\xff\x00" + WHOLE[5002:],
    "one array": plain_array(),
    "no ranges": archive_of(centroids=centroids()),
    "texts": archive_of(ranges=np.array(["a"]), centroids=centroids()),
    "three axes": archive_of(ranges=RANGES[:3], centroids=centroids()),
    "no cells": archive_of(ranges=RANGES, centroids=centroids()[:0]),
    "undefined": archive_of(ranges=RANGES * np.nan, centroids=centroids()),
    "no width": archive_of(ranges=RANGES * 0, centroids=centroids()),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_is_one_error(tmp_path, content):
    keep_tessellation(tmp_path)
    (tmp_path / TESSELLATION).write_bytes(content)
    with pytest.raises(RunDirectoryError, match=r"tessellation.npz' is damaged"):
        read_tessellation(tmp_path)


def test_a_file_that_earlier_versions_did_not_keep_is_not_called_damaged(tmp_path):
    with pytest.raises(RunDirectoryError, match="earlier versions of populora kept none"):
        read_tessellation(tmp_path)


def test_coverage_of_a_kept_tessellation_is_that_of_the_archive():
    descriptors = stream(0, "test", "coverage").integers(0, 12, (500, 4))
    archive, filled = Archive(), []
    for descriptor in descriptors.tolist():
        archive.add([descriptor])
        filled.append(archive.filled)
    assert covered(descriptors, RANGES, centroids()).tolist() == filled
    assert len(covered([], RANGES, centroids())) == 0
