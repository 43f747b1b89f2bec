"""Completions on disk: logs that are appended to and resumed, and files of completions that were made elsewhere."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from populora.core.errors import ConfigError
from populora.core.files import disk_errors, make_folder, write_file
from populora.evals.eval_records import Completion, EvalModel, Item, append, read_records, to_lines
from populora.evals.folder import completions_file
from populora.evals.prompts import EvalPrompts

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
        self.progress(self.prompts.benchmark.name, self.model, self.done, len(self.prompts.prompts))

    def close(self) -> None:
        """Sort the file by its items, so that its bytes do not depend on the order of generation."""
        order = {item: number for number, item in enumerate(self.prompts.prompts)}
        completions = read_records(self.file, Completion).values()
        if completions:
            write_file(self.file, to_lines(sorted(completions, key=lambda item: order.get(item.item_id, len(order)))))


def open_completion_logs(prompts: Iterable[EvalPrompts], models: Sequence[EvalModel], out: Path, progress: Progress) -> list[CompletionLog]:
    """Open a log for every model on every benchmark. Raises `RunDirectoryError` for a damaged line."""
    logs: list[CompletionLog] = []
    for task in prompts:
        for model in models:
            file = completions_file(out, task.benchmark.name, model.name)
            make_folder(file.parent)
            finished = read_records(file, Completion, repair=True)
            missing = [item for item in task.prompts if item not in finished]
            logs.append(CompletionLog(task, model.name, file, missing, len(task.prompts) - len(missing), progress))
            progress(task.benchmark.name, model.name, logs[-1].done, len(task.prompts))
    return logs


def cut(text: str, stop: Iterable[str]) -> str:
    """Cut the text before the first of the stop texts."""
    return min((text.partition(end)[0] for end in stop), key=len, default=text)


def read_texts(path: Path, items: Sequence[Item]) -> tuple[dict[str, str], list[str]]:
    """Read the usable lines of a file by item, the first for each, and the faults of the others. Raises `ConfigError` without a file."""
    if not path.is_file():
        raise ConfigError(f'there is no file \'{path}\': expected one JSON object with "item_id" and "completion" a line')
    ids, texts, faults = {item.id for item in items}, dict[str, str](), list[str]()
    with disk_errors(path, "read"), path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                if line.strip():
                    item, text = _parse_line(line)
                    if item not in ids:
                        raise ValueError(f"there is no item {_shorten(item)} in the benchmark")
                    if item in texts:
                        raise ValueError(f"item {_shorten(item)} has a completion already: the first one counts")
                    texts[item] = text
            except ValueError as error:
                faults.append(f"line {number}: {error}")
    return texts, faults


def _parse_line(line: bytes) -> tuple[str, str]:
    """Parse one line to its item and completion. Raises ``ValueError`` with what is wrong."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON ({error}): {_shorten(line.decode(errors='replace'))}") from error
    match row:
        case {"item_id": str() | int() as item, "completion": str(text)}:
            return str(item), text
    raise ValueError(f'expected an object with the texts "item_id" and "completion", got {_shorten(json.dumps(row))}')


def _shorten(text: str) -> str:
    return ascii(text[:60].strip() + "…" * (len(text) > 60))
