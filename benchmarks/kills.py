"""Kill any process of a cluster run at random moments, again and again; the run must end with the bytes of an undisturbed one.

    python -m benchmarks.kills [--kills 60] [--seed 0]     writes kills.json; about half an hour on two cores

Needs Ray. The machines are Ray nodes on this one, each with an object store of its own: a head for the
controller, and three for two engines, two learners and two verifiers. Before each kill the run finishes a step, and goes on for up to two
seconds. Victims are drawn among six kinds:

- an engine, a learner or a verifier: the controller replaces it;
- a machine (its raylet, and so all on it): another one is added, and the controller goes on by itself;
- the controller: `populora resume` goes on, as an operator or a supervisor would do it;
- the head (its control store, and so the whole cluster): a new cluster is started, and `populora resume` goes on there.

At the end the files of the run are compared with those of an undisturbed one, and processes and shared memory that are left are counted.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.measuring import POPULORA, ROOT, machine, options, write_results

from populora.core.config import ClusterConfig, Config
from populora.core.config_file import load_config, to_toml
from populora.runs.metrics_log import METRICS

sys.path[:0] = [str(ROOT / "tests/engine/cluster"), str(ROOT / "tests/e2e")]

from actor_processes import actors, kill  # noqa: E402
from small_run import contents  # noqa: E402

KINDS = ("engine", "learner", "verifier", "machine", "controller", "head")
MARK = "POPULORA_KILLS"
SETTINGS = ("config.json", "run.json")  # they have the address of the cluster
SHARED = "/dev/shm"  # noqa: S108 - it is looked at, not written
QUICK = {
    "RAY_health_check_period_ms": "500", "RAY_health_check_timeout_ms": "500", "RAY_health_check_failure_threshold": "3",
    "RAY_health_check_initial_delay_ms": "0", "RAY_gcs_rpc_server_reconnect_timeout_s": "5", "RAY_USAGE_STATS_ENABLED": "0",
}  # fmt: skip
"""Lost machines are noticed in seconds; Ray's defaults suit networks."""
SECONDS = 300.0
"""After a kill the next step must be finished in this time."""


def main() -> None:
    parser = options(__doc__, Path(__file__).with_suffix(".json"))
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    about = {"machine": machine("torch", "ray"), "seed": args.seed}
    os.environ |= {**QUICK, MARK: uuid.uuid4().hex, "OMP_NUM_THREADS": "1"}
    shared = set(os.listdir(SHARED))
    with tempfile.TemporaryDirectory() as folder:
        results = measure(Path(folder), args.kills, args.seed)
    results |= {"processes_left": left_processes(), "shared_memory_left": sorted(set(os.listdir(SHARED)) - shared)}
    write_results(args.out, {**about, **results})


def settings(steps: int) -> Config:
    """The preset `tiny`, with short steps."""
    config = load_config(ROOT / "configs" / "tiny.toml")
    selfplay = replace(config.selfplay, overlap="off", prompts_per_type=2, rho_samples=4, max_response_tokens=96, seeds=32)
    evolution, evaluation = replace(config.evolution, every=4), replace(config.evaluation, every=0)
    apart = ClusterConfig(learners=2, engines=2, verifiers=2, help_cost=1.0)
    return replace(config, steps=steps, threads=1, selfplay=selfplay, evolution=evolution, evaluation=evaluation, cluster=apart)


def measure(folder: Path, kills: int, seed: int) -> dict[str, Any]:
    """Run undisturbed and with kills, and compare."""
    config = folder / "kills.toml"
    steps = 4 * kills + 4  # between two kills the run makes about three
    config.write_text(to_toml(settings(steps)))
    calm, disturbed = Disturbed(folder / "calm", config), Disturbed(folder / "disturbed", config)
    started = time.perf_counter()
    calm.run(0, seed)
    between = time.perf_counter()
    disturbed.run(kills, seed)
    files = [{name: value for name, value in contents(run.folder).items() if name not in SETTINGS} for run in (calm, disturbed)]
    return {
        "kills": dict(Counter(kind for kind, _ in disturbed.kills)),
        "steps": steps,
        "seconds_to_the_next_step": {kind: [round(seconds, 1) for victim, seconds in disturbed.kills if victim == kind] for kind in KINDS},
        "seconds_of_a_run": {"calm": round(between - started), "disturbed": round(time.perf_counter() - between)},
        "resumes": disturbed.resumes,
        "times_back_to_a_checkpoint": disturbed.log.read_text(errors="replace").count("the run goes back to its checkpoint"),
        "files": len(files[0]),
        "files_that_differ": sorted(name for name in files[0].keys() | files[1].keys() if files[0].get(name) != files[1].get(name)),
    }


