"""Adapters that were trained by nobody, and runs of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from populora.config import BaseConfig, Config
from populora.engine.shapes import base_shapes
from populora.lora.adapter import Adapter
from populora.lora.peft_format import save_adapter
from populora.population import initial_population
from populora.runlog.directory import new_run

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")


def make_folder(folder: Path, seed: int, base: str = "tiny", rank: int = 4, targets: tuple[str, ...] = ATTENTION) -> Path:
    """A PEFT folder whose delta changes what the base says. ``base`` is the one whose shapes it has and that it names."""
    draw = torch.Generator().manual_seed(seed)
    modules = {
        module: (torch.randn(rank, inner, generator=draw) / inner**0.5, 0.1 * torch.randn(outer, rank, generator=draw))
        for module, (inner, outer) in base_shapes(BaseConfig(path=base)).adapted(targets).items()
    }
    save_adapter(Adapter(modules, rank, 2.0 * rank), folder, base, targets)
    return folder


@contextmanager
def running(folder: Path, config: Config, step: int) -> Iterator[Path]:
    """A run after ``step``, which goes on while the block runs: its lock is held."""
    with new_run(folder, config, {}):
        advance(folder, config, step)
        yield folder


def advance(folder: Path, config: Config, step: int) -> None:
    """Let a run reach ``step``: other adapters, its log, and an empty checkpoint."""
    for place, member in enumerate(initial_population(config).members):
        make_folder(folder / "adapters" / member.id, 100 * step + place)
    logged(folder, *range(1, step + 1))
    checkpointed(folder, step)


def logged(run: Path, *steps: int) -> None:
    """Write the log of a run that got so far."""
    (run / "metrics.jsonl").write_text("".join(json.dumps({"step": step}) + "\n" for step in steps))


def checkpointed(run: Path, step: int) -> None:
    """Make it look as if there were a checkpoint."""
    (run / "checkpoints" / f"step_{step:05d}").mkdir(parents=True)
