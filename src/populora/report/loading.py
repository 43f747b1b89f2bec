"""A run's files as arrays for the report. What is damaged, absent or of another version is named by `RunData.missing` and left out.

The metrics of ``metrics.jsonl`` were computed while the run went on. A step that the log lacks is computed again from the step's Parquet
tables by the same functions (`populora.runlog.metrics.table_metrics`), as far as they hold it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from populora.analysis.coverage import METRICS as DESCRIPTOR
from populora.analysis.coverage import covered
from populora.errors import RunDirectoryError
from populora.runlog.archive import TESSELLATION, read_tessellation
from populora.runlog.directory import CONFIG, FACTS
from populora.runlog.files import read_json, step_folder
from populora.runlog.journal import METRICS, TIMINGS
from populora.runlog.metrics import table_metrics
from populora.runlog.records import FOLDER, LATER, SCHEMAS, recorded_steps

Array = NDArray[np.float64]
_TEXTS = ("text", "program", "message", "shown", "hidden")


@dataclass(frozen=True)
class Log:
    """A log by columns: ``steps`` [n] in order, and each name's values [n], NaN where a step does not have it."""

    steps: NDArray[np.int64]
    columns: Mapping[str, Array]

    def get(self, name: str) -> Array:
        """Values [n] of a name; all NaN if no step has it."""
        return self.columns.get(name, np.full(len(self.steps), np.nan))

    def under(self, prefix: str) -> list[str]:
        """The names under ``prefix/``, each without it, in order."""
        return sorted(name.removeprefix(f"{prefix}/") for name in self.columns if name.startswith(f"{prefix}/"))


