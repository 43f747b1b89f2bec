"""One pool for each tier that this machine has."""

import pytest

from populora.core.errors import SandboxUnavailableError
from populora.sandbox.layers import isolation
from populora.sandbox.pool import SandboxPool
from populora.sandbox.protocol import Limits

LIMITS = Limits(cpu_seconds=0.5, wall_seconds=2, memory_mb=256)


def start_pool(tier, limits=LIMITS, workers=2):
    """A pool, which must come up wherever the machine has the tier."""
    try:
        isolation(allow_weak=tier == "weak", tier=tier)
    except SandboxUnavailableError as error:
        pytest.skip(str(error))
    return SandboxPool(limits, workers, allow_weak=tier == "weak", tier=tier)


@pytest.fixture
def new_pool():
    """``new_pool(tier=None, limits=…, workers=1)``: a pool of the test's own, closed behind it."""
    pools = []

    def start(tier=None, limits=LIMITS, workers=1):
        pools.append(start_pool(tier, limits, workers))
        return pools[-1]

    yield start
    for pool in pools:
        pool.close()


@pytest.fixture(scope="session", params=["full", "standard"])
def strong(request):
    """Every tier that models may train on."""
    with start_pool(request.param) as pool:
        yield pool


@pytest.fixture(scope="session")
def weak():
    """Limits only: the negative control."""
    with start_pool("weak") as pool:
        yield pool


@pytest.fixture(scope="session")
def best():
    """The strongest tier of this machine."""
    with start_pool(None) as pool:
        yield pool
