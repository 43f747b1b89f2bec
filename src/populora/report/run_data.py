"""Read a run directory into arrays for the report. Damaged and missing files are left out and listed in `RunData.missing`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from populora.core.errors import RunDirectoryError
from populora.core.files import read_json, step_folder
from populora.runs.directory import CONFIG, FACTS
from populora.runs.metrics_log import METRICS, TIMINGS
from populora.runs.records import FOLDER, LATER, SCHEMAS, recorded_steps

Array = NDArray[np.float64]
Steps = NDArray[np.int64]


@dataclass(frozen=True)
class Log:
    """A log by columns: sorted ``steps`` [n], and the values [n] of each name, NaN in steps that lack it."""

    steps: Steps
    columns: Mapping[str, Array]

    @property
    def last_step(self) -> int:
        """The last logged step; 0 if there is none."""
        return int(self.steps[-1]) if len(self.steps) else 0

    def get(self, name: str) -> Array:
        """Return the values [n] of a name; all NaN if no step has it."""
        return self.columns.get(name, np.full(len(self.steps), np.nan))

    def under(self, prefix: str) -> list[str]:
        """Return the sorted names under ``prefix/``, without the prefix."""
        return sorted(name.removeprefix(f"{prefix}/") for name in self.columns if name.startswith(f"{prefix}/"))


class RunData:
    """One run directory, read on demand as far as its files are readable."""

    def __init__(self, folder: Path, name: str = ""):
        """``name``: the run's name on the page, by default that of its folder. Raises `RunDirectoryError` if ``folder`` is not a run."""
        if not (folder / CONFIG).is_file():
            raise RunDirectoryError(f"'{folder}' is not a run directory: expected a '{CONFIG}' in it. `ls runs/` shows the runs.")
        self.folder = folder
        self.name = name or folder.resolve().name
        self._missing: dict[str, set[int]] = {}
        self.settings = self._json(CONFIG)
        self.facts = self._json(FACTS)

    def setting(self, path: str, default: Any) -> Any:
        """Return a setting by its dotted name; ``default`` if the file lacks it or holds another type."""
        value: Any = self.settings
        for part in path.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return value if isinstance(value, int | float if isinstance(default, int | float) else type(default)) else default

    @property
    def missing(self) -> list[str]:
        """The problems met so far while reading, as phrases."""
        return [note + (f" ({_span(steps)})" if steps else "") for note, steps in self._missing.items()]

    @cached_property
    def recorded(self) -> list[int]:
        """Steps with Parquet tables, sorted."""
        return recorded_steps(self.folder)

    @cached_property
    def metrics(self) -> Log:
        """Every metric of every logged step."""
        log = self._log(METRICS)
        logged = set(log.steps.tolist())
        last = max([log.last_step, *self.recorded])
        for step in set(range(1, last + 1)) - logged:
            self._note(f"{METRICS} lacks steps, which are gaps in the figures", step)
        for step in logged - set(self.recorded):
            self._note(f"{FOLDER}/ has no tables of steps that {METRICS} has", step)
        return log

    @cached_property
    def timings(self) -> Log:
        """Seconds and tokens per second of the steps."""
        return self._log(TIMINGS)

    def table(self, name: str, columns: Sequence[str], steps: Iterable[int] | None = None) -> pa.Table:
        """Read columns of a table (a key of `populora.runs.records.SCHEMAS`) over the readable steps, by default all.

        Columns that earlier versions did not write (`populora.runs.records.LATER`) are null where a file lacks them.
        """
        schema = pa.schema([SCHEMAS[name].field(column) for column in columns])
        parts = [self._step_table(name, schema, step) for step in (self.recorded if steps is None else steps)]
        return pa.concat_tables([schema.empty_table(), *(part for part in parts if part is not None)])

    def _step_table(self, name: str, schema: pa.Schema, step: int) -> pa.Table | None:
        path = step_folder(self.folder / FOLDER, step) / f"{name}.parquet"
        try:
            with path.open("rb") as opened, pq.ParquetFile(opened) as file:  # pyarrow opens only paths that are UTF-8
                absent = [column for column in schema.names if column not in file.schema_arrow.names]
                for column in absent:
                    self._note(f"{path.name} has no column '{column}': another version wrote it", step)
                if not set(absent) <= set(LATER):
                    return None
                part = file.read([column for column in schema.names if column not in absent])
            for column in absent:
                part = part.append_column(column, pa.nulls(len(part), schema.field(column).type))
            part.validate(full=True)  # finds texts that are not UTF-8
            return part.select(schema.names).cast(schema)
        except (OSError, pa.ArrowException) as error:
            self._note(f"{path.name} cannot be read: {type(error).__name__}", step)
            return None

    def _log(self, name: str) -> Log:
        """Read the complete lines of a log. A last line without a line end is ignored, a damaged line is noted."""
        lines: dict[int, dict[str, float]] = {}
        path = self.folder / name
        if not path.is_file():
            self._note(f"{name} is not there")
        for number, line in enumerate(path.read_bytes().split(b"\n")[:-1] if path.is_file() else (), start=1):
            try:
                values = {key: float(value) for key, value in json.loads(line).items()}
                step = int(values.pop("step"))
                if not 1 <= step <= self.setting("steps", step):
                    raise ValueError
                lines[step] = values
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
                self._note(f"line {number} of {name} is damaged")
        columns: dict[str, Array] = {}
        for index, step in enumerate(sorted(lines)):
            for key, value in lines[step].items():
                columns.setdefault(key, np.full(len(lines), np.nan))[index] = value
        return Log(np.array(sorted(lines), dtype=np.int64), columns)

    def _json(self, name: str) -> dict[str, Any]:
        try:
            return dict(read_json(self.folder / name))
        except (RunDirectoryError, TypeError, ValueError) as error:
            self._note(f"{name} cannot be read: {error}")
            return {}

    def _note(self, problem: str, step: int | None = None) -> None:
        self._missing.setdefault(problem, set()).update(() if step is None else (step,))


def _span(steps: set[int]) -> str:
    return f"step {min(steps)}" if len(steps) == 1 else f"{len(steps)} of the steps {min(steps)} to {max(steps)}"
