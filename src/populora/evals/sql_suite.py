"""Suites of questions on SQLite files, in the form of Spider and of BIRD: a folder of the user's with

dev.json                                         a list of objects with db_id, question, and query (Spider) or SQL (BIRD), maybe evidence
database/NAME/NAME.sqlite                        or dev_databases/NAME/NAME.sqlite
"""

import base64
import json
import zlib
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Any

from populora.core.errors import ConfigError
from populora.core.files import disk_errors
from populora.evals.eval_records import Item

LARGEST_MB = 64
"""Largest file of a database. It goes to the sandbox as a message, since no file can be read in there."""
_QUESTIONS, _FOLDERS = "dev.json", ("database", "dev_databases")


def is_sql_suite(folder: Path) -> bool:
    """Tell whether a folder has the questions of a suite."""
    return (folder / _QUESTIONS).is_file()


def load_sql_suite(folder: Path) -> list[Item]:
    """Load the questions. Items have ``db_id``, ``question``, ``query``, ``evidence`` and ``path``. Raises `ConfigError`."""
    return [_item(folder, number, row) for number, row in enumerate(_rows(folder))]


def suite_files(folder: Path) -> list[Path]:
    """List the files of a suite: its questions and the databases that they are about. Raises `ConfigError`."""
    return [folder / _QUESTIONS, *sorted({Path(item.fields["path"]) for item in load_sql_suite(folder)})]


def _rows(folder: Path) -> list[Any]:
    file = folder / _QUESTIONS
    if not file.is_file():
        raise ConfigError(f"'{folder}' has no {_QUESTIONS}: expected the folder of Spider or BIRD, or one in their form")
    try:
        with disk_errors(file, "read"):
            rows = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"'{file}': expected a list of questions in JSON ({error})") from error
    if not isinstance(rows, list) or not rows:
        raise ConfigError(f"'{file}': expected a list of questions, got {str(rows)[:60]}")
    return rows


def _item(folder: Path, number: int, row: Any) -> Item:
    match row:
        case {"db_id": str(name), "question": str(question), "query": str(query)} | {
            "db_id": str(name),
            "question": str(question),
            "SQL": str(query),
        }:
            paths = [folder / parent / name / f"{name}.sqlite" for parent in _FOLDERS]
            path = next((path for path in paths if path.is_file()), None)
            if path is None or Path(name).name != name:
                raise ConfigError(f"'{folder / _QUESTIONS}', question {number}: there is no database '{paths[0]}' or '{paths[1]}'")
            fields = {"db_id": name, "question": question, "query": query, "evidence": row.get("evidence") or "", "path": str(path)}
            return Item(str(row.get("question_id", number)), fields)
    raise ConfigError(f"'{folder / _QUESTIONS}', question {number}: expected texts db_id, question, and query or SQL, got {str(row)[:60]}")


@lru_cache(maxsize=4)
def schema_of(path: str) -> str:
    """Read the CREATE statements of a database's tables and views. Raises `ConfigError` for a file that is no database."""
    import sqlite3  # a Python without it can evaluate the other suites

    try:
        with closing(sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            connection.text_factory = lambda data: data.decode(errors="replace")
            rows = connection.execute("SELECT sql FROM sqlite_master WHERE type IN ('table', 'view') AND sql IS NOT NULL ORDER BY rowid")
            return "\n".join(f"{sql.strip()};" for (sql,) in rows if not sql.startswith("CREATE TABLE sqlite_"))
    except sqlite3.Error as error:
        raise ConfigError(f"'{path}' is no database of SQLite: {error}") from error


@lru_cache(maxsize=4)  # questions on one database follow each other
def database_text(path: str) -> str:
    """Read a database as the text that the sandbox takes. Raises `RunDirectoryError` where it cannot be read."""
    with disk_errors(Path(path), "read"):
        return file_text(Path(path).read_bytes())


def file_text(data: bytes) -> str:
    """Write a file as a text for `populora.domains.sql.runner.sqlite_file`."""
    return base64.b64encode(zlib.compress(data, 1)).decode("ascii")


def is_too_large(path: str) -> bool:
    """Tell whether a database is larger than the sandbox takes."""
    with disk_errors(Path(path), "read"):
        return Path(path).stat().st_size > LARGEST_MB << 20
