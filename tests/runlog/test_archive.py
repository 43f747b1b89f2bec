"""The tessellation that a run keeps, and coverage computed from it again."""

from __future__ import annotations

import numpy as np
import pytest

from populora.analysis.coverage import RANGES, Archive, centroids, covered
from populora.errors import RunDirectoryError
from populora.rng import stream
from populora.runlog.archive import TESSELLATION, keep_tessellation, read_tessellation


def test_a_run_keeps_ranges_and_centroids_as_they_are_pinned(tmp_path):
    keep_tessellation(tmp_path)
    ranges, centres = read_tessellation(tmp_path)
    assert np.array_equal(ranges, RANGES) and np.array_equal(centres, centroids())


def test_equal_tessellations_are_equal_bytes_and_what_is_there_stays(tmp_path):
    keep_tessellation(tmp_path / "one") if (tmp_path / "one").mkdir() is None else None
    keep_tessellation(tmp_path / "two") if (tmp_path / "two").mkdir() is None else None
    assert (tmp_path / "one" / TESSELLATION).read_bytes() == (tmp_path / "two" / TESSELLATION).read_bytes()
    (tmp_path / "one" / TESSELLATION).write_bytes(b"another version's")
    keep_tessellation(tmp_path / "one")
    assert (tmp_path / "one" / TESSELLATION).read_bytes() == b"another version's"


@pytest.mark.parametrize("content", [None, b"", b"no archive", b"PK\x03\x04cut", b"\x93NUMPY\x01\x00"])
def test_an_absent_or_damaged_file_is_one_error(tmp_path, content):
    if content is not None:
        keep_tessellation(tmp_path)
        (tmp_path / TESSELLATION).write_bytes(content)
    with pytest.raises(RunDirectoryError, match="cannot read .*tessellation" if content is None else "tessellation.* is damaged"):
        read_tessellation(tmp_path)


def test_coverage_of_a_kept_tessellation_is_that_of_the_archive():
    descriptors = stream(0, "test", "coverage").integers(0, 12, (500, 4))
    archive, filled = Archive(), []
    for descriptor in descriptors.tolist():
        archive.add([descriptor])
        filled.append(archive.filled)
    assert covered(descriptors, RANGES, centroids()).tolist() == filled
    assert len(covered([], RANGES, centroids())) == 0
