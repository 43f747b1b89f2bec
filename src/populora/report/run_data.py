"""Read a run directory into arrays for the report."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from populora.core.config import Config
from populora.core.files import read_object
from populora.runs.directory import FACTS, read_config
from populora.runs.metrics_log import METRICS, TIMINGS, read_log
from populora.runs.tables import read_table, recorded_steps

Array = NDArray[np.float64]
Steps = NDArray[np.int64]


@dataclass(frozen=True)
class Log:
    """A log by columns: ``steps`` [n], and the values [n] of each name, NaN in steps that lack it."""

    steps: Steps
    columns: Mapping[str, Array]

    @property
    def last_step(self) -> int:
        return int(self.steps[-1]) if len(self.steps) else 0

    def get(self, name: str) -> Array:
        return self.columns.get(name, np.full(len(self.steps), np.nan))

    def under(self, prefix: str) -> list[str]:
        """Return the sorted names under ``prefix/``, without the prefix."""
        return sorted(name.removeprefix(f"{prefix}/") for name in self.columns if name.startswith(f"{prefix}/"))


@dataclass(frozen=True)
class RunData:
    """A run directory, read on demand, and its name on the page. Its properties raise `RunDirectoryError` for damaged files."""

    folder: Path
    name: str

    @cached_property
    def config(self) -> Config:
        return read_config(self.folder)

    @cached_property
    def facts(self) -> dict[str, Any]:
        return read_object(self.folder / FACTS, "versions", "sandbox")

    @cached_property
    def recorded(self) -> list[int]:
        return recorded_steps(self.folder)

    @cached_property
    def metric_lines(self) -> Sequence[Mapping[str, float]]:
        return read_log(self.folder, METRICS)

    @cached_property
    def metrics(self) -> Log:
        return _by_columns(self.metric_lines)

    @cached_property
    def timings(self) -> Log:
        return _by_columns(read_log(self.folder, TIMINGS))

    def ending(self, domain: str) -> str:
        """Return what ends the names of a domain's metrics in the log: ``/sql`` in a run of several domains, nothing in one of it alone."""
        return f"/{domain}" if domain and len(self.config.domains) > 1 else ""

    def table(self, name: str, columns: Sequence[str], steps: Iterable[int] | None = None) -> pa.Table:
        """Read columns of a table (a key of `populora.runs.step_columns.SCHEMAS`), by default over all steps."""
        return read_table(self.folder, name, self.recorded if steps is None else steps, columns)


def _by_columns(lines: Sequence[Mapping[str, float]]) -> Log:
    columns: dict[str, Array] = {}
    for index, line in enumerate(lines):
        for key, value in line.items():
            if key not in columns:
                columns[key] = np.full(len(lines), np.nan)
            columns[key][index] = value
    return Log(columns.pop("step", np.empty(0)).astype(np.int64), columns)
