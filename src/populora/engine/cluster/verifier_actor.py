"""A verifier's process: a sandbox pool on some machine of the cluster."""

from __future__ import annotations

from collections.abc import Sequence

from populora.sandbox.layers import Tier
from populora.sandbox.pool import SandboxPool
from populora.sandbox.protocol import Job, Limits, Verdict


class VerifierHost:
    """Starts its sandbox when it is opened, not when it is made: a machine without isolation is that error, and not a dead actor."""

    def __init__(self, process: int = 0) -> None: ...

    def open(self, limits: Limits, workers: int, allow_weak: bool) -> Tier:
        """The isolation that this machine reaches. Raises `SandboxUnavailableError` as a run in one process does."""
        self._pool = SandboxPool(limits, workers, allow_weak)
        return self._pool.tier

    def run(self, jobs: Sequence[Job], twice: bool) -> list[Verdict]:
        """See `SandboxPool.run`."""
        return self._pool.run(jobs, twice)

    def close(self) -> None:
        """End the sandbox's processes."""
        self._pool.close(now=True)
