"""Loggers to TensorBoard, trackio and Weights & Biases (W&B). Each library is an extra and imported when ``track`` names it.

A logger gets the lines of ``metrics.jsonl`` and ``timings.jsonl``, only of steps that a checkpoint holds, so that a resume repeats none.
``tracked.json`` has the last such step and the run's id, which is random, because it tells runs of equal seeds apart. A resumed run
continues the same logged run. A logger that fails does not stop the run.

The libraries write into the run directory. A library's own environment variables take precedence.
"""

import os
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from populora.core.config import Config
from populora.core.config_file import to_mapping
from populora.core.errors import ConfigError
from populora.core.files import json_bytes, read_json, write_file
from populora.core.installed import MISSING, versions
from populora.core.invocation import install_extra, pasteable
from populora.runs.metrics_log import METRICS, TIMINGS, read_log

PROJECT, TRACKED = "populora", "tracked.json"
UPLOAD_SECONDS = 300.0
"""Seconds that the end of a run waits for W&B's uploads."""


@dataclass(frozen=True)
class LoggedRun:
    """A run as loggers know it. Its id and name stay when it is moved or resumed."""

    folder: Path
    id: str
    name: str
    settings: dict[str, Any]


class Logger(Protocol):
    """A library that logs a run. The methods raise what the library raises."""

    def open(self, run: LoggedRun, last: int) -> int:
        """Begin or continue the logged run, which was sent the steps up to ``last`` (0: none). Return the last step that it has."""
        ...

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Send the metrics and timings of a step, by their names in the files. Steps come once and in order."""

    def close(self) -> None:
        """Send everything that is buffered and end."""


class TensorBoard:
    """Writes event files in ``tensorboard/``; names become tags as they are."""

    def open(self, run: LoggedRun, last: int) -> int:
        writer = import_module("torch.utils.tensorboard").SummaryWriter
        # What was written after `last` comes again, after a kill between the two files.
        self._writer = writer(run.folder / "tensorboard", purge_step=last + 1)
        if not last:
            self._writer.add_text("settings", f"```json\n{json_bytes(run.settings).decode()}```", 0)
        return last

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class Trackio:
    """Writes a database in ``trackio/`` of a process's first run, or where ``TRACKIO_DIR`` says. The machine's load is not logged."""

    def open(self, run: LoggedRun, last: int) -> int:
        os.environ.setdefault("TRACKIO_DIR", str(run.folder.absolute() / "trackio"))  # it is read once, by the import
        trackio, name = import_module("trackio"), f"{run.name}-{run.id}"
        self._run = trackio.init(PROJECT, name, config=run.settings, resume="allow", embed=False, auto_log_gpu=False, auto_log_cpu=False)
        if trackio.utils.get_storage_mode() != "sqlite" or os.environ.get("TRACKIO_SPACE_ID") or os.environ.get("TRACKIO_SERVER_URL"):
            return last  # its rows are remote, or not written yet
        # It writes a moment after `log`, in a thread: a kill may have cost it steps.
        return import_module("trackio.sqlite_storage").SQLiteStorage.get_max_step_for_run(PROJECT, name) or 0

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        import_module("trackio").finish()


class Wandb:
    """Logs to W&B, with a folder in ``wandb/`` for each part of the run. Offline a kill can lose its last second."""

    def open(self, run: LoggedRun, last: int) -> int:
        wandb = import_module("wandb")
        settings = wandb.Settings(
            console="off", quiet=True,  # the terminal is populora's
            finish_timeout=UPLOAD_SECONDS, finish_timeout_raises=True,
            x_transaction_log_flush_interval=1.0,  # seconds until it is in the file; 15 by default
        )  # fmt: skip
        self._run = wandb.init(
            dir=run.folder, id=run.id, project=os.environ.get("WANDB_PROJECT", PROJECT), name=os.environ.get("WANDB_NAME", run.name),
            resume="allow", config=run.settings, settings=settings,
        )  # fmt: skip
        return max(0, min(last, self._run.starting_step - 1)) if self._run.resumed else last  # as the server says; offline it is unknown

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step, commit=True)

    def close(self) -> None:
        self._run.finish()


LOGGERS: dict[str, Callable[[], Logger]] = {"tensorboard": TensorBoard, "trackio": Trackio, "wandb": Wandb}
"""By their names in ``track``, which are also those of the libraries and of the extras."""


def check_loggers(track: Sequence[str]) -> None:
    """Raise `ConfigError` before a run for a library that is not installed, and for W&B without an account to write to."""
    for name in track:
        if versions((name,))[name] == MISSING:
            raise ConfigError(f"track has '{name}', which is not installed. `{install_extra(name)}` installs it.")
    if "wandb" in track:
        wandb = import_module("wandb")
        if wandb.setup().settings.mode == "online" and not wandb.login(prompt=False, verify=False):
            raise ConfigError("track has 'wandb', which knows no account here: `wandb login`, or WANDB_MODE=offline for its files alone.")


@contextmanager
def open_loggers(folder: Path, config: Config) -> Iterator[Callable[[], None]]:
    """Open the loggers of a run and yield a function that sends the steps they lack, to be called after each checkpoint."""
    sent: dict[str, Any] = {"id": uuid.uuid4().hex[:12], "name": folder.absolute().name, "steps": {}}
    if config.track and (folder / TRACKED).exists():
        sent = read_json(folder / TRACKED)
    opened: dict[str, Logger] = {}

    def send() -> None:
        for name in list(opened):
            with _left_out_if_it_fails(name, opened):
                lines = zip(*(read_log(folder, log, sent["steps"][name]) for log in (METRICS, TIMINGS)), strict=True)
                for metrics, timings in lines:
                    step = int(metrics["step"])
                    opened[name].log(step, {key: value for key, value in {**metrics, **timings}.items() if key != "step"})
                    sent["steps"][name] = step
                write_file(folder / TRACKED, json_bytes(sent))

    for name in config.track:
        with _left_out_if_it_fails(name, opened):
            opened[name] = LOGGERS[name]()
            run = LoggedRun(folder, sent["id"], sent["name"], to_mapping(config))
            sent["steps"][name] = opened[name].open(run, sent["steps"].get(name, 0))
    try:
        send()
        yield send
    finally:
        for name in list(opened):
            with _left_out_if_it_fails(name, opened):
                opened[name].close()


@contextmanager
def _left_out_if_it_fails(name: str, opened: dict[str, Logger]) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever a library raises must not end a run of days
        opened.pop(name, None)
        with suppress(OSError):  # whoever read the errors is gone
            sys.stderr.write(
                f"populora: {name} failed and is left out from now on ({type(error).__name__}: {error}). The run goes on and its files "
                f"are complete; the next {pasteable('`populora resume`')} sends {name} the steps it lacks.\n"
            )
