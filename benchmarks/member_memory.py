"""Measure the memory that an added member takes, beside what `populora plan` says.

    python -m benchmarks.member_memory        writes member_memory.json; a minute

Each population is in a process of its own: a base with six layers of Qwen2.5-0.5B's widths, adapters of rank 32, and one update of as many
rows. The growth of the process's peak memory from the smaller to the larger population is divided by the members added.
"""

import resource
import subprocess
import sys
from pathlib import Path

import torch
from benchmarks.measuring import bar, machine, options, write_results
from benchmarks.speed.models import RANK, TARGETS, adapt
from benchmarks.speed.random_base import qwen2

from populora.core.config import Config, LearnerConfig, LoraConfig, PopulationConfig
from populora.engine.learning.batching import TrainRow
from populora.engine.learning.learner import InProcessLearner
from populora.engine.model.base_shape import shape_of_model
from populora.engine.planning.assumptions import Assumptions
from populora.engine.planning.memory import plan_memory

WIDTHS = (896, 6, 4864, 14, 2)
MEMBERS = (2, 18)
ROWS, WITHIN = 36, 0.2


def main() -> None:
    parser = options(__doc__, Path(__file__).with_suffix(".json"))
    parser.add_argument("--members", type=int, help="measure one population, and print bytes")
    args = parser.parse_args()
    if args.members:
        print(peak_bytes(args.members))
        return
    about = {"machine": machine("torch")}
    peaks = {members: measure(members) for members in MEMBERS}
    measured = (peaks[MEMBERS[1]] - peaks[MEMBERS[0]]) / (MEMBERS[1] - MEMBERS[0])
    result = compare(measured, planned_bytes())
    write_results(args.out, {**about, "peak MB": {n: round(peak / 1e6, 1) for n, peak in peaks.items()}, **result})


def measure(members: int) -> int:
    """Return the peak memory of a process with a population of so many members."""
    command = [sys.executable, "-m", "benchmarks.member_memory", "--members", str(members)]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def peak_bytes(members: int) -> int:
    """Update a population in this process. Returns the most bytes that were resident."""
    torch.set_num_threads(1)
    learner = InProcessLearner(adapt(qwen2(WIDTHS), members), LearnerConfig(micro_batch_tokens=256), agreement=torch.inf)
    tokens = list(range(2, 34))
    learner.update([TrainRow(row % members, tokens, tokens, [-6.0] * len(tokens), 1.0 - 2.0 * (row // members % 2)) for row in range(ROWS)])
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def planned_bytes() -> float:
    """Return what the plan adds for a member."""
    with torch.device("meta"):
        shape = shape_of_model("", qwen2(WIDTHS, device="meta"))
    totals = [
        plan_memory(
            Config(population=PopulationConfig(students, 1), lora=LoraConfig(RANK, 2.0 * RANK, TARGETS)), shape, Assumptions()
        ).total
        for students in (1, 2)
    ]
    return totals[1] - totals[0]


def compare(measured: float, planned: float) -> dict[str, object]:
    """Return both in megabytes, and the bar on the size of their difference."""
    rounded = {"measured": round(measured / 1e6, 2), "planned": round(planned / 1e6, 2)}
    return {"MB of an added member": rounded, "bar": bar(WITHIN, round(abs(measured / planned - 1), 3))}


if __name__ == "__main__":
    main()
