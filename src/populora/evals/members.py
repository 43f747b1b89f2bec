"""The members of a run as they were at one step: taken out of its newest checkpoint, which is one move on the disk.

The folders in ``RUN/adapters`` are written one by one while a run goes on, and a kill may leave those of two steps. What comes out of the
checkpoint has their bytes. The base is loaded as for a resume: it says how the checkpoint's tensors lie, and its fingerprint is compared
with that of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from populora.adapters.adapter import Adapter
from populora.core.config import BaseConfig
from populora.core.errors import ConfigError, RunDirectoryError
from populora.core.files import read_json
from populora.engine.model.bank import STATE, LoraBank, Shape
from populora.engine.model.loading import fingerprint, load_base
from populora.engine.model.model import AdaptedModel
from populora.runs.checkpoint import Checkpoint, checkpoint_steps, load_checkpoint
from populora.runs.directory import FACTS, read_config

Layout = Sequence[Mapping[str, Shape]]
"""Modules by the input that they read, as `populora.engine.model.bank.LoraBank` has them."""


@dataclass(frozen=True)
class Examined:
    """A base that was loaded: SHA-256 of its weights, and how the adapters of each run lie in its checkpoints."""

    sha256: str
    layouts: Mapping[Path, Layout]


NOTHING = Examined("", {})
"""Where nothing is sampled, no base has to be loaded."""


def examine(base: BaseConfig, runs: Iterable[Path]) -> Examined:
    """Load the base, on the CPU, in its precision and in those of the runs.

    Raises `ConfigError` where a run was trained on other weights, and `BaseModelError` for a base that cannot be loaded.
    """
    found: dict[str, str] = {}
    layouts: dict[Path, Layout] = {}
    for run in runs:
        config = read_config(run)
        of_run = replace(base, dtype=config.base.dtype)
        found[of_run.dtype], layouts[run] = _loaded(of_run, config.lora.targets)
        trained = read_json(run / FACTS).get("base_sha256")
        if found[of_run.dtype] != trained:
            raise ConfigError(
                f"'{base.path}' is not the base that '{run}' was trained on: expected weights of SHA-256 {trained} in {of_run.dtype}, got "
                f"{found[of_run.dtype]}. Restore it, or say with --base where the run's base is."
            )
    return Examined(found.get(base.dtype) or _loaded(base)[0], layouts)


def newest_checkpoint(run: Path) -> Checkpoint:
    """The newest checkpoint of a run that may be going on. Raises `RunDirectoryError` where there is none, or a damaged one."""
    while True:
        steps = checkpoint_steps(run)
        try:
            found = load_checkpoint(run)
        except RunDirectoryError:
            if steps == checkpoint_steps(run):
                raise
        else:
            if found:
                return found
            raise RunDirectoryError(f"'{run}' has no checkpoint: wait until it has begun its first step")
        # else it made way for the next while it was read


def members_at(checkpoint: Checkpoint, run: Path, layout: Layout, names: Sequence[str]) -> dict[str, Adapter]:
    """Members by name. Raises `AdapterError` for a checkpoint of other adapters than the run's settings say."""
    lora = read_config(run).lora
    slots = {member["id"]: member["slot"] for member in checkpoint.state["members"]}
    bank, found = LoraBank(layout, 1, lora.rank, lora.alpha), {}
    for name in names:
        bank.restore({part: checkpoint.tensors[f"bank.{part}"][[slots[name]]] for part in STATE})
        found[name] = bank.adapter(0)
    return found


def _loaded(base: BaseConfig, targets: Sequence[str] = ()) -> tuple[str, Layout]:
    """The fingerprint, and the layout of adapters of these targets."""
    model, _ = load_base(replace(base, device="cpu"))
    sha256 = fingerprint(model)
    return sha256, AdaptedModel(model, targets, 1, 1, 1.0).bank.layout if targets else ()
