"""Steps that the report under test is made of: with hostile text in what a model wrote, and as one of the single agent."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from populora.core.types import Attempt, Generation, Problem, Proposal, Role

HOSTILE = '</script><script>document.title="x"</script><img src=x onerror=\'document.title="x"\'>\u202e`<b>'


def hostile(record: Any) -> Any:
    """A step in which T0's second problem (with its answers) and its rejected proposal hold hostile text."""
    second = record.proposals[1].problem
    bad = replace(second, program=f'def f(x):\n    return "{HOSTILE}"', message=HOSTILE)
    proposals = tuple(
        _written(replace(one, problem=bad if one.problem is second else one.problem), one.problem in (second, None))
        for one in record.proposals
    )
    attempts = tuple(
        _written(replace(one, problem=bad if one.problem is second else one.problem), one.problem is second) for one in record.attempts
    )
    return SimpleNamespace(**{**vars(record), "proposals": proposals, "attempts": attempts})


def as_agent(record: Any) -> Any:
    """The step as one of the single agent."""

    def own(problem: Problem | None) -> Any:
        return problem and replace(problem, author="A0")

    agent = replace(record.members[0], id="A0", role=Role.AGENT)
    changes = {
        "proposals": tuple(replace(one, author="A0", problem=own(one.problem)) for one in record.proposals),
        "attempts": tuple(replace(one, student="A0", problem=own(one.problem)) for one in record.attempts),
        "members": (agent,), "matchups": (), "children": (), "updates": {"A0": record.updates["T0"]}, "held_out": {},
    }  # fmt: skip
    return SimpleNamespace(**{**vars(record), **changes})


def _written(one: Any, hostile: bool) -> Any:
    generation: Generation = one.generation
    assert isinstance(one, Proposal | Attempt)
    return replace(one, generation=replace(generation, text=generation.text + HOSTILE)) if hostile else one
