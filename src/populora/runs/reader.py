"""Read a run directory from Python: settings, tables, lineage and members. `.to_pandas()` of a table makes a DataFrame."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from populora.core.config import Config
from populora.core.errors import RunDirectoryError
from populora.core.types import Lineage
from populora.runs.checkpoint import newest_members
from populora.runs.directory import read_config
from populora.runs.metrics_log import METRICS, TIMINGS, read_log
from populora.runs.tables import SCHEMAS, read_children, read_table

if TYPE_CHECKING:  # torch, which readers of metrics need not load
    from populora.adapters.adapter import Adapter


@dataclass(frozen=True)
class RunDirectory:
    """A run on disk, finished or not. Its properties read the files when they are used."""

    folder: Path

    @cached_property
    def config(self) -> Config:
        """The settings that the run began with. Raises `RunDirectoryError` if ``folder`` is no run."""
        return read_config(self.folder)

    @property
    def metrics(self) -> pa.Table:
        """One row a step: ``step`` and every metric (`populora.runs.metrics`), null where a step does not have it."""
        return pa.Table.from_pylist(_complete(read_log(self.folder, METRICS)))

    @property
    def timings(self) -> pa.Table:
        """One row a step: ``step``, seconds by phase, and tokens a second."""
        return pa.Table.from_pylist(_complete(read_log(self.folder, TIMINGS)))

    def table(self, name: str, steps: Iterable[int] | None = None) -> pa.Table:
        """Read a table (a key of `populora.runs.tables.SCHEMAS`) of some steps, by default of all. Raises `RunDirectoryError`."""
        if name not in SCHEMAS:
            raise RunDirectoryError(f"a run has no table '{name}': expected one of {', '.join(SCHEMAS)}")
        return read_table(self.folder, name, steps)

    @property
    def lineage(self) -> list[Lineage]:
        """The children that were born, in order: operator, parents, strengths, random stream."""
        return read_children(self.folder)

    @property
    def members(self) -> dict[str, Adapter]:
        """The adapters of the newest checkpoint by name, such as ``T0``. Raises `RunDirectoryError` if there is none yet."""
        from populora.adapters.peft_format import load_adapter

        if not (self.folder / "adapters").exists():
            raise RunDirectoryError(f"'{self.folder}' has no adapters yet: they are written with the first checkpoint")
        saved = newest_members(self.folder)
        return {name: load_adapter(saved.adapters / name) for name in sorted(saved.roles)}


def load_run(folder: str | Path) -> RunDirectory:
    """Open a run directory for reading. Raises `RunDirectoryError` if it is none.

    >>> import populora
    >>> populora.load_run("no/such/run")
    Traceback (most recent call last):
    populora.core.errors.RunDirectoryError: 'no/such/run' is not a run directory: expected a 'config.json' in it. ...
    """
    run = RunDirectory(Path(folder))
    run.config  # noqa: B018 (it raises here rather than later)
    return run


def _complete(lines: list[dict[str, float]]) -> list[dict[str, float | None]]:
    """Give every row all columns that any of them has, in order of appearance."""
    columns = dict.fromkeys(name for line in lines for name in line)
    return [{name: line.get(name) for name in columns} for line in lines]
