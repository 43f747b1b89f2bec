"""The base that members of runs are evaluated on: it is loaded once and its fingerprint compared with those of the runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from populora.core.config import BaseConfig
from populora.core.errors import ConfigError
from populora.core.files import read_json
from populora.engine.model.loading import fingerprint, load_base
from populora.runs.directory import FACTS, read_config


@dataclass(frozen=True)
class Examined:
    """A base that was loaded: SHA-256 of its weights."""

    sha256: str


NOTHING = Examined("")
"""Where nothing is sampled, no base has to be loaded."""


def examine(base: BaseConfig, runs: Iterable[Path]) -> Examined:
    """Load the base, on the CPU, in its precision and in those of the runs.

    Raises `ConfigError` where a run was trained on other weights, and `BaseModelError` for a base that cannot be loaded.
    """
    found: dict[str, str] = {}
    for run in runs:
        config = read_config(run)
        of_run = replace(base, dtype=config.base.dtype)
        found[of_run.dtype] = _loaded(of_run)
        trained = read_json(run / FACTS).get("base_sha256")
        if found[of_run.dtype] != trained:
            raise ConfigError(
                f"'{base.path}' is not the base that '{run}' was trained on: expected weights of SHA-256 {trained} in {of_run.dtype}, got "
                f"{found[of_run.dtype]}. Restore it, or say with --base where the run's base is."
            )
    return Examined(found.get(base.dtype) or _loaded(base))


def _loaded(base: BaseConfig) -> str:
    """Load the base and return its fingerprint."""
    return fingerprint(load_base(replace(base, device="cpu"))[0])
