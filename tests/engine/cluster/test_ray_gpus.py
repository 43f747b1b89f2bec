"""Which GPU each process of a run sees, on machines whose GPUs are not there: Ray counts the GPUs that it is told of, and looks at none."""

import os
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec

import pytest

from populora.core.config import BaseConfig, ClusterConfig, Config, EngineConfig, SelfplayConfig
from populora.engine.cluster import ray_backend
from populora.engine.cluster.engine_actor import EngineActor
from populora.engine.cluster.learner_actor import LearnerActor
from populora.engine.cluster.placement import join_ray
from populora.engine.cluster.process import init_process

pytestmark = [pytest.mark.ray, pytest.mark.skipif(not find_spec("ray"), reason="Ray is not installed")]
CONFIG = Config(base=BaseConfig(device="cuda"), threads=1, selfplay=SelfplayConfig(overlap="off"))


def seeing(actor: type) -> type:
    """An actor that loads no base when it opens, and returns its machine and the GPUs that it sees there. Defined in a function, so that
    Ray sends it to workers that cannot import it."""

    class Seeing(actor):
        def open(self, config, *arguments):
            import ray

            if len(arguments) > 1:  # a learner
                _, gpus, _ = arguments
                init_process(config, gpus[self._process])
            return ray.get_runtime_context().get_node_id(), os.environ.get("CUDA_VISIBLE_DEVICES", "none").split(",")

    return Seeing


@pytest.fixture
def address(request) -> Iterator[str]:
    """Of a cluster with a first machine without GPUs, and more with two each."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 0})
    for _ in range(request.param):
        cluster.add_node(num_cpus=8, num_gpus=2)
    yield cluster.address
    cluster.shutdown()


@pytest.mark.parametrize("address, engines, gpus", [(1, 2, 1), pytest.param(2, 2, 2, marks=pytest.mark.thorough)], indirect=["address"])
def test_each_learner_sees_one_gpu_that_no_other_has_and_each_engine_those_of_its_learners(address, engines, gpus, monkeypatch):
    config = replace(
        CONFIG, engine=EngineConfig(backend="vllm", tensor_parallel=gpus),
        cluster=ClusterConfig(learners=2 * gpus, engines=engines, address=address),
    )  # fmt: skip
    monkeypatch.setattr(ray_backend, "EngineActor", seeing(EngineActor))
    monkeypatch.setattr(ray_backend, "LearnerActor", seeing(LearnerActor))
    with join_ray(config) as cluster:
        engine_pool = ray_backend.engine_pool(config, cluster, {})
        learners = ray_backend._learner_pool(config, cluster, engine_pool, {}).prepared
    seen = [(machine, name) for machine, (name,) in learners]
    assert len(set(seen)) == len(seen) == 2 * gpus
    assert [(machine, name) for machine, names in engine_pool.prepared for name in names] == seen
