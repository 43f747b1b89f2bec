"""The append-only files of a run: records, ``metrics.jsonl`` and ``timings.jsonl``, and their truncation at a resume.

Order of writing in a step: records, timings, metrics, and only then the checkpoint. A kill in between leaves lines and
folders of a step that no checkpoint knows; `truncate_logs` removes them, so the resumed run writes the same bytes as an
undisturbed one. ``metrics.jsonl`` holds no time: equal seeds give equal files. Undefined and non-finite metrics are absent.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from populora.core.config import Config
from populora.core.errors import RunDirectoryError
from populora.core.files import append_line, disk_errors, remove_folder, remove_parts, step_folder, write_file
from populora.runs.directory import CONFIG, RUNS
from populora.runs.metrics import step_metrics, step_timing
from populora.runs.step_record import StepRecord
from populora.runs.tables import FOLDER, WriteParents, recorded_steps, write_records

METRICS, TIMINGS = "metrics.jsonl", "timings.jsonl"


def write_step(folder: Path, record: StepRecord, write_parents: WriteParents | None = None) -> dict[str, float]:
    """Write everything about a finished step except its checkpoint; return the step's metrics. Raises `RunDirectoryError`."""
    metrics = step_metrics(record, write_records(folder, record, write_parents))
    append_line(folder / TIMINGS, _line(record.step, step_timing(record)))
    append_line(folder / METRICS, _line(record.step, metrics))
    return metrics


def read_log(folder: Path, name: str = METRICS, after: int = 0) -> list[dict[str, float]]:
    """Read the lines of a log, of all steps or of those ``after`` one, without a line that a kill cut short. Raises `RunDirectoryError`."""
    path = folder / name
    lines = _lines(path)[after:]
    try:
        values = [json.loads(line.decode()) for line in lines]
    except ValueError as error:
        raise RunDirectoryError(f"'{path}' has a damaged line: {error}. Restore it from a backup.") from error
    for step, line in enumerate(values, after + 1):
        if not isinstance(line, dict) or line.get("step") != step:
            raise RunDirectoryError(f"'{path}' has a damaged line: expected step {step} in line {step}. Restore it from a backup.")
    return values


def latest_run(root: Path = RUNS) -> Path:
    """Return the run under ``root`` that began or finished a step last. Raises `RunDirectoryError` if there is none."""
    runs = [file.parent for file in root.glob(f"*/{CONFIG}") if b'"population"' in file.read_bytes()]  # others are of `populora retention`
    if not runs:
        raise RunDirectoryError(f"expected a run directory, and '{root}/' has none: name one, or start a run with `populora train`")
    return max(runs, key=lambda run: max(file.stat().st_mtime_ns for name in (CONFIG, METRICS) if (file := run / name).exists()))


def truncate_logs(folder: Path, step: int, config: Config) -> None:
    """Remove what was logged after ``step``, that of the checkpoint that a resume starts from (0: none).

    Raises `RunDirectoryError` if the logs lack one of the steps up to it, or reach further beyond it than a kill and the removal of damaged
    checkpoints explain: the newest ones, behind which is one of every ``keep_checkpoints_every``-th step.
    """
    logged = len(read_log(folder))
    if logged < step:
        raise RunDirectoryError(
            f"'{folder / METRICS}' does not belong to the checkpoint of step {step}: expected the steps 1 to {step}, "
            f"got {logged} lines. Restore it from a backup, or start a new run."
        )
    lost, expected = logged - step, config.checkpoint_every * config.keep_checkpoints + config.keep_checkpoints_every
    if lost > expected:
        raise RunDirectoryError(
            f"'{folder / METRICS}' reaches {lost} steps beyond the newest checkpoint (step {step}), expected at most {expected}: "
            "a resume would throw them away. Restore the missing checkpoints, or remove the lines of these steps to go on without them."
        )
    for name in (METRICS, TIMINGS):
        write_file(folder / name, b"".join(_lines(folder / name)[:step]))
    remove_parts(folder)
    if (folder / FOLDER).exists():
        remove_parts(folder / FOLDER)
        for recorded in recorded_steps(folder):
            if recorded > step:
                remove_folder(step_folder(folder / FOLDER, recorded))


def _line(step: int, values: Mapping[str, float]) -> str:
    return json.dumps({"step": step, **dict(sorted(values.items()))}, allow_nan=False)


def _lines(path: Path) -> list[bytes]:
    if not path.exists():
        return []
    with disk_errors(path, "read"):
        lines = path.read_bytes().splitlines(keepends=True)
    return lines if not lines or lines[-1].endswith(b"\n") else lines[:-1]
