"""TensorBoard, trackio and Weights & Biases (W&B) behind three methods. Each is an extra, imported when asked for (``track``).

They write into the run directory. Where a library has an environment variable for what is chosen here, the user's counts. W&B adds what
it knows of every run (machine, its load, packages, git commit), which its own settings switch off.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from populora.core.errors import ConfigError
from populora.core.files import json_bytes
from populora.core.installed import versions
from populora.core.invocation import install_extra

PROJECT = "populora"
UPLOAD_SECONDS = 300.0
"""How long the end of a run waits for W&B to send what the network has not taken yet."""


@dataclass(frozen=True)
class Tracked:
    """What a tracker is told of a run: where it is, its lasting id (12 hex digits) and name, its resolved settings."""

    folder: Path
    id: str
    name: str
    settings: dict[str, Any]


class Tracker(Protocol):
    """What shows a run. All three may raise whatever their library raises."""

    def open(self, run: Tracked, last: int) -> int:
        """Begin, or go on with, the run's tracker run, which was given the steps up to ``last`` (0: none); those that it really holds."""
        ...

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Take the metrics and timings of a step, by their names in the files. Steps come once and in order."""
        ...

    def close(self) -> None:
        """Hand everything on; nothing comes after it."""
        ...


class TensorBoard:
    """Event files in ``tensorboard/``; names become tags as they are."""

    def open(self, run: Tracked, last: int) -> int:
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
    """A database in ``trackio/``, or where ``TRACKIO_DIR`` says. The machine's load is not logged: the metrics are the run's."""

    def open(self, run: Tracked, last: int) -> int:
        trackio, name = _trackio(run.folder / "trackio"), f"{run.name}-{run.id}"
        self._run = trackio.init(
            PROJECT, name, config=run.settings, resume="allow", embed=False, auto_log_gpu=False, auto_log_cpu=False
        )  # fmt: skip
        if trackio.utils.get_storage_mode() != "sqlite" or os.environ.get("TRACKIO_SPACE_ID") or os.environ.get("TRACKIO_SERVER_URL"):
            return last  # what it holds is elsewhere, or not yet in its database
        # It writes a moment after `log`, in a thread: a kill may have cost it steps.
        return import_module("trackio.sqlite_storage").SQLiteStorage.get_max_step_for_run(PROJECT, name) or 0

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        import_module("trackio").finish()


def _trackio(home: Path) -> Any:
    """The module, which reads once, when it is loaded, where it shall write. Raises ``RuntimeError`` where another run has loaded it."""
    given = os.environ.get("TRACKIO_DIR")
    wanted = Path(given or home.absolute())
    os.environ["TRACKIO_DIR"] = str(wanted)
    try:
        trackio = import_module("trackio")
    finally:
        if not given:
            del os.environ["TRACKIO_DIR"]
    if wanted != trackio.TRACKIO_DIR:
        raise RuntimeError(f"trackio has one folder a process, and it is '{trackio.TRACKIO_DIR}': expected '{wanted}'")
    return trackio


class Wandb:
    """A run of W&B with its files in ``wandb/``, those of each part of the run in a folder; online, offline or disabled, as ``WANDB_MODE``
    says. Offline it may lack what it was given in the second before a kill."""

    def open(self, run: Tracked, last: int) -> int:
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
        return max(0, min(last, self._run.starting_step - 1)) if self._run.resumed else last  # what the server has; offline nobody knows

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step, commit=True)

    def close(self) -> None:
        self._run.finish()


TRACKERS: dict[str, Callable[[], Tracker]] = {"tensorboard": TensorBoard, "trackio": Trackio, "wandb": Wandb}
"""By their names in ``track``, which are also those of the libraries and of the extras."""


def check_trackers(track: Sequence[str]) -> None:
    """Raise `ConfigError` before a run for a library that is not installed, and for W&B without an account to write to."""
    for name in track:
        if versions((name,))[name] == "not installed":
            raise ConfigError(f"track has '{name}', which is not installed. `{install_extra(name)}` installs it.")
    if "wandb" in track:
        wandb = import_module("wandb")
        if wandb.setup().settings.mode == "online" and not wandb.login(prompt=False, verify=False):
            raise ConfigError("track has 'wandb', which knows no account here: `wandb login`, or WANDB_MODE=offline for its files alone.")
