"""Adapters in PEFT folders for the commands that breed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from populora.adapters.adapter import Adapter
from populora.adapters.peft_format import save_adapter


@pytest.fixture
def make_folder(tmp_path: Path) -> Callable[..., Path]:
    """``make_folder(name, seed, base="some/base", layers=2, rank=4, width=8)``: a folder below the test's own."""

    def make(name: str, seed: int, base: str = "some/base", layers: int = 2, rank: int = 4, width: int = 8) -> Path:
        generator = torch.Generator().manual_seed(seed)
        modules = {
            f"model.layers.{layer}.self_attn.{target}": (
                torch.randn(rank, width, generator=generator), torch.randn(6, rank, generator=generator)
            )
            for layer in range(layers)
            for target in ("q_proj", "v_proj")
        }  # fmt: skip
        save_adapter(Adapter(modules, rank, 2.0 * rank), tmp_path / name, base, ("q_proj", "v_proj"))
        return tmp_path / name

    return make
