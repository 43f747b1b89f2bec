"""Read a run directory from Python: settings, tables and members, each when it is used.

Tables are `pyarrow.Table`s; `.to_pandas()` makes DataFrames of them.
"""

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
from populora.runs.checkpoint import saved_members
from populora.runs.directory import read_config
from populora.runs.metrics_log import METRICS, TIMINGS, read_log
from populora.runs.step_columns import SCHEMAS
from populora.runs.tables import read_children, read_table

if TYPE_CHECKING:  # torch, which readers of metrics need not load
    from populora.adapters.adapter import Adapter


@dataclass(frozen=True)
class RunDirectory:
    """A run directory, of a finished run or of one in progress."""

    folder: Path

    @cached_property
    def config(self) -> Config:
        """The settings that the run began with. Raises `RunDirectoryError` if ``folder`` is no run."""
        return read_config(self.folder)

    @property
    def metrics(self) -> pa.Table:
        """One row a step: ``step`` and every metric (docs/records.md), null where a step does not have it."""
        return _log_table(self.folder, METRICS)

    @property
    def timings(self) -> pa.Table:
        """One row a step: ``step``, seconds by phase, and tokens a second."""
        return _log_table(self.folder, TIMINGS)

    def table(self, name: str, steps: Iterable[int] | int | None = None) -> pa.Table:
        """Read a table of a step or some, by default of all: proposals, problems, attempts, matchups, ratings or children.

        docs/records.md explains the columns. Raises `RunDirectoryError` for another name or a step that is not there.
        """
        if name not in SCHEMAS:
            raise RunDirectoryError(f"a run has no table '{name}': expected one of {', '.join(SCHEMAS)}")
        return read_table(self.folder, name, [steps] if isinstance(steps, int) else steps)

    @property
    def problems(self) -> pa.Table:
        """The valid problems of each step: those that were proposed in it, and those of the buffer that it used again.

        ``step`` is the step of use, ``born`` the one in which the problem was proposed.
        """
        return self.table("problems")

    @property
    def ratings(self) -> pa.Table:
        """TrueSkill mean and deviation of each member after each step."""
        return self.table("ratings")

    @property
    def lineage(self) -> pa.Table:
        """The children that were born, in order: operator, parents, strengths, random stream, distances from the parents."""
        return self.table("children")

    @property
    def children(self) -> list[Lineage]:
        """The rows of ``lineage`` as records, with which the children can be bred again."""
        return read_children(self.folder)

    @property
    def members(self) -> list[str]:
        """Names of the adapters of the newest checkpoint, teachers first. Raises `RunDirectoryError` if there is none yet."""
        roles = saved_members(self.folder).roles
        return sorted(roles, key=lambda name: roles[name] == "student")

    def member_folder(self, name: str, step: int | None = None) -> Path:
        """Return the PEFT folder of a member in the newest checkpoint, or in that of ``step``, if the run keeps it.

        Raises `RunDirectoryError` for a name that is not among its members. The folder goes with its checkpoint, if the run trains on.
        """
        saved = saved_members(self.folder, step)
        if name not in saved.roles:
            raise RunDirectoryError(f"'{self.folder}' has no member '{name}': expected one of {', '.join(sorted(saved.roles))}")
        return saved.adapters / name

    def member(self, name: str, step: int | None = None) -> Adapter:
        """Load the adapter in `member_folder`."""
        from populora.adapters.peft_format import load_adapter

        return load_adapter(self.member_folder(name, step))


def load_run(folder: str | Path) -> RunDirectory:
    """Open a run directory for reading. Raises `RunDirectoryError` if it is none.

    Examples:
        >>> import populora
        >>> populora.load_run("no/such/run")
        Traceback (most recent call last):
        populora.core.errors.RunDirectoryError: 'no/such/run' is not a run directory: expected a 'config.json' in it. ...
    """
    run = RunDirectory(Path(folder))
    run.config  # noqa: B018 (it raises here rather than later)
    return run


def _log_table(folder: Path, file: str) -> pa.Table:
    """Read a log as a table with every column that any step has, in order of appearance; before the first step only ``step``."""
    lines = read_log(folder, file)
    columns = dict.fromkeys(["step", *(name for line in lines for name in line)])
    return pa.table({name: [line.get(name) for line in lines] for name in columns})
