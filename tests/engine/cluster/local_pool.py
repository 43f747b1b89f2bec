"""A small population, and a pool without Ray: actors in this process that get the same calls and die at the calls that a test names."""

import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from populora.core.config import ClusterConfig, Config, LearnerConfig, LoraConfig, PopulationConfig
from populora.core.errors import MembersLost
from populora.engine.cluster.actor_pool import MAX_RETRIES, ActorLost, Call, PendingCall

SLOTS = 5
SETTINGS = Config(
    lora=LoraConfig(4, 8.0), population=PopulationConfig(2, SLOTS - 2),
    learner=LearnerConfig(micro_batch_tokens=256, base_kl=0.05), cluster=ClusterConfig(learners=2, help_cost=1.0),
)  # fmt: skip


@dataclass(frozen=True)
class Reference:
    """A result, or the error that was raised instead."""

    value: Any = None
    error: Exception | None = None


class LocalPool:
    """``make(index)`` creates a member. The member that gets a call of ``dies`` is dead from then on: before the call is made, or, for
    negative numbers, after it. What a call of ``gone`` stored is gone, though its member lives."""

    def __init__(self, make: Callable[[int], Any], members: int, dies: Sequence[int] = (), gone: Sequence[int] = ()):
        self.make, self.dies, self.gone, self.faults = make, set(dies), set(gone), 0
        self.calls: list[Call] = []
        self.members: list[Any] = [make(index) for index in range(members)]

    def __len__(self) -> int:
        return len(self.members)

    def submit(self, call: Call, returns: int = 1) -> PendingCall:
        self.calls.append(call)
        if len(self.calls) in self.dies:
            self.members[call.index] = None
        references = self._call(call, returns)
        if -len(self.calls) in self.dies:
            self.members[call.index] = None
            references = [Reference(error=ActorLost(call.index, (), "killed"))] * returns
        if len(self.calls) in self.gone:
            lost = Reference(error=ActorLost(call.index, (), "gone", object_lost=True))
            references = [references[0], *[lost] * (returns - 1)]
        return PendingCall(call.index, (), tuple(references))

    def results(self, pending: Sequence[PendingCall]) -> list[Any]:
        for call in pending:
            if call.values[0].error:
                raise call.values[0].error
        return [call.values[0].value for call in pending]

    def retry_or_raise(self, losses: Counter, task: Any, lost: ActorLost) -> None:
        self.faults += 1
        losses[task] += 1
        if lost.object_lost and losses[task] > MAX_RETRIES:
            raise MembersLost(f"{lost}")
        if not lost.object_lost:
            self.members[lost.index] = self.make(lost.index)

    def _call(self, call: Call, returns: int) -> list[Reference]:
        member = self.members[call.index]
        references = [argument for argument in call.arguments if isinstance(argument, Reference)]
        arguments = [argument.value if isinstance(argument, Reference) else argument for argument in call.arguments]
        errors = [reference.error for reference in references if reference.error]
        if member is None or errors:
            return [Reference(error=(errors or [ActorLost(call.index, (), "dead")])[0])] * returns
        try:
            value = getattr(member, call.method)(*pickle.loads(pickle.dumps(arguments)))
        except Exception as error:  # noqa: BLE001 - it is the result
            return [Reference(error=error)] * returns
        return [Reference(pickle.loads(pickle.dumps(part))) for part in (value if returns > 1 else [value])]
