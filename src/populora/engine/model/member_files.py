"""Members as files: an adapter as a PEFT folder ``NAME``, and its optimiser state as ``NAME.safetensors``.

Each member has files of its own, so that whoever holds it can write and read them, in any number of processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors.torch import load_file, save

from populora.adapters.peft_format import WEIGHTS_FILE, load_adapter, peft_files
from populora.adapters.peft_settings import CONFIG_FILE
from populora.core.files import check_digest, digest, write_durably

if TYPE_CHECKING:
    from populora.engine.model.bank import LoraBank

OPTIMISER = ("first_moment", "second_moment", "steps")
"""What a slot's state has beyond its adapter."""


def write_adapters(bank: LoraBank, folder: Path, slots: Mapping[str, int], base: str, targets: Sequence[str]) -> dict[str, str]:
    """See `populora.engine.bank.Bank.write_adapters`. Raises `RunDirectoryError` when the disk refuses."""
    digests: dict[str, str] = {}
    for name, slot in slots.items():
        for file, data in peft_files(bank.adapter(slot), base, targets).items():
            write_durably(folder / name / file, data)
            digests[f"{name}/{file}"] = digest(data)
    return digests


def write_optimiser(bank: LoraBank, folder: Path, slots: Mapping[str, int]) -> dict[str, str]:
    """See `populora.engine.bank.Bank.write_optimiser`. Raises `RunDirectoryError` when the disk refuses."""
    digests: dict[str, str] = {}
    for name, slot in slots.items():
        data = save({part: getattr(bank, part)[slot : slot + 1].cpu() for part in OPTIMISER})
        write_durably(folder / f"{name}.safetensors", data)
        digests[f"{name}.safetensors"] = digest(data)
    return digests


def read(bank: LoraBank, adapters: Path, optimiser: Path, slots: Mapping[str, int], digests: Mapping[Path, str]) -> None:
    """See `populora.engine.bank.Bank.read`."""
    for name, slot in slots.items():
        state = optimiser / f"{name}.safetensors"
        for path in (*(adapters / name / file for file in (CONFIG_FILE, WEIGHTS_FILE)), state):
            check_digest(path, digests[path])
        bank.load(slot, load_adapter(adapters / name))
        bank.restore({**bank.state([slot]), **load_file(state)}, [slot])
