"""The process of an engine, called in this one: one thread does all that touches the sampler."""

import asyncio
import os
import threading
from contextlib import contextmanager

import pytest
import torch

from populora.core.config import BaseConfig, Config, EngineConfig
from populora.core.errors import BaseModelError, ClusterError
from populora.core.types import Generation, Request
from populora.engine.cluster import engine_actor
from populora.engine.cluster.engine_actor import EngineActor
from populora.engine.cluster.process import init_process
from populora.engine.cluster.sampler_thread import SamplingParams, StreamClosed


class Sampler:
    """Notes the thread of each call."""

    decoder = "none"

    def __init__(self, threads: dict[str, str]):
        self.threads = threads

    def note(self, name: str) -> None:
        self.threads[name] = threading.current_thread().name

    def sync_weights(self, adapters, slots) -> None:
        self.note("sync_weights")

    def stream(self, source, max_tokens, temperature, stop):
        self.note("stream")
        for request in source.next(block=True):
            yield request, [Generation("", (1,), (2,), (-1.0,), 0.0, True)]


@pytest.fixture
def threads(monkeypatch):
    """The threads by what they did."""
    names: dict[str, str] = {}

    @contextmanager
    def open_engine(config, slots):
        sampler = Sampler(names)
        sampler.note("open")
        yield sampler, "fingerprint"
        sampler.note("close")

    monkeypatch.setattr(engine_actor, "open_engine", open_engine)
    for name in ("init_process", "check_memory"):
        monkeypatch.setattr(engine_actor, name, lambda config: None)
    return names


def test_the_engine_is_opened_told_of_adapters_stepped_and_closed_in_one_thread(threads):
    engine = EngineActor()
    assert engine.open(Config(), [0])[0] == "fingerprint"
    engine.sync_weights([0], None)  # type: ignore[arg-type]
    asyncio.run(engine.sample([Request("a", 0, 1, ("a",))], SamplingParams(4, 1.0, "")))
    asyncio.run(engine.end_stream())
    engine.close()
    assert set(threads) == {"open", "sync_weights", "stream", "close"} and set(threads.values()) == {"sampler"}


def test_an_engine_translates_the_slots_of_the_run_to_its_own(threads, monkeypatch):
    engine, seen = EngineActor(), {}
    engine.open(Config(), [2, 5, 9])

    def sync_weights(adapters, slots):
        seen.update({slot: adapters.adapter(slot) for slot in slots})

    def stream(source, *settings):
        yield from ((request, [request.slot]) for request in source.next(block=True))

    monkeypatch.setattr(engine._thread.sampler, "sync_weights", sync_weights)
    monkeypatch.setattr(engine._thread.sampler, "stream", stream)
    engine.sync_weights([9, 2], "nine", "two")  # type: ignore[arg-type]
    assert seen == {2: "nine", 0: "two"}
    asked = [Request("a", slot, 1, ("a",)) for slot in (5, 9, -1, 2)]
    assert asyncio.run(engine.sample(asked, SamplingParams(4, 1.0, ""))) == [[1], [2], [-1], [0]]
    engine.close()


def test_closing_breaks_a_stream_off(threads, monkeypatch):
    engine = EngineActor()
    engine.open(Config(), [0])

    def endless(source, max_tokens, temperature, stop):
        while True:
            source.next(block=False)
        yield

    monkeypatch.setattr(engine._thread.sampler, "stream", endless)
    answer = engine._thread.submit([Request("a", 0, 1, ("a",))], SamplingParams(4, 1.0, ""))
    engine.close()
    assert threads["close"] == "sampler" and isinstance(answer.exception(10), StreamClosed)


def test_an_engine_that_cannot_be_opened_raises_why(threads, monkeypatch):
    @contextmanager
    def broken(config, slots):
        raise BaseModelError("no such base")
        yield

    monkeypatch.setattr(engine_actor, "open_engine", broken)
    with pytest.raises(BaseModelError, match="no such base"):
        EngineActor().open(Config(), [0])


@pytest.mark.parametrize("seen", ["", "0,1,2"])
def test_an_engine_that_does_not_see_the_gpus_it_was_given_is_refused(threads, monkeypatch, seen):
    config = Config(base=BaseConfig(device="cuda"), engine=EngineConfig(backend="vllm", tensor_parallel=2))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
    with pytest.raises(ClusterError, match=rf"\(2\) GPUs, but it sees {seen or 'none'} .*Unset RAY_EXPERIMENTAL_NOSET"):
        EngineActor().open(config, [0])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,3")
    assert EngineActor().open(config, [0])[0] == "fingerprint"


def test_a_process_gets_its_gpu_before_torch_has_chosen_one(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    init_process(Config(threads=torch.get_num_threads()), "GPU-3")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-3"
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(ClusterError, match="before it gets GPU GPU-4"):
        init_process(Config(), "GPU-4")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-3"
