"""What a cluster cannot give is said before any model is loaded, and what goes wrong again and again is not repeated for ever."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch
from small_run import SMALL, Silent

from populora.core.config import BaseConfig, ClusterConfig, Config, EngineConfig, SandboxConfig, SelfplayConfig
from populora.core.config_check import check
from populora.core.errors import ClusterError, ConfigError
from populora.core.types import Request
from populora.engine.cluster import placement as sessions
from populora.engine.cluster.actor_pool import PATIENCE, Crew, Kind
from populora.engine.cluster.backend import _same
from populora.engine.cluster.calls import Call
from populora.engine.cluster.placement import Place, places, session
from populora.engine.cluster.sampling import ClusterSampler
from populora.training.loop import train

OFF = replace(SMALL, selfplay=replace(SMALL.selfplay, overlap="off"), cluster=ClusterConfig(learners=1))
needs_ray = pytest.mark.skipif(not find_spec("ray"), reason="Ray is not installed: make test-ray")


@pytest.fixture
def no_model(monkeypatch):
    for name in (
        "populora.engine.backend.load_base",
        "populora.engine.cluster.backend.load_tokenizer",
        "populora.engine.cluster.backend.engine_crew",
    ):
        monkeypatch.setattr(name, lambda *arguments: pytest.fail("something was loaded"))


def refused(tmp_path, config: Config, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        train(config, tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_without_ray_the_error_names_the_extra(tmp_path, no_model, monkeypatch):
    monkeypatch.setattr(sessions, "find_spec", lambda name: None)
    refused(tmp_path, OFF, ConfigError, r"-m pip install 'ray")


@needs_ray
@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:1", r"cluster.address is '127.0.0.1:1': no Ray is reachable there .*Connection refused.* `ray start --head`"),
        ("127.0.0.1", "expected 'host:port'"),
        ("somewhere:port", "expected 'host:port'"),
        ("auto", "cluster.address is 'auto': no Ray is reachable there"),
    ],
)
def test_an_address_without_ray_is_refused_at_once(tmp_path, no_model, address, said):
    refused(tmp_path, replace(OFF, cluster=replace(OFF.cluster, address=address)), ConfigError, said)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cluster": ClusterConfig(engines=2)}, r"cluster.learners is 0, one process, but cluster has other settings"),
        ({"selfplay": SelfplayConfig(overlap="reproducible")}, r'selfplay.overlap is "reproducible", which only one process can be'),
        ({"base": BaseConfig(device="cuda:1")}, r"base.device is 'cuda:1': expected 'cuda'"),
        ({"base": BaseConfig(device="cuda"), "cluster": ClusterConfig(learners=2, engines=3)}, r"is 3 GPUs, .* is 2: expected the same"),
        ({"cluster": ClusterConfig(learners=2, shards=0)}, r"setting 'cluster.shards': expected more than 0"),
    ],
)
def test_settings_of_a_cluster_that_cannot_be_are_refused(change, said):
    with pytest.raises(ConfigError, match=said):
        check(replace(OFF, **change))


def test_learners_share_the_gpus_of_their_bundles_engine():
    config = replace(
        OFF, base=BaseConfig(device="cuda"), threads=2, engine=EngineConfig(backend="vllm", tensor_parallel=2),
        cluster=ClusterConfig(learners=2, shards=2, engines=2, verifiers=3), sandbox=SandboxConfig(workers=5),
    )  # fmt: skip
    found = places(config)
    assert found.bundles == ({"CPU": 16.0, "GPU": 2.0}, {"CPU": 11.0, "GPU": 2.0})
    assert found.learners == (Place(0, 0), Place(0, 1), Place(1, 0), Place(1, 1))
    assert found.engines == (Place(0), Place(1)) and found.verifiers == (Place(0), Place(1), Place(0))


def test_machines_that_differ_are_named():
    with pytest.raises(ClusterError, match="expected all verifiers to find the same, but number 2 has weak and number 0 standard"):
        _same("verifiers", ["standard", "standard", "weak"])


def deadly() -> type:
    """A host that dies when it is asked to; made here, so that Ray sends it to workers that cannot import it."""

    class Deadly:
        def __init__(self, process: int = 0):
            self.opened = False

        def open(self, how: str) -> int:
            time.sleep(0.5)
            self.opened = True
            return os._exit(1) if how == "dead" else os.getpid() if how == "different" else 7

        def work(self, *arguments: object) -> bool:
            return self.opened

        def die(self, *arguments: object) -> None:
            os._exit(1)

        sample, close = die, work

    return Deadly


@pytest.fixture(scope="module")
def joined():
    with session(replace(OFF, cluster=replace(OFF.cluster, wait_seconds=20.0))) as made:
        yield made


@pytest.mark.ray
@needs_ray
@pytest.mark.parametrize("device, kind", [("cpu", "CPU"), ("cuda", "GPU")])
def test_fewer_machines_than_asked_are_refused_before_any_model_loads(tmp_path, joined, no_model, monkeypatch, device, kind):
    address = joined.ray.get_runtime_context().gcs_address
    config = replace(OFF, base=BaseConfig(device=device), cluster=ClusterConfig(learners=900, engines=900, address=address))
    monkeypatch.setattr(joined.ray, "init", lambda **options: None)  # this process is in that cluster already
    monkeypatch.setattr(joined.ray, "shutdown", lambda: None)
    refused(tmp_path, config, ConfigError, rf"900 engines, 900 learning processes and 1 verifiers need [0-9]+ {kind}s, the cluster has")


@pytest.mark.ray
@needs_ray
def test_one_that_dies_whenever_it_is_asked_is_given_up(joined):
    crew = Crew(joined, Kind("engine", deadly(), 0.0, calls=4), [[Place(0)]], lambda index, ask: ask("open", "alike"), 20.0)
    with pytest.raises(ClusterError, match=rf"engine 0 was lost {PATIENCE + 1} times in a row"):
        crew.each([Call(0, "work"), Call(0, "die"), Call(0, "work")])  # though the others are answered each time
    assert crew.faults == PATIENCE


@pytest.mark.ray
@needs_ray
def test_nobody_asks_a_new_one_before_it_is_ready(joined):
    """Two threads ask at once, as proposals and attempts are verified; one notices the death and the other one must wait, too."""
    crew = Crew(joined, Kind("verifier", deadly(), 0.0, calls=4), [[Place(0)]], lambda index, ask: ask("open", "alike"), 20.0)
    found: list[bool] = []
    threads = [threading.Thread(target=lambda: found.extend(crew.each([Call(0, "work")] * 40))) for _ in range(4)]
    crew.ask(Call(0, "die"))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 160 and crew.faults == 1


@pytest.mark.ray
@needs_ray
def test_one_that_finds_something_else_than_the_one_before_is_not_taken(joined):
    crew = Crew(joined, Kind("learner", deadly(), 0.0), [[Place(0)]], lambda index, ask: ask("open", "different"), 20.0)
    with pytest.raises(ClusterError, match=r"learner 0 was lost, and its successor found [0-9]+ instead of [0-9]+"):
        crew.each([Call(0, "die")])


@pytest.mark.ray
@needs_ray
@pytest.mark.parametrize("eager", [True, False])
def test_a_stream_whose_engine_cannot_be_replaced_ends_with_the_reason(joined, monkeypatch, eager):
    crew = Crew(joined, Kind("engine", deadly(), 0.0, calls=4), [[Place(0)]], lambda index, ask: ask("open", "alike"), 20.0)
    sampler = ClusterSampler(crew, {}, None, torch.float32, eager)

    def nowhere(self, index):
        raise ClusterError("no place")

    monkeypatch.setattr(Crew, "_ready", nowhere)
    with pytest.raises(ClusterError, match="no place"):
        sampler.generate([Request("x", 0, 1, ("a",))], 5, 1.0, "")
    crew.close()


@pytest.mark.ray
@needs_ray
def test_one_that_dies_at_its_start_is_given_up(joined):
    with pytest.raises(ClusterError, match=r"learner 0 was lost .* that is no accident"):
        Crew(joined, Kind("learner", deadly(), 0.0), [[Place(0)]], lambda index, ask: ask("open", "dead"), 20.0)


@pytest.mark.ray
@needs_ray
def test_a_place_that_does_not_come_is_an_error_and_not_a_wait_for_ever(joined):
    everything = Kind("verifier", deadly(), joined.places.bundles[0]["CPU"])
    first = Crew(joined, everything, [[Place(0)]], lambda index, ask: ask("open", "alike"), 20.0)
    with pytest.raises(ClusterError, match=r"verifier 0: expected a place in the cluster within cluster.wait_seconds \(1\)"):
        Crew(joined, everything, [[Place(0)]], lambda index, ask: ask("open", "alike"), 1.0)
    assert len(first) == 1
