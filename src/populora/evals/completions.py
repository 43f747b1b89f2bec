"""Completions on disk, ``generations/<benchmark>/<source>.jsonl``: appended as they come, taken up again where a kill left them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from populora.core.errors import ConfigError, RunDirectoryError
from populora.core.files import disk_errors, write_file
from populora.evals.asking import Asked
from populora.evals.records import Completion, append, line_of

FOLDER = "generations"
Progress = Callable[[str, str, int, int], None]
"""Called with benchmark, source, and how many of its items are done, of how many."""


@dataclass
class Sitting:
    """One source at one benchmark. ``missing`` are the items without a completion when it began, ``done`` the number of the others now."""

    asked: Asked
    source: str
    file: Path
    missing: Sequence[str]
    done: int
    progress: Progress

    def add(self, completion: Completion) -> None:
        """Write a completion. Raises `RunDirectoryError`."""
        append(self.file, completion)
        self.done += 1
        self.report()

    def report(self) -> None:
        """Say how many are done."""
        self.progress(self.asked.benchmark.name, self.source, self.done, len(self.asked.prompts))

    def close(self) -> None:
        """Sort the file by its items, so that its bytes do not depend on which completion came first."""
        place = {item: number for number, item in enumerate(self.asked.prompts)}
        ordered = b"".join(line_of(one) for one in sorted(read_completed(self.file), key=lambda one: place.get(one.item_id, len(place))))
        if self.file.exists() and ordered != self.file.read_bytes():
            write_file(self.file, ordered)


def sittings(asked: Iterable[Asked], sources: Sequence[str], out: Path, progress: Progress) -> list[Sitting]:
    """Every source at every benchmark. A last line that a kill cut short is cut off.

    Raises `RunDirectoryError` for a damaged line, and `ConfigError` for a completion of another prompt than would be asked now.
    """
    found = []
    for one in asked:
        for source in sources:
            file = completions_file(out, one.benchmark.name, source)
            with disk_errors(file.parent, "create"):
                file.parent.mkdir(parents=True, exist_ok=True)
            known = {completion.item_id: completion.prompt for completion in read_completed(file)}
            _check_prompts(file, known, one)
            missing = [item for item in one.prompts if item not in known]
            found.append(Sitting(one, source, file, missing, len(one.prompts) - len(missing), progress))
            found[-1].report()
    return found


def completions_file(out: Path, benchmark: str, source: str) -> Path:
    """Where the completions of one source are."""
    return out / FOLDER / benchmark / f"{source}.jsonl"


def cut(text: str, stop: Iterable[str]) -> str:
    """The text before the first of the stop texts."""
    return text[: min((place for one in stop if (place := text.find(one)) >= 0), default=len(text))]


def _check_prompts(file: Path, known: dict[str, str], asked: Asked) -> None:
    for item, prompt in known.items():
        if prompt != asked.prompts.get(item, prompt):
            raise ConfigError(
                f"'{file}' has a completion of item '{item}' to another prompt (…{prompt[-60:]!r}) than it has now "
                f"(…{asked.prompts[item][-60:]!r}): template, prompt set or data have changed. Use those of then, or another folder."
            )


def read_completed(file: Path) -> list[Completion]:
    """What a file has; none where there is no file. A last line that a kill cut short is cut off. Raises `RunDirectoryError`."""
    if not file.exists():
        return []
    with disk_errors(file):
        data = file.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if whole != data:
            os.truncate(file, len(whole))
    found: dict[str, Completion] = {}
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            one = Completion(**json.loads(line))
        except (ValueError, TypeError) as error:
            raise RunDirectoryError(f"'{file}', line {number}: expected a completion, got {line[:80]!r}. Remove the line.") from error
        if one.item_id in found:
            raise RunDirectoryError(f"'{file}', line {number}: a second completion of item '{one.item_id}'. Remove one of them.")
        found[one.item_id] = one
    return list(found.values())
