"""The CVT archive: pinned centroids, the same cells as pyribs, and counts that survive a save."""

import numpy as np
import pytest
from experiments.tiny_base.grammar import random_program
from hypothesis import given
from hypothesis import strategies as st

from populora.core.errors import PopuloraError, RunDirectoryError
from populora.core.rng import stream
from populora.domains.registry import load_domain
from populora.sandbox.complexity import measure
from populora.tasks import coverage
from populora.tasks.coverage import CELLS, Archive, cells_of, centroids, lloyd, normalise, ranges_of

PYTHON = load_domain("python")
RANGES = ranges_of(PYTHON)
descriptors = st.lists(st.tuples(*(st.integers(int(low), int(high)) for low, high in RANGES)), max_size=40)


def test_shipped_centroids_come_from_the_committed_command():
    np.testing.assert_allclose(centroids(), lloyd(), atol=1e-6)
    assert centroids().shape == (CELLS, 4)
    assert centroids().min() > 0.0
    assert centroids().max() < 1.0


def test_cells_equal_those_of_pyribs():
    from ribs.archives import CVTArchive

    points = np.random.default_rng(1).uniform(RANGES[:, 0] - 5, RANGES[:, 1] + 5, (10_000, 4))
    oracle = CVTArchive(solution_dim=1, centroids=centroids().astype(np.float64), ranges=[(0.0, 1.0)] * 4)
    assert (cells_of(points, PYTHON) == oracle.index_of(normalise(points, RANGES))).all()


@pytest.mark.thorough
def test_coverage_of_10_000_random_programs_is_that_of_a_pyribs_archive():
    from ribs.archives import CVTArchive

    rng = stream(0, "test", "coverage")
    measured = [measure(random_program(rng, 1 + index % 8)) for index in range(10_000)]
    descriptors = [(program.ast_depth, program.cyclomatic, program.loc, program.variables) for program in measured]
    ours = Archive(PYTHON)
    ours.add(descriptors)
    oracle = CVTArchive(solution_dim=1, centroids=centroids().astype(np.float64), ranges=[(0.0, 1.0)] * 4)
    oracle.add(np.zeros((10_000, 1)), np.arange(10_000.0), normalise(descriptors, RANGES))
    assert ours.filled == oracle.stats.num_elites > 50
    assert ours.summary()["coverage"] == pytest.approx(oracle.stats.coverage)


def test_normalise_maps_the_ranges_to_the_unit_cube_and_clips():
    corners = np.stack([RANGES[:, 0], RANGES[:, 1], RANGES[:, 1] + 100, RANGES[:, 0] - 100])
    assert normalise(corners, RANGES).tolist() == [[0.0] * 4, [1.0] * 4, [1.0] * 4, [0.0] * 4]


def test_every_cell_can_be_reached_by_whole_numbers():
    axes = np.meshgrid(*(np.arange(low, high + 1) for low, high in RANGES), indexing="ij")
    assert len(np.unique(cells_of(np.stack([axis.ravel() for axis in axes], axis=1), PYTHON))) == CELLS


@given(st.lists(descriptors, max_size=5))
def test_archive_counts_as_a_plain_dictionary_would(batches):
    archive, cells, everything = Archive(PYTHON), set(), []
    for batch in batches:
        archive.add(batch)
        cells |= set(cells_of(batch, PYTHON).tolist())
        everything += batch
    assert archive.summary() == {
        "coverage": len(cells) / 4096,
        "distinct_descriptors": len(set(everything)),
        "total_problems": len(everything),
        "proxy": len(everything) / 4096,
    }


@given(descriptors, descriptors)
def test_restored_archive_goes_on_as_the_original(before, after):
    original = Archive(PYTHON)
    original.add(before)
    restored = Archive.restore(original.state(), PYTHON)
    original.add(after)
    restored.add(after)
    assert original.summary() == restored.summary()
    for expected, values in zip(original.state().values(), restored.state().values(), strict=True):
        assert values.tobytes() == expected.tobytes()


def test_archive_of_another_tessellation_is_refused(monkeypatch):
    state = Archive(PYTHON).state()
    monkeypatch.setattr(coverage, "ranges_of", lambda domain: RANGES * 2)
    with pytest.raises(RunDirectoryError, match="not be comparable"):
        Archive.restore(state, PYTHON)


@pytest.mark.parametrize("wrong", [[(1, 2, 3)], [1, 2, 3, 4], [[(1, 2, 3, 4)]]])
def test_descriptor_of_another_shape_is_refused(wrong):
    with pytest.raises(PopuloraError, match="shape"):
        Archive(PYTHON).add(wrong)
