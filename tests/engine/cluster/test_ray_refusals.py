"""An impossible cluster is refused before any model is loaded, and repeated failures end the run."""

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch
from small_run import SMALL, Silent

from populora.core.config import BaseConfig, ClusterConfig, Config, EngineConfig, SandboxConfig, SelfplayConfig
from populora.core.config_check import check
from populora.core.errors import ClusterError, ConfigError
from populora.core.types import Request
from populora.domains.declaration import fingerprint_of
from populora.domains.registry import load_domains
from populora.engine.cluster.actor_pool import MAX_RETRIES, ActorKind, ActorPool, Call
from populora.engine.cluster.cluster_sampler import ClusterSampler
from populora.engine.cluster.placement import ActorPlace, _connect, check_room, join_ray, place_actors
from populora.engine.cluster.ray_backend import _agreed, agreed_isolation
from populora.engine.cluster.verifier_actor import VerifierInfo
from populora.training.loop import train

OFF = replace(SMALL, selfplay=replace(SMALL.selfplay, overlap="off"), cluster=ClusterConfig(learners=1))
needs_ray = pytest.mark.skipif(not find_spec("ray"), reason="Ray is not installed: make test-ray")


@pytest.fixture
def no_model(monkeypatch):
    for name in ("backend.load_base", "cluster.ray_backend.load_tokenizer", "cluster.ray_backend.engine_pool"):
        monkeypatch.setattr(f"populora.engine.{name}", lambda *arguments: pytest.fail("something was loaded"))


def assert_refused(tmp_path, config: Config, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        train(config, tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_without_ray_the_error_names_the_extra(tmp_path, no_model, monkeypatch):
    monkeypatch.setattr("populora.engine.cluster.placement.find_spec", lambda name: None)
    assert_refused(tmp_path, OFF, ConfigError, r"-m pip install 'ray")


@needs_ray
@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", r"cluster.address is '127.0.0.1:1': no Ray is reachable there .*Connection refused.* `ray start --head`"),
        ("127.0.0.1", "expected 'host:port'"),
        ("somewhere:port", "expected 'host:port'"),
        ("auto", "cluster.address is 'auto': no Ray is reachable there"),
    ],
)
def test_an_address_without_ray_is_refused_at_once(tmp_path, no_model, address, message):
    assert_refused(tmp_path, replace(OFF, cluster=replace(OFF.cluster, address=address)), ConfigError, message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cluster": ClusterConfig(engines=2)}, r"cluster.learners is 0, one process, but cluster.engines is set"),
        ({"selfplay": SelfplayConfig(overlap="reproducible")}, r'selfplay.overlap is "reproducible", which needs a single process'),
        ({"base": BaseConfig(device="cuda:1")}, r"base.device is 'cuda:1': expected 'cuda'"),
        ({"base": BaseConfig(device="cuda"), "cluster": ClusterConfig(learners=2, engines=3)}, r"is 3 GPUs, .* is 2: expected the same"),
        ({"cluster": ClusterConfig(learners=2, shards=0)}, r"setting 'cluster.shards': expected more than 0"),
        ({"cluster": ClusterConfig(1, engines=2, adapter_copies=3)}, r"adapter_copies is 3: expected at most cluster.engines, 2, or 0"),
        ({"cluster": ClusterConfig(1, engines=5, adapter_copies=2)}, r"adapter_copies is 2: some of 5 engines would hold no teacher"),
    ],
)
def test_impossible_cluster_settings_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        check(replace(OFF, **change))


def test_learners_share_the_gpus_of_their_bundles_engine():
    config = replace(
        OFF, base=BaseConfig(device="cuda"), threads=2, engine=EngineConfig(backend="vllm", tensor_parallel=2),
        cluster=ClusterConfig(learners=2, shards=2, engines=2, verifiers=3), sandbox=SandboxConfig(workers=5),
    )  # fmt: skip
    placement = place_actors(config)
    assert placement.bundles == ({"CPU": 16.0, "GPU": 2.0}, {"CPU": 11.0, "GPU": 2.0})
    assert placement.learners == (ActorPlace(0, 0), ActorPlace(0, 1), ActorPlace(1, 0), ActorPlace(1, 1))
    assert placement.engines == (ActorPlace(0), ActorPlace(1))
    assert placement.verifiers == (ActorPlace(0), ActorPlace(1), ActorPlace(0))


def test_machines_that_differ_are_reported():
    with pytest.raises(ClusterError, match="expected all verifiers to find the same, but number 2 has weak and number 0 standard"):
        _agreed("verifiers", ["standard", "standard", "weak"])


