"""The parents of a step's children at birth: ``steps/step_00010/parents.safetensors``.

With them and the record in ``children.parquet`` every child of a run can be bred again (`populora replay RUN`). They are part of
the step's folder, so a resume that removes the step removes them, and equal runs write equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from populora.core.errors import RunDirectoryError

if TYPE_CHECKING:
    from populora.adapters.adapter import Adapter

PARENTS = "parents.safetensors"


def parents_bytes(parents: Mapping[str, Adapter]) -> bytes:
    """Return one safetensors file of all parents by name, tensors such as ``T1#0/model.layers.0.self_attn.q_proj/A``."""
    from safetensors.torch import save  # loads torch, which readers of tables do not need

    tensors = {
        f"{name}/{module}/{letter}": tensor
        for name, adapter in parents.items()
        for module, pair in adapter.modules.items()
        for letter, tensor in zip("AB", pair, strict=True)
    }
    scales = {name: (adapter.rank, adapter.alpha) for name, adapter in parents.items()}
    return save(tensors, {"parents": json.dumps(scales)})  # one key: safetensors writes several in no fixed order


def read_parents(step: Path) -> dict[str, Adapter]:
    """Read the parents by name, from the folder of the ``step`` at which their children were born. Raises `RunDirectoryError`."""
    from safetensors import SafetensorError, safe_open

    from populora.adapters.adapter import Adapter

    path = step / PARENTS
    if not path.is_file():
        raise RunDirectoryError(
            f"'{step}' has no {PARENTS}: the run did not keep what its children were bred from. Runs do with evolution.keep_parents = true."
        )
    try:
        with safe_open(path, "pt") as file:
            scales: dict[str, tuple[int, float]] = json.loads(file.metadata()["parents"])
            modules: dict[str, dict[str, dict]] = {name: {} for name in scales}
            for key in sorted(file.keys()):
                name, module, letter = key.split("/")
                modules[name].setdefault(module, {})[letter] = file.get_tensor(key)
        return {
            name: Adapter({module: (pair["A"], pair["B"]) for module, pair in modules[name].items()}, *scale)
            for name, scale in scales.items()
        }
    except (OSError, SafetensorError, ValueError, TypeError, KeyError) as error:
        raise RunDirectoryError(f"cannot read '{path}' ({error}): it is damaged or cut off. Restore it from a backup.") from error
