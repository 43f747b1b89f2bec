"""Refused commands, and adapters in PEFT folders for the commands that breed."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from populora.adapters.adapter import Adapter
from populora.adapters.peft_format import save_adapter
from populora.cli.main import main


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


@pytest.fixture
def assert_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[list[str], str], None]:
    """Return ``assert_refused(words, message)``: the command ends with 2, prints one error with the message, and writes nothing."""

    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() if path.is_file() else b"" for path in tmp_path.rglob("*")}

    def check(words: list[str], message: str) -> None:
        before = files()
        capsys.readouterr()
        assert main(words) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.startswith("populora: error: ") and message in err and len(err.splitlines()) == 1
        assert files() == before

    return check