def test_a_verifier_starts_without_torch():
    script = """
import sys
import populora.engine.cluster.verifier_actor
from populora.domains.registry import load_domains
load_domains(["python", "sql"])
print("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True).stdout == "False\n"


def test_verifiers_with_another_sqlite_are_refused():
    here = fingerprint_of(load_domains(["python", "sql"]).values())
    alike = VerifierInfo("standard", here)
    other = replace(alike, domains=here.replace("sqlite", "sqlite 3.99, not"))
    config = replace(OFF, domains=("python", "sql"))
    assert agreed_isolation(config, [alike, alike]) == "standard"
    with pytest.raises(
        ClusterError, match=r"number 1 has domains python 1, sql 1 \(sqlglot [0-9.]+, sqlite 3.99.* number 0 domains python 1"
    ):
        agreed_isolation(config, [alike, other])
    with pytest.raises(ClusterError, match=r"expected the verifiers to have the domains of this machine, 'python 1, sql 1 \(sqlglot"):
        agreed_isolation(config, [other, other])


def deadly() -> type:
    """An actor that dies on demand; defined in a function, so that Ray sends it to workers that cannot import it."""

    class Deadly:
        def __init__(self, process: int = 0):
            self.opened = False

        def open(self, mode: str) -> int:
            time.sleep(0.5)
            self.opened = True
            return os._exit(1) if mode == "dead" else os.getpid() if mode == "different" else 7

        def work(self, *arguments: object) -> bool:
            return self.opened

        def die(self, *arguments: object) -> None:
            os._exit(1)

        def fail(self) -> None:
            raise RuntimeError("Executor failed.")

        sample, close = die, work

    return Deadly


@pytest.fixture(scope="module")
def cluster():
    pytest.importorskip("ray", reason="Ray is not installed: make test-ray")
    with join_ray(replace(OFF, cluster=replace(OFF.cluster, wait_seconds=20.0))) as joined:
        yield joined


@pytest.fixture
def make_pool(cluster):
    """``make_pool(name, mode)``: a pool with one actor, or ``members``, that dies on demand."""

    def make(name: str, mode: str = "alike", cpus: float = 0.0, wait_seconds: float = 20.0, members: int = 1) -> ActorPool:
        kind = ActorKind(name, deadly(), cpus, concurrency=4, breaks=name == "engine")
        return ActorPool(cluster, kind, [[ActorPlace(0)]] * members, lambda index, call: call("open", mode), wait_seconds)

    return make


@pytest.mark.ray
@pytest.mark.parametrize("device, kind", [("cpu", "CPU"), ("cuda", "GPU")])
def test_too_few_machines_are_refused_before_any_model_loads(tmp_path, cluster, no_model, monkeypatch, device, kind):
    address = cluster.ray.get_runtime_context().gcs_address
    config = replace(OFF, base=BaseConfig(device=device), cluster=ClusterConfig(learners=900, engines=900, address=address))
    monkeypatch.setattr(cluster.ray, "init", lambda **options: None)  # this process has joined already
    monkeypatch.setattr(cluster.ray, "shutdown", lambda: None)
    message = rf"900 engines, 900 learning processes and 1 verifiers need [0-9]+ {kind}s, the cluster has"
    assert_refused(tmp_path, config, ConfigError, message)


def test_a_bundle_that_no_machine_can_hold_is_refused():
    placement = place_actors(replace(OFF, cluster=ClusterConfig(learners=2, engines=2), sandbox=SandboxConfig(workers=8)))
    assert [bundle["CPU"] for bundle in placement.bundles] == [10, 2]
    check_room(placement, [{"CPU": 4.0}, {"CPU": 10.0}])
    with pytest.raises(
        ConfigError, match=r"verifiers beside it needs 10 CPUs on one machine, the largest has 8 CPUs: lower sandbox.workers"
    ):
        check_room(placement, [{"CPU": 8.0}] * 4)
    with pytest.raises(ConfigError, match="needs 10 CPUs and 1 GPUs on one machine, the largest has 64 CPUs and 1 GPUs"):
        check_room(replace(placement, bundles=({"CPU": 10.0, "GPU": 1.0},)), [{"CPU": 64.0}, {"CPU": 1.0, "GPU": 1.0}])
    with pytest.raises(ConfigError, match="1 verifiers need 12 CPUs, the cluster has 11: ask for fewer"):
        check_room(placement, [{"CPU": 10.0}, {"CPU": 1.0}])


@pytest.mark.ray
def test_a_call_that_always_kills_its_actor_ends_the_run(make_pool):
    pool = make_pool("engine")
    with pytest.raises(ClusterError, match=rf"engine 0 was lost {MAX_RETRIES + 1} times in a row"):
        pool.run([Call(0, "work"), Call(0, "die"), Call(0, "work")])  # though the others succeed each time
    assert pool.faults == MAX_RETRIES


@pytest.mark.ray
def test_an_engine_that_fails_though_its_process_lives_is_replaced(make_pool, cluster):
    """As one whose workers of vLLM have died."""
    engines = make_pool("engine")
    with pytest.raises(ClusterError, match=r"engine 0 was lost 4 times .* \(last: RuntimeError: Executor failed\.\)"):
        engines.run([Call(0, "fail")])
    assert engines.faults == MAX_RETRIES and engines.run([Call(0, "work")]) == [True]
    verifiers = make_pool("verifier")
    with pytest.raises(cluster.ray.exceptions.RayTaskError, match="Executor failed"):
        verifiers.run([Call(0, "fail")])


@pytest.mark.ray
def test_members_that_died_together_are_replaced_together(make_pool):
    pool = make_pool("verifier", members=4)
    untouched = pool._members[3]
    pool.wait_all([pool.submit(Call(index, "die")) for index in range(3)])
    assert pool.run([Call(0, "work")]) == [True] and pool.faults == 3
    assert pool.run([Call(index, "work") for index in range(4)]) == [True] * 4 and pool.faults == 3 and pool._members[3] is untouched


@pytest.mark.ray
def test_a_new_actor_gets_no_call_before_it_is_ready(make_pool):
    """Threads call at the same time, as proposals and attempts are verified; one notices the death, and the others must wait, too."""
    pool = make_pool("verifier")
    results: list[bool] = []
    threads = [threading.Thread(target=lambda: results.extend(pool.run([Call(0, "work")] * 40))) for _ in range(4)]
    pool.submit(Call(0, "die"))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 160 and pool.faults == 1


@pytest.mark.ray
def test_a_successor_that_differs_from_the_lost_actor_is_refused(make_pool):
    pool = make_pool("learner", "different")
    with pytest.raises(ClusterError, match=r"learner 0 was lost, and its successor found [0-9]+ instead of [0-9]+"):
        pool.run([Call(0, "die")])


@pytest.mark.parametrize(
    ("reason", "error"), [("The current node timed out during startup. This could …", ClusterError), ("else", OSError)]
)
def test_a_ray_that_starts_too_slowly_is_named(reason, error):
    class Ray:
        def init(self, **_):
            raise OSError(reason)

    with pytest.raises(error, match="did not start within its 30 seconds" if error is ClusterError else reason):
        _connect(Ray(), OFF, place_actors(OFF))


def test_a_ray_that_asks_for_a_token_is_named():
    class Ray:
        exceptions = SimpleNamespace(AuthenticationError=PermissionError)

        def init(self, **_):
            raise PermissionError("no token")

    config = replace(OFF, cluster=replace(OFF.cluster, address="auto"))
    with pytest.raises(ConfigError, match=r"cluster.address is 'auto': its Ray asks for a token. Set RAY_AUTH_MODE=token"):
        _connect(Ray(), config, place_actors(config))


@pytest.mark.ray
@pytest.mark.parametrize("eager", [True, False])
def test_a_stream_whose_engine_cannot_be_replaced_ends_with_the_reason(make_pool, monkeypatch, eager):
    pool = make_pool("engine")
    sampler = ClusterSampler(pool, {}, {0: [0], -1: [0]}, torch.float32, eager)

    def fail(self, index):
        raise ClusterError("no place")

    monkeypatch.setattr(ActorPool, "_start", fail)
    with pytest.raises(ClusterError, match="no place"):
        sampler.generate([Request("x", 0, 1, ("a",))], 5, 1.0, "")
    pool.close()


@pytest.mark.ray
def test_an_actor_that_cannot_start_is_an_error_and_not_an_endless_wait(make_pool, cluster):
    with pytest.raises(ClusterError, match=r"learner 0 was lost .* that is no accident"):
        make_pool("learner", "dead")
    everything = cluster.placement.bundles[0]["CPU"]
    first = make_pool("verifier", cpus=everything)
    with pytest.raises(ClusterError, match=r"verifier 0: expected a place in the cluster within cluster.wait_seconds \(1\)"):
        make_pool("verifier", cpus=everything, wait_seconds=1.0)
    assert len(first) == 1
