"""Verdicts from sandboxes on several machines. A job depends on nothing but itself, so it can be asked anywhere, and again."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from populora.engine.cluster.actor_pool import Crew
from populora.engine.cluster.calls import Call
from populora.sandbox.protocol import Job, Verdict

PARTS = 4
"""Jobs are handed out in so many parts a verifier: one that has the long ones is not waited for by the others' whole shares."""


class ClusterPool:
    """What `SandboxPool` is in one process. May be called from several threads."""

    def __init__(self, crew: Crew):
        self._crew = crew

    def run(self, jobs: Sequence[Job], twice: bool = False) -> list[Verdict]:
        """See `SandboxPool.run`."""
        distinct = list(dict.fromkeys(jobs))
        size = max(1, -(-len(distinct) // (PARTS * len(self._crew))))
        parts = [distinct[at : at + size] for at in range(0, len(distinct), size)]
        answers = self._crew.each([Call(number % len(self._crew), "run", (part, twice)) for number, part in enumerate(parts)])
        verdicts = dict(zip(distinct, itertools.chain.from_iterable(answers), strict=True))
        return [verdicts[job] for job in jobs]
