"""A run's files as arrays for the report. What is damaged, absent or of another version is named by `RunData.missing` and left out.

The metrics of ``metrics.jsonl`` were computed while the run went on. A step that the log lacks is computed again from the step's tables
(`populora.report.again`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from populora.core.errors import RunDirectoryError
from populora.core.files import read_json, step_folder
from populora.report.again import computed_again
from populora.runs.archive import TESSELLATION
from populora.runs.directory import CONFIG, FACTS
from populora.runs.metrics_log import METRICS, TIMINGS
from populora.runs.records import FOLDER, LATER, SCHEMAS, recorded_steps

Array = NDArray[np.float64]


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
        lines = self._lines(METRICS)
        for step in lines.keys() - set(self.recorded):
            self.miss(f"{FOLDER}/ has no tables of steps that {METRICS} has", step)
        again = computed_again(self, [step for step in self.recorded if step not in lines])
        for step in again:
            self.miss(f"{METRICS} lacks steps: computed again from their tables, without updates and held-out accuracy", step)
        found = sorted(lines | again)
        for before, after in pairwise([0, *found]):
            if after > before + 1:
                self.miss(f"nothing has the steps {before + 1} to {after - 1}")
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
        """Columns of a table (a key of `populora.runs.records.SCHEMAS`) over the steps whose file has them, by default all.

        What earlier versions did not write (`populora.runs.records.LATER`) is null where a file lacks it.
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
                    self.miss(f"{path.name} has no column '{column}': another version wrote it", step)
                if not set(absent) <= set(LATER):
                    return None
                part = file.read([column for column in schema.names if column not in absent])
            for column in absent:
                part = part.append_column(column, pa.nulls(len(part), schema.field(column).type))
            part.validate(full=True)  # texts that are no UTF-8, say
            return part.select(schema.names).cast(schema)
        except (OSError, pa.ArrowException) as error:
            self.miss(f"{path.name} cannot be read: {type(error).__name__}", step)
            return None

    def _lines(self, name: str) -> dict[int, dict[str, float]]:
        """A log's whole lines by step. One that a kill cut short is no step yet, a damaged one is named."""
        path, found = self.folder / name, dict[int, dict[str, float]]()
        if not path.is_file():
            self.miss(f"{name} is not there")
            return found
        for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
            try:
                values = {name: float(value) for name, value in json.loads(line).items()}
                step = int(values.pop("step"))
                if not 1 <= step <= self.setting("steps", step):
                    raise ValueError
                found[step] = values
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
                self.miss(f"line {number} of {name} is damaged")
        return found

    def _json(self, name: str) -> dict[str, Any]:
        try:
            return dict(read_json(self.folder / name))
        except (RunDirectoryError, TypeError, ValueError) as error:
            self.miss(f"{name} cannot be read: {error}")
            return {}

    def miss(self, what: str, step: int | None = None) -> None:
        """Note what could not be read or computed, of a step if it is of one."""
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
