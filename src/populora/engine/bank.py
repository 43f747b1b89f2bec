"""The interface of a run's adapters. They are a `LoraBank` in one process, and references (`ClusterBank`) in a cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from populora.adapters.adapter import Adapter
from populora.core.types import Lineage


@dataclass(frozen=True)
class Birth:
    """A child to breed into ``slot`` from the adapters in the slots ``parents``, which its record calls ``names``."""

    slot: int
    parents: tuple[int, ...]
    names: tuple[str, ...]
    plan: Lineage
    """Its record, as far as it is known before the birth."""


class Bank(Protocol):
    """The adapters of all members with their optimiser state, one slot each."""

    slots: int

    def initialise(self, seed: int, ranks: Sequence[int] | None = None) -> None:
        """Set B = 0 and the same random A in every slot; clear the optimiser state."""
        ...

    def adapter(self, slot: int) -> Adapter:
        """Copy an adapter to this process's CPU memory."""
        ...

    def load(self, slot: int, adapter: Adapter) -> None:
        """Put an adapter into a slot and clear the slot's optimiser state. Raises `AdapterError` before any change."""
        ...

    def untrained(self, slot: int) -> bool:
        """Tell whether every B of the slot is zero, so that the adapter has no effect."""
        ...

    def basis_cosine(self, slots: Sequence[int]) -> float:
        """Measure how far adapters are written in one basis (`populora.adapters.operators.similarity.basis_cosine`)."""
        ...

    def breed(self, births: Sequence[Birth]) -> list[Lineage]:
        """Breed children into their slots and return their records. All parents are read before any slot changes."""
        ...

    def write_adapters(self, folder: Path, slots: Mapping[str, int], base: str, targets: Sequence[str]) -> dict[str, str]:
        """Write a PEFT folder ``folder/NAME`` for each slot, by name. Returns the files' digests by path from ``folder``."""
        ...

    def write_optimiser(self, folder: Path, slots: Mapping[str, int]) -> dict[str, str]:
        """Write the optimiser state of each slot to ``folder/NAME.safetensors``. Returns the files' digests by path from ``folder``."""
        ...

    def read(self, adapters: Path, optimiser: Path, slots: Mapping[str, int], digests: Mapping[Path, str]) -> None:
        """Read slots from what `write_adapters` and `write_optimiser` wrote into these folders. ``digests`` are those of all files.

        Raises `RunDirectoryError` for a damaged file, `AdapterError` for one of other settings or another base.
        """
        ...
