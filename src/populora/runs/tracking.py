"""Keeping trackers up to date with the files of a run.

A tracker gets the very lines of ``metrics.jsonl`` and ``timings.jsonl``, and only those of steps that a checkpoint holds: no resume takes
back what it was given. ``tracked.json`` says up to which step that is and under which name, so that a resumed run goes on with the same
tracker run and hands over what a kill, or a failure, kept from it.

A tracker that fails costs no run: that is told on stderr, once, and it is left out from then on.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from populora.core.config import Config
from populora.core.config_file import to_mapping
from populora.core.errors import RunDirectoryError
from populora.core.files import json_bytes, read_json, write_file
from populora.core.invocation import pasteable
from populora.runs.loggers import TRACKERS, Tracked, Tracker
from populora.runs.metrics_log import METRICS, TIMINGS, read_log

TRACKED = "tracked.json"


@contextmanager
def tracking(folder: Path, config: Config) -> Iterator[Callable[[], None]]:
    """Open the trackers of a run. What it gives brings them up to date with the run's files: for after each checkpoint."""
    given = _given(folder) if config.track else {}
    opened: dict[str, Tracker] = {}

    def follow() -> None:
        for name in list(opened):
            with _left_out_if_it_fails(name, opened):
                _hand_over(folder, opened[name], name, given)

    for name in config.track:
        with _left_out_if_it_fails(name, opened):
            opened[name] = TRACKERS[name]()
            run = Tracked(folder, given["id"], given["name"], to_mapping(config))
            given["steps"][name] = opened[name].open(run, given["steps"].get(name, 0))
    try:
        follow()
        yield follow
    finally:
        for name in list(opened):
            with _left_out_if_it_fails(name, opened):
                opened[name].close()


def _given(folder: Path) -> dict[str, Any]:
    """What trackers were given: ``id`` and ``name`` of the run, last of ``steps`` by tracker. The id names one run of the many that a
    seed can have, so it is drawn from no stream."""
    file = folder / TRACKED
    if not file.exists():
        return {"id": uuid.uuid4().hex[:12], "name": folder.absolute().name, "steps": {}}
    try:
        found = read_json(file)
    except RunDirectoryError:
        found = None
    if isinstance(found, dict) and {"id", "name", "steps"} <= found.keys() and isinstance(found["steps"], dict):
        return found
    raise RunDirectoryError(f"'{file}' is damaged: restore it from a backup, or remove it, and the trackers begin new runs with all steps")


def _hand_over(folder: Path, tracker: Tracker, name: str, given: dict[str, Any]) -> None:
    last = given["steps"][name]
    logs = [read_log(folder, log, last) for log in (METRICS, TIMINGS)]
    if [line["step"] for line in logs[0]] != [line["step"] for line in logs[1]]:
        raise RunDirectoryError(f"'{folder / TIMINGS}' does not have the steps of {METRICS} after step {last}: restore it from a backup")
    for metrics, timing in zip(*logs, strict=True):
        values = {key: value for key, value in {**metrics, **timing}.items() if key != "step"}
        tracker.log(int(metrics["step"]), values)
        given["steps"][name] = int(metrics["step"])
    write_file(folder / TRACKED, json_bytes(given))


@contextmanager
def _left_out_if_it_fails(name: str, opened: dict[str, Tracker]) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever a library raises, a run of days must not end by it
        opened.pop(name, None)
        sys.stderr.write(
            f"populora: {name} failed and is left out from now on ({type(error).__name__}: {error}). The run goes on and its files are "
            f"complete; the next {pasteable('`populora resume`')} gives {name} what it lacks.\n"
        )
