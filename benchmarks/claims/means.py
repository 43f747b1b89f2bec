"""Let means of adapters answer the suites, by the protocol's `means`.

    python -m benchmarks.claims.means [--root runs/claims]       writes measured/means/NAME.answers.parquet; a few minutes for eight

`run.py` keeps the adapters of its runs in ROOT/adapters. A mean that lacks one of them waits. The files have the rows of `measure.py`.
"""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.claims.measure import greedy_rows, problems_of
from benchmarks.claims.protocol import PROTOCOL, PlannedMean, planned_means, suites_of
from benchmarks.measuring import options

from populora.adapters.operators import get_operator
from populora.adapters.peft_format import load_adapter
from populora.core.config_file import changed, load_config
from populora.core.presets import settings_file
from populora.core.rng import stream
from populora.training.loop import build_run

AT_ONCE = 8
"""Means that answer in one batch."""


def main() -> None:
    parser = options(__doc__, Path(__file__).parent)
    parser.add_argument("--root", type=Path, default=Path("runs/claims"))
    args = parser.parse_args()
    waiting = [mean for mean in planned_means() if not target(args.out, mean).exists()]
    ready = [mean for mean in waiting if all((args.root / "adapters" / adapter).exists() for adapter in mean.adapters)]
    for suites in dict.fromkeys(suites_of(mean.arm) for mean in ready):
        asked = [mean for mean in ready if suites_of(mean.arm) == suites]
        for start in range(0, len(asked), AT_ONCE):
            write_means(asked[start : start + AT_ONCE], suites, args.root / "adapters", args.out)


def target(out: Path, mean: PlannedMean) -> Path:
    return out / "measured/means" / f"{mean.name}.answers.parquet"


def write_means(means: Sequence[PlannedMean], suites: Sequence[str], adapters: Path, out: Path) -> None:
    """Average the adapters of each mean, let them all answer the suites, and write a file for each."""
    config = changed(load_config(settings_file(PROTOCOL["preset"])), {"population": {"teachers": 1, "students": len(means)}, "threads": 1})
    with build_run(config) as run:
        for mean, member in zip(means, run.population.solvers, strict=True):
            parents = [load_adapter(adapters / adapter) for adapter in mean.adapters]
            run.bank.load(member.slot, get_operator("soup").function(parents, stream(mean.seed, "claims", "mean", mean.arm)))
        run.sync_weights()
        rows = [row for suite in suites for row in greedy_rows(run, suite, problems_of(suite))]
        names = {member.id: mean for mean, member in zip(means, run.population.solvers, strict=True)}
    for member_id, mean in names.items():
        target(out, mean).parent.mkdir(parents=True, exist_ok=True)
        answers = [{**row, "member": "mean"} for row in rows if row["member"] == member_id]
        pq.write_table(pa.Table.from_pylist(answers), target(out, mean), compression="zstd")


if __name__ == "__main__":
    main()
