"""What a run's log lacks, computed again from the Parquet tables of its steps, by the functions that the run itself computes metrics with.

Updates and held-out accuracy stand in no table and stay absent. Coverage counts all programs up to a step: where an earlier table is
missing it is not given, rather than given too low.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from populora.core.errors import RunDirectoryError
from populora.runs.archive import read_tessellation
from populora.runs.metrics import table_metrics
from populora.runs.records import SCHEMAS
from populora.tasks.coverage import METRICS as DESCRIPTOR
from populora.tasks.coverage import covered

if TYPE_CHECKING:
    from populora.report.loading import RunData

_TEXTS = ("text", "program", "message", "shown", "hidden")


def computed_again(run: RunData, steps: Sequence[int]) -> dict[int, dict[str, float]]:
    """Metrics of these steps, of those whose tables can be read; what is not given is named in ``run.missing``."""
    found = {step: metrics for step in steps if (metrics := _metrics(run, step))}
    for step, coverage in _coverage(run, max(found)).items() if found else ():
        found.get(step, {}).update(coverage)
    return found


def _metrics(run: RunData, step: int) -> dict[str, float]:
    tables = {
        name: run.table(name, [column for column in schema.names if column not in _TEXTS], [step]).to_pylist()
        for name, schema in SCHEMAS.items()
    }
    try:
        return table_metrics(tables) if tables["proposals"] else {}
    except (TypeError, ValueError) as error:
        run.miss(f"metrics cannot be computed again: {error}", step)
        return {}


def _coverage(run: RunData, last: int) -> dict[int, dict[str, float]]:
    """Coverage, distinct descriptors and programs of each step to ``last``, as `populora.tasks.coverage.Archive` counts them."""
    try:
        ranges, centres = read_tessellation(run.folder)
    except RunDirectoryError as error:
        run.miss(f"coverage cannot be computed again: {error}")
        return {}
    table, whole = _programs(run, last)
    if whole < last:
        run.miss(f"coverage cannot be computed again from step {whole + 1} on: the programs of that step are missing")
    if not len(table):
        return {}
    descriptors = np.stack([table[name].to_numpy() for name in DESCRIPTOR], axis=1)
    filled = covered(descriptors, ranges, centres)
    distinct = np.zeros(len(descriptors), dtype=np.int64)
    distinct[np.unique(descriptors, axis=0, return_index=True)[1]] = 1
    distinct = np.cumsum(distinct)
    ends = np.searchsorted(table["step"].to_numpy(), range(1, whole + 1), side="right").tolist()
    return {
        step: {
            "archive/coverage": float(filled[end - 1]) / len(centres), "archive/distinct_descriptors": float(distinct[end - 1]),
            "archive/total_problems": float(end), "archive/proxy": end / len(centres),
        }
        for step, end in enumerate(ends, start=1) if end
    }  # fmt: skip


def _programs(run: RunData, last: int) -> tuple[pa.Table, int]:
    """The programs that count, and up to which step there is every one."""
    parts: list[pa.Table] = []
    for step in range(1, last + 1):
        part = run.table("proposals", ("step", "task", "valid", "rho", *DESCRIPTOR), [step])
        if not len(part):  # every step has proposals
            break
        parts.append(part)
    counted = pc.field("valid") & pc.field("rho").is_valid() & (pc.field("task") != "code_f")
    return (pa.concat_tables(parts).filter(counted) if parts else pa.table({})), len(parts)
