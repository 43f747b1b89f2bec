"""The process of an engine, called in this one: one thread does all that touches the sampler."""

import asyncio
import threading
from contextlib import contextmanager

import pytest

from populora.core.config import Config
from populora.core.errors import BaseModelError
from populora.core.types import Generation, Request
from populora.engine.cluster import engine_actor
from populora.engine.cluster.engine_actor import EngineActor
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
    def open_engine(config):
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
    assert engine.open(Config())[0] == "fingerprint"
    engine.sync_weights([0], None)  # type: ignore[arg-type]
    asyncio.run(engine.sample([Request("a", 0, 1, ("a",))], SamplingParams(4, 1.0, "")))
    asyncio.run(engine.end_stream())
    engine.close()
    assert set(threads) == {"open", "sync_weights", "stream", "close"} and set(threads.values()) == {"sampler"}


def test_closing_breaks_a_stream_off(threads, monkeypatch):
    engine = EngineActor()
    engine.open(Config())

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
    def broken(config):
        raise BaseModelError("no such base")
        yield

    monkeypatch.setattr(engine_actor, "open_engine", broken)
    with pytest.raises(BaseModelError, match="no such base"):
        EngineActor().open(Config())
