"""Completions on disk: logs that are appended to and resumed, and files of completions that were made elsewhere."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from populora.core.errors import ConfigError, RunDirectoryError
from populora.core.files import disk_errors, write_file
from populora.evals.eval_task import EvalPrompts
from populora.evals.folder import completions_file
from populora.evals.records import Completion, EvalModel, Item, append, to_line

Progress = Callable[[str, str, int, int], None]
"""Called with benchmark, model, and the numbers of finished items and of all."""


@dataclass
class CompletionLog:
    """Completions of one model on one benchmark: the items ``missing`` when it was opened, and the number ``done`` now."""

    prompts: EvalPrompts
    model: str
    file: Path
    missing: Sequence[str]
    done: int
    progress: Progress

    def add(self, completion: Completion) -> None:
        """Append a completion. Raises `RunDirectoryError`."""
        append(self.file, completion)
        self.done += 1
        self.report()

    def report(self) -> None:
        """Report the progress."""
        self.progress(self.prompts.benchmark.name, self.model, self.done, len(self.prompts.prompts))

    def close(self) -> None:
        """Sort the file by its items, so that its bytes do not depend on the order of generation."""
        order = {item: number for number, item in enumerate(self.prompts.prompts)}
        completions = sorted(read_log(self.file), key=lambda one: order.get(one.item_id, len(order)))
        ordered = b"".join(map(to_line, completions))
        if self.file.exists() and ordered != self.file.read_bytes():
            write_file(self.file, ordered)


def open_completion_logs(prompts: Iterable[EvalPrompts], models: Iterable[EvalModel], out: Path, progress: Progress) -> list[CompletionLog]:
    """Open a log for every model on every benchmark. Raises `RunDirectoryError` for a damaged line."""
    models, logs = list(models), []
    for one in prompts:
        for model in models:
            file = completions_file(out, one.benchmark.name, model.name)
            with disk_errors(file.parent, "create"):
                file.parent.mkdir(parents=True, exist_ok=True)
            known = {completion.item_id for completion in read_log(file)}
            missing = [item for item in one.prompts if item not in known]
            logs.append(CompletionLog(one, model.name, file, missing, len(one.prompts) - len(missing), progress))
            logs[-1].report()
    return logs


def read_log(file: Path) -> list[Completion]:
    """Read a log; empty where there is no file. A last line that a kill cut short is removed. Raises `RunDirectoryError`."""
    if not file.exists():
        return []
    with disk_errors(file):
        data = file.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if whole != data:
            os.truncate(file, len(whole))
    completions: dict[str, Completion] = {}
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            completion = Completion(**json.loads(line))
        except (ValueError, TypeError) as error:
            raise RunDirectoryError(f"'{file}', line {number}: expected a completion, got {line[:80]!r}. Remove the line.") from error
        completions.setdefault(completion.item_id, completion)
    return list(completions.values())


def cut(text: str, stop: Iterable[str]) -> str:
    """Cut the text before the first of the stop texts."""
    return text[: min((index for one in stop if (index := text.find(one)) >= 0), default=len(text))]


@dataclass(frozen=True)
class CompletionTexts:
    """The completions in a file by item, with the items that have none, and the faults of single lines."""

    texts: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


def read_texts(path: Path, items: Sequence[Item]) -> CompletionTexts:
    """Read all usable lines of a file of any origin; of several for one item the first counts. Raises `ConfigError` without a file."""
    if not path.is_file():
        raise ConfigError(f'there is no file \'{path}\': expected one JSON object with "item_id" and "completion" a line')
    known, texts, faults = {item.id for item in items}, dict[str, str](), list[str]()
    with disk_errors(path, "read"), path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                item, text = _parse_line(line) if line.strip() else ("", "")
                if item and item not in known:
                    raise ValueError(f"there is no item {_shorten(item)} in the benchmark")
                if item in texts:
                    raise ValueError(f"item {_shorten(item)} has a completion already: the first one counts")
            except ValueError as error:
                faults.append(f"line {number}: {error}")
            else:
                texts |= {item: text} if item else {}
    return CompletionTexts(texts, tuple(item.id for item in items if item.id not in texts), tuple(faults))


def _parse_line(line: bytes) -> tuple[str, str]:
    """Parse one line to its item and completion. Raises ``ValueError`` with what is wrong."""
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON ({error}): {_shorten(line.decode(errors='replace'))}") from error
    if not isinstance(row, dict):
        raise ValueError(f'expected an object with "item_id" and "completion", got a {type(row).__name__}')
    for name, kinds in (("item_id", (str, int)), ("completion", (str,))):
        if not isinstance(row.get(name), kinds) or isinstance(row[name], bool):
            raise ValueError(f'expected "{name}" to be a string, got {_shorten(json.dumps(row.get(name)))}')
    return str(row["item_id"]), row["completion"]


def _shorten(text: str) -> str:
    return ascii(text[:60].strip() + "…" * (len(text) > 60))
