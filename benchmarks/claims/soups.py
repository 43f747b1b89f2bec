"""Average adapters by the protocol's `soups`, and let the averages answer the suites.

    python -m benchmarks.claims.soups [--root runs/claims]       writes measured/soups/NAME.answers.parquet

`run.py` keeps the adapters of its runs in ROOT/adapters. A soup that lacks one of them waits. The files have the rows of `measure.py`, with
"soup" and "uncut" as members: at the rank of the parents, and at the rank of all together. Their metadata name the parents' fingerprints.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.claims.measure import commit, greedy_rows, problems_of
from benchmarks.claims.protocol import PROTOCOL, PlannedSoup, planned_soups, suites_of
from benchmarks.measuring import options

from populora.adapters.adapter import Adapter
from populora.adapters.operators.breeding import breed
from populora.adapters.operators.crossovers import mean_delta
from populora.adapters.peft_format import load_adapter
from populora.core.config_file import changed, load_config
from populora.core.installed import processor
from populora.core.presets import settings_file
from populora.core.types import Lineage
from populora.training.loop import build_run


def main() -> None:
    parser = options(__doc__, Path(__file__).parent)
    parser.add_argument("--root", type=Path, default=Path("runs/claims"))
    args = parser.parse_args()
    for soup in planned_soups():
        lacking = [adapter for adapter in soup.adapters if not (args.root / "adapters" / adapter).exists()]
        if not target(args.out, soup).exists():
            print(f"{soup.name}: {f'waits for {lacking[0]}' if lacking else 'answers'}", flush=True)
            if not lacking:
                measure(soup, suites_of(soup.arm), args.root / "adapters", args.out)


def target(out: Path, soup: PlannedSoup) -> Path:
    return out / "measured/soups" / f"{soup.name}.answers.parquet"


def measure(soup: PlannedSoup, suites: Sequence[str], adapters: Path, out: Path) -> None:
    """Average the adapters, let the soup and the uncut mean answer the suites, and write their file."""
    parents = [load_adapter(adapters / adapter) for adapter in soup.adapters]
    child, lineage = breed(parents, Lineage(soup.name, operator="soup"), soup.adapters, allow_copy=True)
    uncut = uncut_mean(parents)
    changes = {"population": {"teachers": 1, "students": 2}, "threads": 1, "lora": {"rank": uncut.rank, "alpha": uncut.alpha}}
    with build_run(changed(load_config(settings_file(PROTOCOL["preset"])), changes)) as run:
        for member, adapter in zip(run.population.solvers, (child, uncut), strict=True):
            run.bank.load(member.slot, adapter)
        run.sync_weights()
        rows = [row for suite in suites for row in greedy_rows(run, suite, problems_of(suite))]
    names = {member.id: name for member, name in zip(run.population.solvers, ("soup", "uncut"), strict=True)}
    table = pa.Table.from_pylist([{**row, "member": names[row["member"]]} for row in rows])
    facts = {"parents": lineage.parents, "fingerprint": lineage.fingerprint, "processor": processor(), "commit": commit()}
    target(out, soup).parent.mkdir(parents=True, exist_ok=True)
    described = table.replace_schema_metadata({name: json.dumps(value) for name, value in facts.items()})
    pq.write_table(described, target(out, soup), compression="zstd")


def uncut_mean(parents: Sequence[Adapter]) -> Adapter:
    """Return the exact mean of the parents' deltas, of as high a rank as all of them together, with their scale."""
    modules = {name: mean_delta([parent.modules[name] for parent in parents]) for name in parents[0].modules}
    return Adapter(modules, sum(parent.rank for parent in parents), sum(parent.alpha for parent in parents))


if __name__ == "__main__":
    main()
