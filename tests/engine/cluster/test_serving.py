"""Batches from many threads in one sampler's stream: answers, errors, rests. The sampler is a stub that says what it was asked, when."""

from __future__ import annotations

import threading
import time

import pytest

from populora.core.errors import ConfigError
from populora.core.types import Generation, Request
from populora.engine.cluster.serving import How, Serving

HOW, SECONDS = How(4, 1.0, ""), 10.0


class Stub:
    """Answers one request at a time, whenever ``go`` is set; refuses temperature 2 at once and the prompt "bad" when it takes it."""

    def __init__(self):
        self.log: list[str] = []
        self.go = threading.Event()
        self.go.set()

    def stream(self, feed, max_tokens, temperature, stop):
        if temperature == 2.0:
            raise ConfigError("too hot")
        self.log.append("begin")
        waiting: list[Request] = []
        while True:
            taken = feed.take(idle=not waiting)
            if any(request.prompt == "bad" for request in taken):
                raise ConfigError("bad prompt")
            waiting += taken
            if not taken and not waiting:
                self.log.append("end")
                return
            if taken:
                self.log.append(f"take {len(taken)}")
            if self.go.wait(0.01) and waiting:
                request = waiting.pop()
                yield request, [Generation(request.prompt, (1,), (2,), (-1.0,), 0.0, True)] * request.samples


@pytest.fixture
def stub():
    return Stub()


def batch(*prompts: str) -> list[Request]:
    return [Request(prompt, 0, 1, ("test", prompt)) for prompt in prompts]


def texts(answer) -> list[str]:
    return [generations[0].text for generations in answer.result(SECONDS)]


def test_each_batch_gets_its_own_answers_in_its_own_order(stub):
    serving = Serving(stub)
    answers = [serving.submit(batch("a", "b", "c"), HOW), serving.submit(batch("d"), HOW), serving.submit([], HOW)]
    assert [texts(one) for one in answers] == [["a", "b", "c"], ["d"], []]


def test_a_batch_enters_the_stream_at_once_and_joins_what_is_sampled(stub):
    stub.go.clear()
    serving = Serving(stub)
    first = serving.submit(batch("a", "b"), HOW)
    while "take 2" not in stub.log:
        time.sleep(0.01)
    second = serving.submit(batch("c"), HOW)
    while "take 1" not in stub.log:
        time.sleep(0.01)
    stub.go.set()
    assert (texts(first), texts(second)) == (["a", "b"], ["c"]) and stub.log == ["begin", "take 2", "take 1"]


def test_a_stream_stays_open_until_it_may_rest_and_another_begins_after(stub):
    serving = Serving(stub)
    assert texts(serving.submit(batch("a"), HOW)) == ["a"] and texts(serving.submit(batch("b"), HOW)) == ["b"]
    assert stub.log == ["begin", "take 1", "take 1"]
    serving.rest().result(SECONDS)
    assert stub.log[-1] == "end"
    serving.rest().result(SECONDS)  # nothing to end
    assert texts(serving.submit(batch("a"), HOW)) == ["a"] and stub.log.count("begin") == 2


def test_a_batch_of_another_kind_waits_for_a_stream_of_its_own(stub):
    stub.go.clear()
    serving = Serving(stub)
    answers = [serving.submit(batch("a"), HOW), serving.submit(batch("b"), How(4, 0.0, "")), serving.submit(batch("c"), HOW)]
    stub.go.set()
    assert [texts(one) for one in answers] == [["a"], ["b"], ["c"]] and stub.log.count("begin") >= 2


def test_what_the_sampler_raises_comes_to_all_whom_it_concerns_and_the_next_stream_works(stub):
    stub.go.clear()
    serving = Serving(stub)
    fine = serving.submit(batch("a"), HOW)
    bad = serving.submit(batch("bad"), HOW)
    for one in (fine, bad):
        with pytest.raises(ConfigError, match="bad prompt"):
            one.result(SECONDS)
    with pytest.raises(ConfigError, match="too hot"):
        serving.submit(batch("a"), How(4, 2.0, "")).result(SECONDS)
    stub.go.set()
    assert texts(serving.submit(batch("a"), HOW)) == ["a"]
    serving.rest().result(SECONDS)
