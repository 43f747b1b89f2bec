"""One undisturbed run for all tests that only read it."""

import pytest
from small_run import SMALL, Silent

from populora.training.loop import train


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    train(SMALL, folder, Silent())
    return folder
