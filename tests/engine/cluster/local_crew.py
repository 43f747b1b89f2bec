"""A small population, and a crew without Ray: hosts in this process, asked as actors are, which die at the calls that a test names."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from populora.core.config import ClusterConfig, Config, LearnerConfig, LoraConfig, PopulationConfig
from populora.engine.cluster.calls import Asked, Call, Lost

SLOTS, VOCABULARY = 5, 200
SETTINGS = Config(
    lora=LoraConfig(4, 8.0), population=PopulationConfig(2, SLOTS - 2),
    learner=LearnerConfig(micro_batch_tokens=256), cluster=ClusterConfig(learners=2, help_cost=1.0),
)  # fmt: skip


def stirred(bank) -> None:
    bank.initialise(0)
    bank.master += 0.02 * torch.randn(bank.master.shape, generator=torch.Generator().manual_seed(3))


@dataclass(frozen=True)
class Reference:
    """To an answer, or to what was raised instead."""

    value: Any = None
    error: Exception | None = None


class LocalCrew:
    """``make(index)`` is a new host, ready to work. The member that gets a call of ``dies`` is dead from then on: before the call is done,
    or, for negative numbers, after it."""

    def __init__(self, make: Callable[[int], Any], members: int, dies: Sequence[int] = ()):
        self.make, self.dies, self.calls, self.faults = make, set(dies), 0, 0
        self.asked: list[Call] = []
        self.hosts: list[Any] = [make(index) for index in range(members)]

    def __len__(self) -> int:
        return len(self.hosts)

    def share(self, value: Any) -> Reference:
        return Reference(value)

    def ask(self, call: Call, returns: int = 1, beside: str = "") -> Asked:
        self.calls += 1
        self.asked.append(call)
        if self.calls in self.dies:
            self.hosts[call.index] = None
        references = self._done(call, returns)
        if -self.calls in self.dies:
            self.hosts[call.index] = None
            references = [Reference(error=Lost(call.index, (), "killed"))] * returns
        return Asked(call.index, (), tuple(references))

    def answers(self, asked: Sequence[Asked]) -> list[Any]:
        for one in asked:
            if one.values[0].error:
                raise one.values[0].error
        return [one.values[0].value for one in asked]

    def kill(self, lost: Lost) -> None:
        self.hosts[lost.index] = None

    def bear(self, losses: Counter, what: Any, lost: Lost) -> None:
        self.faults += 1
        self.hosts[lost.index] = self.make(lost.index)

    def _done(self, call: Call, returns: int) -> list[Reference]:
        host = self.hosts[call.index]
        arguments = [one.value if isinstance(one, Reference) else one for one in call.arguments]
        errors = [one.error for one in call.arguments if isinstance(one, Reference) and one.error]
        if host is None or errors:
            return [Reference(error=(errors or [Lost(call.index, (), "dead")])[0])] * returns
        try:
            value = getattr(host, call.method)(*pickle.loads(pickle.dumps(arguments)))
        except Exception as error:  # noqa: BLE001 - it is the answer
            return [Reference(error=error)] * returns
        return [Reference(pickle.loads(pickle.dumps(one))) for one in (value if returns > 1 else [value])]
