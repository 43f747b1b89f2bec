"""Adapters that were trained by nobody, and runs of them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from pathlib import Path

import torch
from written_members import adapters_only

from populora.adapters.adapter import Adapter
from populora.adapters.peft_format import save_adapter
from populora.core.config import BaseConfig, Config, LoraConfig, PopulationConfig
from populora.engine.model.base_shape import read_base_shape
from populora.engine.model.loading import base_fingerprint, base_name, load_base
from populora.runs.checkpoint import Checkpoint, save_checkpoint
from populora.runs.directory import new_run
from populora.training.population import initial_population

CONFIG = Config(steps=4, checkpoint_every=2, lora=LoraConfig(rank=4, alpha=8.0), population=PopulationConfig(teachers=1, students=2))
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")


def make_folder(folder: Path, seed: int, base: str = "tiny", rank: int = 4, targets: tuple[str, ...] = ATTENTION) -> Path:
    """A PEFT folder whose delta changes what the base says. ``base`` is the one whose shapes it has and that it names."""
    save_adapter(made(seed, base, rank, targets), folder, base, targets)
    return folder


def change_settings(folder: Path, **values: object) -> None:
    """Change values of ``adapter_config.json``."""
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def made(seed: int, base: str = "tiny", rank: int = 4, targets: tuple[str, ...] = ATTENTION) -> Adapter:
    """The adapter in such a folder."""
    draw = torch.Generator().manual_seed(seed)
    modules = {
        module: (torch.randn(rank, inner, generator=draw) / inner**0.5, 0.1 * torch.randn(outer, rank, generator=draw))
        for module, (inner, outer) in read_base_shape(BaseConfig(path=base)).adapted(targets).items()
    }
    return Adapter(modules, rank, 2.0 * rank)


@cache
def base_facts(path: str = "tiny", dtype: str = "float32") -> dict[str, str]:
    """What ``run.json`` says of a base."""
    return {"base_sha256": base_fingerprint(load_base(BaseConfig(path=path, dtype=dtype))[0])}


@contextmanager
def running(folder: Path, config: Config, step: int) -> Iterator[Path]:
    """A run after ``step``, which goes on while the block runs: its lock is held."""
    with new_run(folder, config, base_facts(config.base.path, config.base.dtype)):
        advance(folder, config, step)
        yield folder


def advance(folder: Path, config: Config, step: int) -> None:
    """Let a run reach ``step``: other adapters, and their checkpoint."""
    members, base = initial_population(config).members, config.base.path
    adapters = {member.id: made(100 * step + number, base) for number, member in enumerate(members)}
    checkpoint = Checkpoint(step, {}, {"members": [asdict(member) for member in members]})
    save_checkpoint(folder, checkpoint, config.keep_checkpoints, adapters_only(adapters, base_name(config.base), ATTENTION))


def completions(folder: Path, benchmark: str, model: str) -> list[dict]:
    """The completions in an evaluation's folder, none without a file."""
    file = folder / "generations" / benchmark / f"{model}.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
