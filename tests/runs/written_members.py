"""Members in checkpoints, written without a bank."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from populora.adapters.adapter import Adapter
from populora.adapters.peft_format import peft_files
from populora.core.files import digest, write_durably
from populora.runs.checkpoint import WriteMembers


def adapters_only(adapters: Mapping[str, Adapter], base: str, targets: Sequence[str]) -> WriteMembers:
    """What `save_checkpoint` takes: it writes a PEFT folder for each adapter."""

    def write(folder: Path) -> dict[str, str]:
        files = {
            f"adapters/{member}/{name}": data
            for member, adapter in adapters.items()
            for name, data in peft_files(adapter, base, targets).items()
        }
        for name, data in files.items():
            write_durably(folder / name, data)
        return {name: digest(data) for name, data in files.items()}

    return write
