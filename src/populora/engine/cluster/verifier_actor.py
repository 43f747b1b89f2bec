"""Sandbox pools on several machines. A job depends on nothing but itself, so it can run anywhere, and again."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from populora.domains.declaration import fingerprint_of
from populora.domains.registry import load_domains
from populora.engine.cluster.actor_pool import ActorPool, Call
from populora.sandbox.layers import Tier
from populora.sandbox.pool import SandboxPool
from populora.sandbox.protocol import Expected, Job, Limits, Verdict

PARTS = 4
"""Parts of a batch for each verifier, so that long jobs in one part do not delay a whole share."""


@dataclass(frozen=True)
class VerifierInfo:
    """What must be alike in all verifiers of a run."""

    tier: Tier
    domains: str
    """The versions of the domains on its machine (`fingerprint_of`)."""


class VerifierActor:
    """The process of a verifier. Its sandbox starts in `open`, so that missing isolation is raised as an error, not as a dead actor."""

    def __init__(self, process: int = 0) -> None: ...

    def open(self, limits: Limits, workers: int, allow_weak: bool, domains: Sequence[str]) -> VerifierInfo:
        """Start the sandbox, and return what it depends on. Raises `SandboxUnavailableError`."""
        self._pool = SandboxPool(limits, workers, allow_weak)
        return VerifierInfo(self._pool.tier, fingerprint_of(load_domains(domains).values()))

    def run(self, jobs: Sequence[Job], twice: bool, expected: Expected, urgent: bool) -> list[Verdict]:
        """See `SandboxPool.run`."""
        return self._pool.run(jobs, twice, expected, urgent)

    def close(self) -> None:
        """End the sandbox's processes."""
        self._pool.close(now=True)


class ClusterVerifier:
    """The controller's counterpart of `SandboxPool`. May be called from several threads."""

    def __init__(self, pool: ActorPool):
        self._pool = pool

    def run(self, jobs: Sequence[Job], twice: bool = False, expected: Expected | None = None, urgent: bool = False) -> list[Verdict]:
        """See `SandboxPool.run`."""
        distinct = list(dict.fromkeys(jobs))
        size = max(1, -(-len(distinct) // (PARTS * len(self._pool))))
        parts = [distinct[start : start + size] for start in range(0, len(distinct), size)]
        known = [{job: expected[job] for job in part if expected and job in expected} for part in parts]
        calls = [(part, twice, values, urgent) for part, values in zip(parts, known, strict=True)]
        results = self._pool.run([Call(number % len(self._pool), "run", call) for number, call in enumerate(calls)])
        verdicts = dict(zip(distinct, itertools.chain.from_iterable(results), strict=True))
        return [verdicts[job] for job in jobs]
