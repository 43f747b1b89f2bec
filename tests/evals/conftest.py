import os
from pathlib import Path

import pytest

from populora.evals.benchmarks import BENCHMARKS
from populora.evals.grading import GRADERS
from populora.sandbox.pool import SandboxPool


@pytest.fixture(scope="session")
def benchmark_data() -> Path:
    """The folder with the public test splits, which are not part of this repository."""
    folder = os.environ.get("POPULORA_BENCHMARK_DATA")
    if folder is None:
        pytest.skip("POPULORA_BENCHMARK_DATA names no folder with the benchmarks' files")
    return Path(folder)


@pytest.fixture(scope="module")
def pool_of():
    """Started pools by benchmark, each once a module."""
    pools: dict[str, SandboxPool] = {}

    def start(name: str) -> SandboxPool:
        kind = BENCHMARKS[name].grading
        if kind not in pools:
            pools[kind] = SandboxPool(GRADERS[kind].limits, 2, allow_weak=True)
        return pools[kind]

    yield start
    for pool in pools.values():
        pool.close()