class Disturbed:
    """A run in ``folder`` on a cluster of this machine, whose processes are killed."""

    def __init__(self, folder: Path, config: Path):
        self.folder, self.config, self.resumes = folder, config, 0
        self.log = folder.with_suffix(".log")
        self.kills: list[tuple[str, float]] = []
        """The kinds of those killed, and the seconds until the run had finished another step."""

    def run(self, kills: int, seed: int) -> None:
        """Start the run, kill, and wait for its end."""
        chance = np.random.default_rng(seed)
        self._start_cluster()
        self._start_controller("train", str(self.config), "--out", str(self.folder))
        try:
            self._wait_for_step(0)
            while len(self.kills) < kills:
                time.sleep(chance.uniform(0.0, 2.0))
                kind, killed = KINDS[int(chance.integers(len(KINDS)))], time.perf_counter()
                if self._kill(kind, chance):
                    self._wait_for_step(self._steps())
                    self.kills.append((kind, time.perf_counter() - killed))
                    print(f"{len(self.kills)}: {kind}, step {self._steps()} after {self.kills[-1][1]:.1f} s", flush=True)
            while self._controller.wait() and self.resumes <= kills:
                self._resume()
        finally:
            self._controller.kill()
            self._cluster.shutdown()

    def _kill(self, kind: str, chance: np.random.Generator) -> bool:
        """Kill one of a kind. Returns False if there is none at this moment."""
        if kind == "controller":
            self._controller.kill()
            self._controller.wait()
        elif kind == "head":
            self._end(self._cluster.head_node, "gcs_server")
        elif kind == "machine":
            node = self._nodes.pop(int(chance.integers(len(self._nodes))))
            self._end(node, "raylet")
            self._cluster.remove_node(node, allow_graceful=False)  # ends what else the machine ran
            self._nodes.append(self._cluster.add_node(num_cpus=6, object_store_memory=200 << 20))
        else:
            victims = [pid for actor, pid in actors() if actor.lower() == kind]
            return bool(victims) and kill(victims[int(chance.integers(len(victims)))])
        return True

    def _end(self, node: Any, kind: str) -> None:
        os.kill(node.all_processes[kind][0].process.pid, signal.SIGKILL)
        if kind == "gcs_server":  # all others of the cluster end for want of it
            self._controller.wait(SECONDS)
            self._cluster.shutdown()
            self._start_cluster()

    def _wait_for_step(self, steps: int) -> None:
        """Wait until the run has finished more than ``steps``. A controller that has ended is started again."""
        deadline = time.monotonic() + SECONDS
        while self._steps() <= steps and time.monotonic() < deadline:
            if self._controller.poll() == 0:
                raise RuntimeError(f"the run has ended after {len(self.kills)} kills: give it more steps")
            if self._controller.returncode is not None:
                self._resume()
            time.sleep(0.1)
        if self._steps() <= steps:
            raise RuntimeError(f"no step after {steps} within {SECONDS:g} s")

    def _steps(self) -> int:
        file = self.folder / METRICS
        return file.read_bytes().count(b"\n") if file.exists() else 0

    def _resume(self) -> None:
        self.resumes += 1
        self._start_controller("resume", str(self.folder))

    def _start_controller(self, *arguments: str) -> None:
        command = [*POPULORA, *arguments, "--cluster.address", self._cluster.address]
        with self.log.open("ab") as log:
            self._controller = subprocess.Popen(command, stdout=log, stderr=log)

    def _start_cluster(self) -> None:
        from ray.cluster_utils import Cluster

        self._cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": 100 << 20})
        self._nodes = [self._cluster.add_node(num_cpus=6, object_store_memory=200 << 20) for _ in range(3)]


def left_processes(seconds: float = 90.0) -> list[str]:
    """Wait for all processes that began here to end; return the names of those that are left. Two of Ray's agents take a minute."""
    mark, deadline = f"{MARK}={os.environ[MARK]}".encode(), time.monotonic() + seconds
    while (left := _marked(mark)) and time.monotonic() < deadline:
        time.sleep(1.0)
    return left


def _marked(mark: bytes) -> list[str]:
    names: list[str] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int(folder.name) != os.getpid() and mark in (folder / "environ").read_bytes().split(b"\0"):
                names.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:80])
        except OSError:
            continue
    return names


if __name__ == "__main__":
    main()
