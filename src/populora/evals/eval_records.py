"""Records of an evaluation: items, completions and verdicts, one JSON object a line so that stopped work can resume; and scores."""

import json
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from populora.core.errors import RunDirectoryError
from populora.core.files import append_line, disk_errors

PRIMARY = "primary"
"""The extraction mode of a benchmark's published score (`Benchmark.primary`): `Grade.correct`."""
ModelRole = Literal["base", "agent", "teacher", "student", "adapter"]


@dataclass(frozen=True)
class EvalModel:
    """A bare base or endpoint, a member of a run at a step, or an adapter outside a run, in a PEFT folder. Its files have its name."""

    name: str
    role: ModelRole
    adapter: Path | None = None
    step: int | None = None


@dataclass(frozen=True)
class Item:
    """One item of a benchmark. ``fields`` are those of its data file."""

    id: str
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Completion:
    """A model's answer to an item. External completions have only ``item_id`` and ``completion``."""

    item_id: str
    completion: str
    prompt: str = ""
    finish_reason: str = ""
    """``stop``, or ``length`` where the limit of tokens cut it."""
    prompt_tokens: int = 0
    tokens: int = 0
    reasoning: str = ""
    """Reasoning that a served model returned apart from its answer. It is not graded."""


@dataclass(frozen=True)
class Grade:
    """A grader's verdict on one completion."""

    item_id: str
    correct: bool
    reason: str = ""
    """Empty if correct; else ``wrong``, ``no_answer``, ``timeout`` and the like."""
    answer: str = ""
    modes: dict[str, bool] = field(default_factory=dict)
    """Correctness in each extraction mode (``strict``, ``lenient``, …); ``correct`` is the benchmark's primary one."""
    retry: str = ""
    """``passed`` or ``failed`` if it failed at first and was graded once more, alone."""
    completion_sha: str = ""
    void: bool = False
    """The item itself is at fault, such as a gold statement that fails. It counts neither as correct nor as wrong."""

    def is_correct(self, mode: str = PRIMARY) -> bool:
        """Tell whether the completion is correct in an extraction mode, or in the primary one if its grader does not have the mode."""
        return self.modes.get(mode, self.correct)


Record = TypeVar("Record", Completion, Grade)


def append(path: Path, record: Completion | Grade) -> None:
    """Append one line. Raises `RunDirectoryError`."""
    append_line(path, _line(record))


def to_lines(records: Iterable[Completion | Grade]) -> bytes:
    """Encode each record as a line of ASCII JSON."""
    return "".join(f"{_line(record)}\n" for record in records).encode("ascii")


def _line(record: Completion | Grade) -> str:
    return json.dumps(asdict(record))


def read_records(file: Path, kind: type[Record], repair: bool = False) -> dict[str, Record]:
    """Read the last line of each item. A line that a kill cut short is left out (removed if ``repair``). Raises `RunDirectoryError`."""
    if not file.exists():
        return {}
    with disk_errors(file, "read"):
        data = file.read_bytes()
        lines = data.split(b"\n")[:-1]
        if repair and not data.endswith(b"\n"):
            os.truncate(file, data.rfind(b"\n") + 1)
    records: dict[str, Record] = {}
    for number, line in enumerate(lines, 1):
        try:
            record = kind(**json.loads(line))
        except (ValueError, TypeError) as error:
            fault = f"expected a {kind.__name__.lower()}, got {line[:60]!r}"
            raise RunDirectoryError(f"'{file}', line {number}: {fault}. Remove the line, or the file to make it again.") from error
        records[record.item_id] = record
    return records


@dataclass(frozen=True)
class Score:
    """One model on one benchmark of ``items``: how many are graded and correct, also by extraction mode. Void ones are in no number."""

    model: str
    benchmark: str
    correct: int
    graded: int
    items: int
    modes: Mapping[str, int]
    void: int = 0
    """Items that are at fault themselves."""

    @property
    def complete(self) -> bool:
        """Tell whether every item has a verdict."""
        return self.graded == self.items

    @property
    def rate(self) -> float:
        """Per cent correct of the graded items. Raises ``ZeroDivisionError`` for none."""
        return 100 * self.correct / self.graded


@dataclass(frozen=True)
class Evaluation:
    """The scores of one evaluation, for every model on every benchmark, graded or not; and why others were ``skipped``."""

    name: str
    models: tuple[EvalModel, ...]
    scores: tuple[Score, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)

    def scores_of(self, model: str) -> dict[str, Score]:
        """Select the scores of a model by benchmark, where anything was graded."""
        return self._graded.get(model, {})

    @cached_property
    def _graded(self) -> dict[str, dict[str, Score]]:
        graded: dict[str, dict[str, Score]] = {}
        for score in self.scores:
            if score.graded:
                graded.setdefault(score.model, {})[score.benchmark] = score
        return graded

    def with_mode(self, mode: str) -> Self:
        """Count in another extraction mode; the primary one replaces it for benchmarks that do not have it."""
        return replace(self, scores=tuple(replace(score, correct=score.modes.get(mode, score.correct)) for score in self.scores))


def score_grades(model: str, benchmark: str, grades: Collection[Grade], items: int) -> Score:
    """Count verdicts on a benchmark of this number of items, void ones included."""
    judged = [grade for grade in grades if not grade.void]
    void, names = len(grades) - len(judged), dict.fromkeys(name for grade in judged for name in grade.modes)
    modes = {name: sum(grade.is_correct(name) for grade in judged) for name in names}
    return Score(model, benchmark, sum(grade.correct for grade in judged), len(judged), items - void, modes, void)


def modes_of(evaluations: Iterable[Evaluation]) -> list[str]:
    """List all reported extraction modes, ``strict`` and ``lenient`` first."""
    names = {name for evaluation in evaluations for score in evaluation.scores for name in score.modes}
    return sorted(names, key=lambda name: (name != "strict", name != "lenient", name))
