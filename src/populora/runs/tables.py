"""The Parquet tables of a step: proposals, problems, attempts, matchups, ratings and children, zstd, with explicit schemas.

``steps/step_00012/{proposals,problems,attempts,matchups,ratings,children}.parquet``: one folder a step, moved into place at
once, so a reader sees a whole step or none, and ``steps/*/attempts.parquet`` reads a whole run in any Parquet tool.
Nothing in a file depends on the clock: equal steps give equal bytes. Text is model text: columns of strings, never evaluated.

A step in which children were born also holds ``parents``, a PEFT folder each, from which `populora replay RUN` breeds them again.
The columns are those of `populora.runs.step_columns`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from populora.core.errors import RunDirectoryError
from populora.core.files import new_folder, step_folder, steps_in, write_durably
from populora.core.types import Lineage
from populora.runs.step_columns import SCHEMAS, Columns, schema_of, step_columns
from populora.runs.step_record import StepRecord

if TYPE_CHECKING:
    from populora.adapters.adapter import Adapter

FOLDER, PARENTS = "steps", "parents"
WriteParents = Callable[[Path], Any]
"""Write the parents of a step's children into a folder, a PEFT folder each."""


def step_tables(record: StepRecord) -> dict[str, pa.Table]:
    """Build the tables of a step; keys are those of `SCHEMAS`."""
    columns = step_columns(record)
    return {name: _table(columns[name], schema_of(name, record.domains), record.step) for name in SCHEMAS}


def write_records(folder: Path, record: StepRecord, write_parents: WriteParents | None = None) -> dict[str, pa.Table]:
    """Write the tables of a step, and the parents of its children, into the run ``folder``. Returns the tables.

    Raises `RunDirectoryError`.
    """
    tables = step_tables(record)
    with new_folder(step_folder(folder / FOLDER, record.step)) as part:
        for name, table in tables.items():
            sink = pa.BufferOutputStream()
            pq.write_table(table, sink, compression="zstd")
            write_durably(part / f"{name}.parquet", sink.getvalue().to_pybytes())
        if write_parents:
            write_parents(part / PARENTS)
    return tables


def recorded_steps(folder: Path) -> list[int]:
    """List the steps that have records in the run ``folder``, in order."""
    return steps_in(folder / FOLDER)


def read_table(folder: Path, name: str, steps: Iterable[int] | None = None, columns: Sequence[str] = ()) -> pa.Table:
    """Read some columns of a table (a key of `SCHEMAS`) over some steps, by default all. Raises `RunDirectoryError`.

    A column that `SCHEMAS` does not have, that of a domain, has the type that it has in the first file.
    """
    recorded = recorded_steps(folder)
    chosen = recorded if steps is None else list(steps)
    for step in chosen:
        if step not in recorded:
            span = f"steps {recorded[0]} to {recorded[-1]}" if recorded else "no finished step"
            raise RunDirectoryError(f"'{folder}' has no record of step {step}: it holds {span}.")
    files = [step_folder(folder / FOLDER, step) / f"{name}.parquet" for step in chosen]
    known = SCHEMAS[name]
    first = _schema(files[0]) if files else known
    types = {field.name: field.type for field in [*first, *known]}
    schema = pa.schema([(column, types.get(column, pa.int32())) for column in columns or first.names])
    tables = [_read(file, schema) for file in files]
    return pa.concat_tables([schema.empty_table(), *tables])


def read_children(folder: Path) -> list[Lineage]:
    """Read the lineages of all children of a run, in the order of their birth. Raises `RunDirectoryError`."""
    rows = read_table(folder, "children").to_pylist()
    parsed = [{**row, "stream": json.loads(row["stream"]), "strength": json.loads(row["strength"])} for row in rows]
    return [Lineage.from_plain({name: value for name, value in row.items() if name != "step"}) for row in parsed]


def _table(columns: Columns, schema: pa.Schema, step: int) -> pa.Table:
    rows = len(next(iter(columns.values())))
    arrays = [_array([step] * rows if field.name == "step" else columns[field.name], field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        return pa.array(_encodable(values), kind)


def _encodable(value: Any) -> Any:
    """Replace lone surrogates, which model text may hold and UTF-8 cannot, by their escapes."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {key: _encodable(item) for key, item in value.items()}
    return [_encodable(item) for item in value] if isinstance(value, (list, tuple)) else value


def _read(path: Path, schema: pa.Schema) -> pa.Table:
    with _open(path) as file:
        return file.read(schema.names).select(schema.names).cast(schema)


def _schema(path: Path) -> pa.Schema:
    with _open(path) as file:
        return file.schema_arrow


@contextmanager
def _open(path: Path) -> Iterator[pq.ParquetFile]:
    try:
        with path.open("rb") as file:  # a path need not be UTF-8, which pyarrow asks of it
            yield pq.ParquetFile(file)
    except (OSError, KeyError, pa.ArrowException) as error:
        remedy = "Restore it from a backup, or remove its folder to leave the step out."
        raise RunDirectoryError(f"cannot read '{path}': {error}. {remedy}") from error


def read_parents(step: Path) -> dict[str, Adapter]:
    """Read the parents by name from the folder of the ``step`` of their children's birth. Raises `RunDirectoryError`, `AdapterError`."""
    from populora.adapters.peft_format import load_adapter

    if not (step / PARENTS).is_dir():
        raise RunDirectoryError(
            f"'{step}' has no folder '{PARENTS}': the run did not keep what its children were bred from. Runs do with "
            "evolution.keep_parents = true."
        )
    return {path.name: load_adapter(path) for path in sorted((step / PARENTS).iterdir())}
