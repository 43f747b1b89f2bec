"""Batches from many threads in one sampler's stream: results, errors, ends. The sampler is a stub that logs what it takes."""

import threading
import time

import pytest

from populora.core.errors import ConfigError
from populora.core.types import Generation, Request
from populora.engine.cluster.sampler_thread import SamplerThread, SamplingParams

PARAMS, SECONDS = SamplingParams(4, 1.0, ""), 10.0


class Stub:
    """Answers one request at a time while ``go`` is set; refuses temperature 2 at once and the prompt "bad" when it takes it."""

    def __init__(self):
        self.log: list[str] = []
        self.go = threading.Event()
        self.go.set()

    def stream(self, source, max_tokens, temperature, stop):
        if temperature == 2.0:
            raise ConfigError("too hot")
        self.log.append("begin")
        waiting: list[Request] = []
        while True:
            taken = source.next(block=not waiting)
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


@pytest.fixture
def submit(stub):
    """``submit(*prompts)`` to a thread that samples with the stub."""
    thread = SamplerThread()
    thread.sampler = stub

    def make(*prompts: str, params: SamplingParams = PARAMS):
        return thread.submit([Request(prompt, 0, 1, ("test", prompt)) for prompt in prompts], params)

    make.end_stream = lambda: thread.end_stream().result(SECONDS)
    return make


def texts(result) -> list[str]:
    return [generations[0].text for generations in result.result(SECONDS)]


def test_a_batch_enters_the_stream_at_once_and_joins_others_and_each_gets_its_own_results_in_order(stub, submit):
    stub.go.clear()
    first = submit("a", "b")
    while "take 2" not in stub.log:
        time.sleep(0.01)
    second = submit("c")
    while "take 1" not in stub.log:
        time.sleep(0.01)
    stub.go.set()
    assert (texts(first), texts(second)) == (["a", "b"], ["c"]) and stub.log == ["begin", "take 2", "take 1"]


def test_a_stream_stays_open_until_it_is_ended(stub, submit):
    assert texts(submit("a")) == ["a"] and texts(submit("b")) == ["b"]
    assert stub.log == ["begin", "take 1", "take 1"]
    submit.end_stream()
    assert stub.log[-1] == "end"
    submit.end_stream()  # no stream is open
    assert texts(submit("a")) == ["a"] and stub.log.count("begin") == 2


def test_a_batch_with_other_parameters_waits_for_its_own_stream(stub, submit):
    stub.go.clear()
    results = [submit("a"), submit("b"), submit("c", params=SamplingParams(4, 0.0, "")), submit("d")]
    stub.go.set()
    assert [texts(result) for result in results] == [["a"], ["b"], ["c"], ["d"]] and stub.log.count("begin") == 3


def test_an_error_reaches_all_batches_of_the_stream_and_the_next_stream_works(stub, submit):
    stub.go.clear()
    for result in (submit("a"), submit("bad")):
        with pytest.raises(ConfigError, match="bad prompt"):
            result.result(SECONDS)
    with pytest.raises(ConfigError, match="too hot"):
        submit("a", params=SamplingParams(4, 2.0, "")).result(SECONDS)
    stub.go.set()
    assert texts(submit("a")) == ["a"]
    submit.end_stream()
