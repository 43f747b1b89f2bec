"""Read and write adapters as plain PEFT LoRA folders: ``adapter_config.json`` and ``adapter_model.safetensors``.

PEFT is not imported; it and vLLM load the folders. `populora.adapters.peft_settings` refuses what is not plain LoRA.
Pickled weights (``.bin``) are not read, because they can run code.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from populora.adapters.adapter import Adapter, all_finite
from populora.adapters.peft_settings import CONFIG_FILE, Settings, check_plain, module_order, plain_settings, rank_of, read_settings
from populora.core.errors import AdapterError, RunDirectoryError
from populora.core.files import write_folder

WEIGHTS_FILE = "adapter_model.safetensors"
METADATA = {"format": "pt"}

_KEY = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<letter>[AB])\.weight")


class Folder(NamedTuple):
    """The contents of a PEFT LoRA folder."""

    adapter: Adapter
    """Factors in fp32. Ranks may differ by module; scale settings beyond rank and alpha are only in ``settings``."""
    settings: Settings
    text: bytes
    """The settings' file, which a child copies from its first parent."""


def save_adapter(adapter: Adapter, folder: Path, base_name: str, targets: Sequence[str]) -> None:
    """Write ``adapter`` as a new PEFT folder for the base model ``base_name``; ``targets`` are its module names such as ``q_proj``.

    Raises `AdapterError` if the targets do not describe the modules, and as `save_folder` does.
    """
    save_folder(adapter, folder, {CONFIG_FILE: _settings_bytes(adapter, base_name, targets)})


def save_folder(adapter: Adapter, folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a new PEFT folder of the adapter's weights and these files, its settings among them, in one indivisible move.

    Raises `AdapterError` if ``folder`` exists and is not empty, or if it cannot be written.
    """
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise AdapterError(f"cannot write the adapter '{folder}': expected a new or an empty folder. Choose another one.")
    try:
        write_folder(folder, {**files, WEIGHTS_FILE: weights_bytes(adapter)})
    except RunDirectoryError as error:
        raise AdapterError(f"cannot write the adapter: {error}") from error


def load_adapter(folder: Path) -> Adapter:
    """Read a PEFT LoRA folder that can be a member of a run. Raises `AdapterError` if it has more settings than one rank and alpha."""
    read = read_folder(folder)
    check_plain(folder, read.settings)
    return read.adapter


def read_folder(folder: Path) -> Folder:
    """Read a PEFT LoRA folder; weights become fp32. Raises `AdapterError` with the reason if it is not plain, complete and finite.

    Modules come back by layer, then as ``target_modules`` lists them: the order of the model, unless a target matches two of a layer.
    """
    settings = read_settings(folder)
    pairs: dict[str, dict[str, torch.Tensor]] = {}
    for key, tensor in _read_weights(folder).items():
        match = _KEY.fullmatch(key)
        if match is None:
            raise AdapterError(f"'{folder}' holds the tensor '{key}': expected only LoRA factors of linear modules. {_cure(key)}")
        pairs.setdefault(match["module"], {})[match["letter"]] = _checked(folder, key, tensor)
    if not pairs:
        raise AdapterError(f"'{folder}' holds no LoRA factors: save it again from a model with adapted modules")
    for name, pair in pairs.items():
        if len(pair) != 2:
            raise AdapterError(f"'{folder}': module '{name}' has lora_{''.join(pair)} only, expected a pair of lora_A and lora_B")
        rank = rank_of(name, settings)
        if pair["A"].shape[0] != rank or pair["B"].shape[1] != rank:
            shapes = f"A {tuple(pair['A'].shape)} and B {tuple(pair['B'].shape)}"
            raise AdapterError(f"'{folder}': module '{name}' has {shapes}, expected A [r, in] and B [out, r] of rank r = {rank}")
    order = sorted(pairs, key=lambda name: module_order(name, settings.get("target_modules")))
    modules = {name: (pairs[name]["A"], pairs[name]["B"]) for name in order}
    smallest = min(a.shape[0] for a, _ in modules.values())
    return Folder(Adapter(modules, smallest, float(settings["lora_alpha"])), settings, (folder / CONFIG_FILE).read_bytes())


def peft_files(adapter: Adapter, base_name: str, targets: Sequence[str]) -> dict[str, bytes]:
    """Return the files of the adapter's PEFT folder by name; equal adapters give equal bytes. Arguments as in `save_adapter`."""
    return {CONFIG_FILE: _settings_bytes(adapter, base_name, targets), WEIGHTS_FILE: weights_bytes(adapter)}


def weights_bytes(adapter: Adapter) -> bytes:
    """Return the content of the weights file; equal adapters give equal bytes."""
    return save(_tensors(adapter), METADATA)


def _settings_bytes(adapter: Adapter, base_name: str, targets: Sequence[str]) -> bytes:
    return json.dumps(plain_settings(adapter, base_name, targets), indent=2).encode() + b"\n"


def _tensors(adapter: Adapter) -> dict[str, torch.Tensor]:
    return {
        f"base_model.model.{name}.lora_{letter}.weight": tensor.detach().contiguous()
        for name, pair in adapter.modules.items()
        for letter, tensor in zip("AB", pair, strict=True)
    }


def _read_weights(folder: Path) -> dict[str, torch.Tensor]:
    path = folder / WEIGHTS_FILE
    if not path.is_file():
        other = " Pickled .bin weights are not read: save them as safetensors." if (folder / "adapter_model.bin").exists() else ""
        raise AdapterError(f"'{folder}' has no {WEIGHTS_FILE}.{other}")
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise AdapterError(f"'{path}' cannot be read ({error}): the file is damaged or cut off; copy or save it again") from error


def _cure(key: str) -> str:
    if ".lora_embedding_" in key:
        return "It adapts an embedding: train it with linear modules as targets."
    if key.endswith(".weight") and ".lora_" not in key:
        return (
            "PEFT adds embeddings when they are targets or were resized: train it without, or save it again with "
            "save_embedding_layers=False if they are the base's own."
        )
    return "Train it as plain LoRA."


def _checked(folder: Path, key: str, tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dim() != 2 or not tensor.is_floating_point():
        raise AdapterError(f"'{folder}': '{key}' is {tensor.dtype} of shape {tuple(tensor.shape)}, expected a matrix of floats")
    tensor = tensor.float()
    if not all_finite(tensor):
        raise AdapterError(f"'{folder}': '{key}' holds NaN or infinite weights: use an earlier checkpoint of this adapter")
    return tensor
