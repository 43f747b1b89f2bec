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
    """Return ``make_folder(name, seed, base="some/base", layers=2)``, which writes a folder below the test's own."""

    def make(name: str, seed: int, base: str = "some/base", layers: int = 2) -> Path:
        generator = torch.Generator().manual_seed(seed)
        names = [f"model.layers.{layer}.self_attn.{target}" for layer in range(layers) for target in ("q_proj", "v_proj")]
        modules = {module: (torch.randn(4, 8, generator=generator), torch.randn(6, 4, generator=generator)) for module in names}
        save_adapter(Adapter(modules, 4, 8.0), tmp_path / name, base, ("q_proj", "v_proj"))
        return tmp_path / name

    return make