class RunData:
    """One run directory, read as far as it is asked for and can be read."""

    def __init__(self, folder: Path, name: str = ""):
        """``name``: what the page calls the run by, else as its folder. Raises `RunDirectoryError` where ``folder`` is no run at all."""
        if not (folder / CONFIG).is_file():
            raise RunDirectoryError(f"'{folder}' is not a run directory: expected a '{CONFIG}' in it. `ls runs/` shows the runs.")
        self.folder = folder
        self.name = name or folder.resolve().name
        self._lacks: dict[str, set[int]] = {}
        self.settings = self._json(CONFIG)
        self.facts = self._json(FACTS)

    def setting(self, path: str, default: Any) -> Any:
        """A setting by its dotted name; ``default`` where the file lacks it or another version meant something else by it."""
        found: Any = self.settings
        for part in path.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        return found if isinstance(found, int | float if isinstance(default, int | float) else type(default)) else default

    @property
    def missing(self) -> list[str]:
        """What could not be read of what was asked for so far, in words."""
        return [note + (f" ({_span(steps)})" if steps else "") for note, steps in self._lacks.items()]

    @cached_property
    def recorded(self) -> list[int]:
        """Steps with Parquet tables, in order."""
        return recorded_steps(self.folder)

    @cached_property
    def metrics(self) -> Log:
        """Every metric of every finished step."""
        lines, again = self._lines(METRICS), dict[int, dict[str, float]]()
        for step in lines.keys() - set(self.recorded):
            self._miss(f"{FOLDER}/ has no tables of steps that {METRICS} has", step)
        for step in self.recorded:
            if step not in lines and (found := self._recomputed(step)):
                again[step] = found
                self._miss(f"{METRICS} lacks steps: computed again from their tables, without updates and held-out accuracy", step)
        if again:
            for step, coverage in self._coverage().items():
                again.get(step, {}).update(coverage)
        return _log(lines | again)

    @cached_property
    def timings(self) -> Log:
        """Seconds, and tokens a second, of the steps."""
        return _log(self._lines(TIMINGS))

    @cached_property
    def tessellation(self) -> str:
        """SHA-256 of the file that the run's coverage refers to; empty where an earlier version kept none."""
        file = self.folder / TESSELLATION
        return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""

    def table(self, name: str, columns: Sequence[str], steps: Iterable[int] | None = None) -> pa.Table:
        """Columns of a table (a key of `populora.runlog.records.SCHEMAS`) over the steps whose file has them, by default all.

        What earlier versions did not write (`populora.runlog.records.LATER`) is null where a file lacks it.
        """
        schema = pa.schema([SCHEMAS[name].field(column) for column in columns])
        found = [self._part(name, schema, step) for step in (self.recorded if steps is None else steps)]
        return pa.concat_tables([schema.empty_table(), *(part for part in found if part is not None)])

    def _part(self, name: str, schema: pa.Schema, step: int) -> pa.Table | None:
        path = step_folder(self.folder / FOLDER, step) / f"{name}.parquet"
        try:
            with path.open("rb") as opened, pq.ParquetFile(opened) as file:  # a path need not be UTF-8, which pyarrow asks of it
                absent = [column for column in schema.names if column not in file.schema_arrow.names]
                for column in absent:
                    self._miss(f"{path.name} has no column '{column}': another version wrote it", step)
                if not set(absent) <= set(LATER):
                    return None
                part = file.read([column for column in schema.names if column not in absent])
            for column in absent:
                part = part.append_column(column, pa.nulls(len(part), schema.field(column).type))
            return part.select(schema.names).cast(schema)
        except (OSError, pa.ArrowException) as error:
            self._miss(f"{path.name} cannot be read: {type(error).__name__}", step)
            return None

    def _recomputed(self, step: int) -> dict[str, float]:
        tables = {
            name: self.table(name, [column for column in schema.names if column not in _TEXTS], [step]).to_pylist()
            for name, schema in SCHEMAS.items()
        }
        return table_metrics(tables) if tables["proposals"] else {}

    def _coverage(self) -> dict[int, dict[str, float]]:
        """Coverage, distinct descriptors and programs by step, computed from the tables as `populora.analysis.coverage.Archive` counts."""
        try:
            ranges, centres = read_tessellation(self.folder)
        except RunDirectoryError as error:
            self._miss(f"coverage cannot be computed again: {error}")
            return {}
        table = self.table("proposals", ("step", "task", "valid", "rho", *DESCRIPTOR))
        table = table.filter(pc.field("valid") & pc.field("rho").is_valid() & (pc.field("task") != "code_f"))
        descriptors = np.stack([table[name].to_numpy() for name in DESCRIPTOR], axis=1)
        filled = covered(descriptors, ranges, centres)
        distinct = np.zeros(len(descriptors), dtype=np.int64)
        distinct[np.unique(descriptors, axis=0, return_index=True)[1]] = 1
        distinct, steps = np.cumsum(distinct), table["step"].to_numpy()
        ends = {step: int(np.searchsorted(steps, step, side="right")) for step in self.recorded}
        return {
            step: {
                "archive/coverage": filled[end - 1] / len(centres), "archive/distinct_descriptors": float(distinct[end - 1]),
                "archive/total_problems": float(end), "archive/proxy": end / len(centres),
            }
            for step, end in ends.items() if end
        }  # fmt: skip

    def _lines(self, name: str) -> dict[int, dict[str, float]]:
        """A log's whole lines by step. One that a kill cut short is no step yet, a damaged one is named."""
        path, found = self.folder / name, dict[int, dict[str, float]]()
        if not path.is_file():
            self._miss(f"{name} is not there")
            return found
        for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
            try:
                values = {name: float(value) for name, value in json.loads(line).items()}
                found[int(values.pop("step"))] = values
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
                self._miss(f"line {number} of {name} is damaged")
        return found

    def _json(self, name: str) -> dict[str, Any]:
        try:
            return dict(read_json(self.folder / name))
        except (RunDirectoryError, TypeError, ValueError) as error:
            self._miss(f"{name} cannot be read: {error}")
            return {}

    def _miss(self, what: str, step: int | None = None) -> None:
        self._lacks.setdefault(what, set()).update(() if step is None else (step,))


def _log(lines: Mapping[int, Mapping[str, float]]) -> Log:
    steps = sorted(lines)
    columns: dict[str, Array] = {}
    for index, step in enumerate(steps):
        for name, value in lines[step].items():
            columns.setdefault(name, np.full(len(steps), np.nan))[index] = value
    return Log(np.array(steps, dtype=np.int64), columns)


def _span(steps: Iterable[int]) -> str:
    found = sorted(steps)
    return f"step {found[0]}" if len(found) == 1 else f"{len(found)} of the steps {found[0]} to {found[-1]}"
