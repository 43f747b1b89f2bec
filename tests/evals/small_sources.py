"""Adapters that were trained by nobody, and runs of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import torch

from populora.adapters.adapter import Adapter
from populora.adapters.peft_format import save_adapter
from populora.core.config import BaseConfig, Config
from populora.engine.model.bank import LoraBank
from populora.engine.model.loading import fingerprint, load_base
from populora.engine.model.model import AdaptedModel
from populora.engine.model.shapes import base_shapes
from populora.runs.checkpoint import Checkpoint, save_checkpoint
from populora.runs.directory import new_run
from populora.training.population import initial_population

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")


def make_folder(folder: Path, seed: int, base: str = "tiny", rank: int = 4, targets: tuple[str, ...] = ATTENTION) -> Path:
    """A PEFT folder whose delta changes what the base says. ``base`` is the one whose shapes it has and that it names."""
    save_adapter(made(seed, base, rank, targets), folder, base, targets)
    return folder


def made(seed: int, base: str = "tiny", rank: int = 4, targets: tuple[str, ...] = ATTENTION) -> Adapter:
    """The adapter in such a folder."""
    draw = torch.Generator().manual_seed(seed)
    modules = {
        module: (torch.randn(rank, inner, generator=draw) / inner**0.5, 0.1 * torch.randn(outer, rank, generator=draw))
        for module, (inner, outer) in base_shapes(BaseConfig(path=base)).adapted(targets).items()
    }
    return Adapter(modules, rank, 2.0 * rank)


@cache
def base_facts(path: str = "tiny", dtype: str = "float32") -> tuple[dict[str, str], Any]:
    """What ``run.json`` says of a base, and the layout of a bank."""
    model, _ = load_base(BaseConfig(path=path, dtype=dtype))
    facts = {"base_sha256": fingerprint(model)}
    return facts, AdaptedModel(model, ATTENTION, 1, 1, 1.0).bank.layout


@contextmanager
def running(folder: Path, config: Config, step: int) -> Iterator[Path]:
    """A run after ``step``, which goes on while the block runs: its lock is held."""
    with new_run(folder, config, base_facts(config.base.path, config.base.dtype)[0]):
        advance(folder, config, step)
        yield folder


def advance(folder: Path, config: Config, step: int) -> None:
    """Let a run reach ``step``: other adapters, and their checkpoint."""
    members, base = initial_population(config).members, config.base.path
    bank = LoraBank(base_facts(base, config.base.dtype)[1], len(members), config.lora.rank, config.lora.alpha)
    for place, member in enumerate(members):
        bank.load(member.slot, made(100 * step + place, base))
        save_adapter(bank.adapter(member.slot), folder / "adapters" / member.id, base, config.lora.targets)
    tensors = {f"bank.{name}": tensor for name, tensor in bank.state().items()}
    save_checkpoint(folder, Checkpoint(step, tensors, {"members": [asdict(member) for member in members]}), config.keep_checkpoints)
