"""Measure what a step on a cluster costs for each member, from 4T+4S to 32T+32S, on three Ray nodes of this machine.

    python -m benchmarks.many_members [--sizes 4 8 16 32] [--steps 5]        writes many_members.json; two minutes on two cores

Needs Ray. Each node has an object store of its own; together they have two engines, three learners and
two verifiers. The base is the tiny one. A step has one prompt of each type a teacher, and four attempts at a problem; the weakest members
are replaced after every other step. The first step of a run is not counted. Seconds are medians over the others, with evolution and
the files of a step. Memory is the controller's largest resident set.
"""

import resource
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measuring import bar, machine, options, write_results
from rich.console import Console

from populora.core.config import ClusterConfig, Config
from populora.core.config_file import changed, load_config
from populora.core.presets import settings_file
from populora.runs.display import PlainDisplay
from populora.runs.metrics_log import TIMINGS, read_log
from populora.training.loop import train

NODES = 3


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__, Path(__file__).with_suffix(".json"))
    parser.add_argument("--sizes", type=int, nargs="+", default=[4, 8, 16, 32], help="teachers, and as many students; rising")
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args(arguments)
    about = {"machine": machine("populora", "torch", "ray"), "nodes": NODES, "steps": args.steps}
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": 100 << 20})
    try:
        for _ in range(NODES):
            cluster.add_node(num_cpus=6, object_store_memory=300 << 20)
        with tempfile.TemporaryDirectory() as folder:
            rows = {f"{size}T+{size}S": measure(size, args.steps, str(cluster.address), Path(folder)) for size in args.sizes}
    finally:
        cluster.shutdown()
    bars = {
        f"{larger} / {smaller}, seconds a member": bar(1.0, rows[larger]["seconds a member"] / rows[smaller]["seconds a member"])
        for smaller, larger in pairwise(rows)
    }
    memory = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    write_results(args.out, {**about, "populations": rows, "controller, MiB": memory, "bars": bars})


def settings(size: int, steps: int, address: str) -> Config:
    """Return the tiny preset with ``size`` teachers and as many students, and short steps."""
    config = load_config(settings_file("tiny"))
    short = {"overlap": "eager", "prompts_per_type": 1, "rho_samples": 4, "max_response_tokens": 128, "seeds": 64}
    config = changed(config, {"population": {"teachers": size, "students": size}, "selfplay": short, "evolution": {"every": 2}})
    apart = ClusterConfig(learners=3, engines=2, verifiers=2, address=address)
    return replace(config, steps=steps, threads=1, evaluation=replace(config.evaluation, every=0), cluster=apart)


def measure(size: int, steps: int, address: str, folder: Path) -> dict[str, Any]:
    """Make a run. Returns the median seconds of a step, and those for each member, of all and of each phase."""
    config, run = settings(size, steps, address), folder / str(size)
    train(config, run, PlainDisplay(run, steps, lambda: False, Console(file=sys.stderr)))
    timings = read_log(run, TIMINGS)[1:]
    seconds = {name: median(line[name] for line in timings) for name in timings[0] if name.startswith("seconds/")}
    members = 2 * size
    return {
        "seconds a step": round(seconds.pop("seconds/step"), 2),
        "seconds a member": round(median(line["seconds/step"] for line in timings) / members, 3),
        "phases, seconds a member": {name.removeprefix("seconds/"): round(value / members, 4) for name, value in seconds.items()},
    }


if __name__ == "__main__":
    main()
