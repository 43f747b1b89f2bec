"""Requests and adapters go to the engines that hold the adapter; engines that hold them all take requests in turn."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from populora.core.config import ClusterConfig
from populora.core.errors import ConfigError
from populora.core.types import Request
from populora.engine.cluster.actor_pool import Call, PendingCall
from populora.engine.cluster.adapter_holders import holders_of
from populora.engine.cluster.cluster_sampler import ClusterSampler

ENGINES, SLOTS = 3, 5


@dataclass
class Pool:
    """Engines that answer each request with their number; ``calls`` are those of all."""

    calls: list[Call] = field(default_factory=list)

    def __len__(self) -> int:
        return ENGINES

    def put(self, value: Any) -> Any:
        return value

    def wait_all(self, pending: object) -> None:
        assert not pending

    def run(self, calls: list[Call]) -> list[Any]:
        self.calls += calls
        return [[[call.index]] * len(call.arguments[0]) if call.method == "sample" else None for call in calls]

    def submit(self, call: Call) -> PendingCall:
        self.calls.append(call)
        return PendingCall(call.index, (), ())

    def wait_some(self, pending: dict[PendingCall, Request], seconds: float) -> list[PendingCall]:
        return [next(iter(pending))]

    def results(self, pending: list[PendingCall]) -> list[Any]:
        return [[[call.index]] for call in pending]


class Adapters:
    def adapter(self, slot: int) -> torch.Tensor:
        return torch.tensor(slot)


def sampler(copies: int, eager: bool = False) -> tuple[ClusterSampler, Pool]:
    holders = holders_of(SLOTS, ClusterConfig(1, engines=ENGINES, adapter_copies=copies))
    return ClusterSampler(pool := Pool(), {}, holders, torch.float32, eager), pool  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("copies", "engines", "loaded"),
    [
        (0, [0, 1, 2, 0, 1, 2, 0], {0: [1, 3], 1: [1, 3], 2: [1, 3]}),
        (1, [0, 0, 1, 2, 0, 1, 2], {0: [3], 1: [1]}),
        (2, [0, 1, 2, 2, 0, 1, 0], {0: [3], 1: [1, 3], 2: [1]}),
    ],
)
def test_requests_and_adapters_go_to_the_engines_that_hold_the_adapter(copies, engines, loaded):
    made, pool = sampler(copies)
    asked = [Request("x", slot, 2, (number,)) for number, slot in enumerate((0, 0, 1, 2, 3, 4, -1))]
    assert [answer[0] for answer in made.generate(asked, 5, 1.0, "")] == engines
    pool.calls.clear()
    made.sync_weights(Adapters(), [3, 1])
    assert {call.index: call.arguments[0] for call in pool.calls} == loaded
    assert all([int(adapter) for adapter in call.arguments[1:]] == call.arguments[0] for call in pool.calls)


def test_an_eager_stream_forgets_what_is_done_when_it_chooses_an_engine():
    made, pool = sampler(2, eager=True)
    asked = [Request("x", 0, 1, (number,)) for number in range(3)]

    class OneMoreAtATime:
        """Two requests, and a third when the first is done."""

        def next(self, block: bool) -> list[Request]:
            first = not pool.calls
            return asked[:2] if first else asked[2:] if len(pool.calls) == 2 else []

    assert {request.key[0]: answer[0] for request, answer in made.stream(OneMoreAtATime(), 5, 1.0, "")} == {0: 0, 1: 1, 2: 0}


def test_a_slot_that_is_not_there_is_refused_before_any_call():
    made, pool = sampler(1)
    with pytest.raises(ConfigError, match="slot 5 does not exist, there are 5"):
        made.generate([Request("x", 5, 1, ("a",))], 5, 1.0, "")
    assert [call.method for call in pool.calls] == ["end_stream"] * ENGINES
