"""Steps that the report under test is made of: with hostile text in what a model wrote, and as a step of the single agent."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from populora.core.types import Role

HOSTILE = '</script><script>document.title="x"</script><img src=x onerror=\'document.title="x"\'>\u202e`<b>'


def hostile(record: Any) -> Any:
    """Put hostile text into T0's second problem, its answers, and what was rejected."""
    second = record.proposals[1].problem
    bad = replace(second, program=f'def f(x):\n    return "{HOSTILE}"', message=HOSTILE)

    def change(response: Any) -> Any:
        if response.problem not in (second, None):
            return response
        generation = replace(response.generation, text=response.generation.text + HOSTILE)
        return response._replace(problem=response.problem and bad, generation=generation)

    return _with(record, proposals=tuple(map(change, record.proposals)), attempts=tuple(map(change, record.attempts)))


def as_agent(record: Any) -> Any:
    def by_agent(response: Any, **names: str) -> Any:
        return response._replace(problem=response.problem and replace(response.problem, author="A0"), **names)

    return _with(
        record,
        proposals=tuple(by_agent(response, author="A0") for response in record.proposals),
        attempts=tuple(by_agent(response, student="A0") for response in record.attempts),
        members=(replace(record.members[0], id="A0", role=Role.AGENT),), updates={"A0": record.updates["T0"]},
        matchups=(), children=(), held_out={},
    )  # fmt: skip


def _with(record: Any, **changes: Any) -> Any:
    return SimpleNamespace(**{**vars(record), **changes})
