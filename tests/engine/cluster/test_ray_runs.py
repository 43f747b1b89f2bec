"""Runs on Ray actors give the results of one process, also when processes and machines are lost."""

import faulthandler
import itertools
import logging
import os
import re
import sys
import threading
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from actor_processes import KINDS, actors, kill
from local_pool import SETTINGS, SLOTS
from orphans import outliving, started
from small_run import SMALL, Silent, contents

from populora.adapters.adapter import Adapter
from populora.core.config import BaseConfig, ClusterConfig
from populora.core.files import digest as sha256
from populora.engine.cluster.actor_pool import ActorPool
from populora.engine.cluster.cluster_learner import ClusterLearner
from populora.engine.cluster.ray_backend import cluster_backend
from populora.training.loop import resume, train

pytestmark = [pytest.mark.ray, pytest.mark.skipif(not find_spec("ray"), reason="Ray is not installed")]

OFF = replace(SMALL, selfplay=replace(SMALL.selfplay, overlap="off"))
TWO = replace(OFF, cluster=ClusterConfig(learners=2, engines=2, adapter_copies=1, verifiers=2, help_cost=1.0))
KILLS = 9
SETTINGS_OF_RUN = ("config.json", "run.json")  # they contain the number of processes


@pytest.fixture(autouse=True)
def watchdog():
    """Turn a hang into a failure that prints all stacks."""
    faulthandler.dump_traceback_later(1500, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "undisturbed"
    train(TWO, folder, Silent())
    return contents(folder)


def without(files: dict[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in files.items() if name not in names}


@pytest.mark.parametrize("joins", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_a_run_that_lost_its_cluster_goes_on_in_one_process_and_the_other_way_round(tmp_path, monkeypatch, joins):
    """A cluster without an address starts a Ray of its own, whatever ``RAY_ADDRESS`` says."""
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    train(OFF, tmp_path / "one", Silent())
    settings, asked = (ClusterConfig(), ClusterConfig(learners=1)), itertools.count()
    first, then = settings if joins else reversed(settings)
    train(replace(OFF, cluster=first), tmp_path / "run", Silent(), stop=lambda: next(asked) == 2)
    assert resume(tmp_path / "run", Silent(), cluster=then).step == OFF.steps
    assert without(contents(tmp_path / "run"), *SETTINGS_OF_RUN) == without(contents(tmp_path / "one"), *SETTINGS_OF_RUN)


@pytest.mark.thorough
def test_a_run_of_python_and_sql_on_actors_has_the_bytes_of_one_process(tmp_path):
    both = replace(OFF, steps=2, domains=("python", "sql"), base=BaseConfig(path="tiny_sql"))
    for name, cluster in (("one", ClusterConfig()), ("actors", ClusterConfig(learners=1))):
        train(replace(both, cluster=cluster), tmp_path / name, Silent())
    assert without(contents(tmp_path / "actors"), *SETTINGS_OF_RUN) == without(contents(tmp_path / "one"), *SETTINGS_OF_RUN)


def flat(adapter: Adapter) -> torch.Tensor:
    return torch.cat([factor.flatten() for pair in adapter.modules.values() for factor in pair])


def test_two_processes_that_share_a_base_make_the_adapters_of_one_though_one_of_them_is_killed(single, uneven_rows, monkeypatch, tmp_path):
    settings = replace(SETTINGS, selfplay=replace(SETTINGS.selfplay, overlap="off", max_prompt_tokens=256, max_response_tokens=64))
    bank, slots = single.adapted.bank, {f"M{slot}": slot for slot in range(SLOTS)}
    bank.write_adapters(tmp_path / "adapters", slots, "tiny", settings.lora.targets)
    bank.write_optimiser(tmp_path / "optimiser", slots)
    with cluster_backend(replace(settings, cluster=ClusterConfig(learners=1, shards=2))) as backend:
        digests = {path: sha256(path.read_bytes()) for path in tmp_path.rglob("*.*")}
        backend.bank.read(tmp_path / "adapters", tmp_path / "optimiser", slots, digests)
        backend.learner.agreement = float("inf")
        submit, deaths = ActorPool.submit, itertools.count()

        def submit_and_kill(self, call, *arguments, **named):
            if call.method == "learn" and next(deaths) in (1, 3):  # in the second update, and in the third
                victim = next(pid for kind, pid in actors() if kind == "Learner")
                threading.Timer(0.02, kill, (victim,)).start()  # while they gather layers from each other; the other one goes with it
            return submit(self, call, *arguments, **named)

        monkeypatch.setattr(ActorPool, "submit", submit_and_kill)
        for _ in range(3):
            backend.learner.update(uneven_rows)
            single.update(uneven_rows)
        assert backend.learner._pool.faults == 2
        for slot in range(SLOTS):
            ours, theirs = flat(backend.bank.adapter(slot)), flat(bank.adapter(slot))
            assert float((ours - theirs).norm() / theirs.norm()) < 1e-6


def test_kills_at_random_points_change_no_byte(tmp_path, undisturbed, monkeypatch, caplog):
    """Engines, learners and verifiers are killed up to a quarter second after random calls."""
    chance, calls, strikes, killed, submit = np.random.default_rng(7), itertools.count(), [60], [], ActorPool.submit

    def strike(draw: float, kind: str) -> None:
        victims = [pid for name, pid in actors() if name == kind]
        if victims and kill(victims[int(draw * len(victims))]):
            killed.append(kind)

    def counting(self, *arguments, **named):
        if (call := next(calls)) >= strikes[-1] and len(killed) < KILLS:
            threading.Timer(chance.uniform(0.0, 0.25), strike, (chance.random(), KINDS[len(strikes) % len(KINDS)])).start()
            strikes.append(call + int(chance.integers(1, 33)))
        return submit(self, *arguments, **named)

    monkeypatch.setattr(ActorPool, "submit", counting)
    with caplog.at_level(logging.WARNING, logger="populora"):
        train(TWO, tmp_path / "run", Silent())
    recoveries = [float(seconds) for seconds in re.findall(r"works again after ([0-9.]+) s", caplog.text)]
    print(f"{next(calls)} calls, {len(killed)} kills, {len(recoveries)} recoveries of {max(recoveries):.1f} s at most")
    assert len(killed) >= KILLS and set(killed) == set(KINDS)
    assert len(recoveries) >= len(killed) - 2  # an actor that dies twice before its loss is noticed is replaced once
    assert contents(tmp_path / "run") == undisturbed


@pytest.mark.thorough
def test_an_eager_run_draws_the_same_tokens_though_processes_of_all_kinds_are_killed(tmp_path, monkeypatch, caplog):
    """Which requests are decoded together is up to chance; the tokens that a request draws are not, as long as no last bit decides."""
    eager, submit = replace(TWO, steps=1, selfplay=replace(SMALL.selfplay, overlap="eager")), ActorPool.submit
    methods, at = {"sample": "Engine", "run": "Verifier", "learn": "Learner"}, {"sample": 12, "run": 9, "learn": 1}

    def submit_and_kill(self, call, *arguments, **named):
        if call.method in at:
            at[call.method] -= 1
            if at[call.method] == 0:
                kill(next(pid for kind, pid in actors() if kind == methods[call.method]))
        return submit(self, call, *arguments, **named)

    train(replace(OFF, steps=1), tmp_path / "off", Silent())
    monkeypatch.setattr(ActorPool, "submit", submit_and_kill)
    with caplog.at_level(logging.WARNING, logger="populora"):
        train(eager, tmp_path / "eager", Silent())
    assert all(re.search(rf"{kind.lower()} \d was lost", caplog.text) for kind in KINDS)
    for table in ("proposals", "attempts"):
        texts = [pq.read_table(tmp_path / name / f"steps/step_00001/{table}.parquet")["text"].to_pylist() for name in ("off", "eager")]
        assert texts[0] == texts[1]


KILLED = """
import sys
from dataclasses import replace
from pathlib import Path
from small_run import SMALL, Silent
from populora.core.config import ClusterConfig
from populora.training.loop import train
cluster = ClusterConfig(learners=2, engines=2, verifiers=2)
train(replace(SMALL, steps=50, selfplay=replace(SMALL.selfplay, overlap="off"), cluster=cluster), Path("run"), Silent())
"""


@pytest.mark.thorough
def test_a_killed_run_leaves_no_actor_and_no_sandbox():
    Path("run.py").write_text(KILLED)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with started(sys.executable, "run.py", ready=Path("run/metrics.jsonl").exists, environment=environment) as process:
        count, left = outliving(process.pid, frozen=False)
    # Two of Ray's own agents end only after a minute (measured: 61 s; everything else ends within 2 s).
    assert count >= 8 and [name for name in left if not name.startswith(("ray::DashboardAgent", "ray::RuntimeEnvAgent"))] == []


@pytest.mark.thorough
def test_a_machine_that_is_lost_and_replaced_changes_no_byte(tmp_path, undisturbed, monkeypatch, caplog):
    """One of three machines of a Ray cluster, with a learner, is removed in the second step; its actors are replaced on the others."""
    from ray.cluster_utils import Cluster
    from ray.util import placement_group_table

    # A machine that is gone refuses to answer at once. The long timeout is for one that lives and gets no processor for a while.
    for name, value in {"period_ms": 1000, "timeout_ms": 20000, "failure_threshold": 3, "initial_delay_ms": 0}.items():
        monkeypatch.setenv(f"RAY_health_check_{name}", str(value))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 4})
    nodes = [cluster.add_node(num_cpus=6), cluster.add_node(num_cpus=6)]
    joined = replace(TWO, cluster=replace(TWO.cluster, address=cluster.address))
    remarks = list[str]()
    update, updates = ClusterLearner.update, itertools.count(1)

    def updating(self, rows, scales):
        if next(updates) == 2:  # until the second step's update, what the first one made is on its learner's machine alone
            (group,) = placement_group_table().values()
            used = [node for node in nodes if node.node_id in group["bundles_to_node_id"].values()]
            cluster.remove_node(used[0], allow_graceful=False)
        return update(self, rows, scales)

    monkeypatch.setattr(ClusterLearner, "update", updating)
    try:
        with caplog.at_level(logging.WARNING, logger="populora"):
            display = Silent()
            display.remark = remarks.append
            train(joined, tmp_path / "run", display)
    finally:
        cluster.shutdown()
    assert "was lost" in caplog.text and "works again" in caplog.text
    assert len(remarks) == 1 and remarks[0].endswith("the run goes back to its checkpoint of step 1")
    assert without(contents(tmp_path / "run"), *SETTINGS_OF_RUN) == without(undisturbed, *SETTINGS_OF_RUN)
