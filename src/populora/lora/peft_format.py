"""Adapters on disk as plain PEFT LoRA folders: ``adapter_config.json`` and ``adapter_model.safetensors``.

Written without importing PEFT and loadable by it (and by vLLM). What the `Adapter` type cannot hold truthfully (DoRA, rslora, rank
patterns, biases, ...) is refused with the reason, never read half. Pickled weights (``.bin``) are not read: they can run code.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from populora.errors import AdapterError
from populora.lora.adapter import Adapter

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"

_KEY = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<letter>[AB])\.weight")
_REFUSED = {
    "use_dora": "DoRA adds a magnitude vector",
    "use_rslora": "rslora scales by alpha / sqrt(rank)",
    "rank_pattern": "ranks differ by module",
    "alpha_pattern": "alphas differ by module",
    "modules_to_save": "it replaces whole modules of the base",
    "trainable_token_indices": "it changes token embeddings",
    "target_parameters": "it adapts bare parameters",
    "layer_replication": "it changes the layers of the base",
    "fan_in_fan_out": "its weights are stored transposed",
    "lora_bias": "it has biases",
    "use_qalora": "QALoRA groups the inputs",
    "use_bdlora": "its factors are block-diagonal",
    "alora_invocation_tokens": "it is active on part of the tokens only",
}
"""PEFT settings that change what the factors mean, and why."""
_PLAIN_INITS = (None, True, False, "gaussian", "orthogonal", "eva")
"""Initialisations that leave the base as it is (PiSSA, OLoRA, CorDA, LoftQ and LoRA-GA change its weights)."""


def save_adapter(adapter: Adapter, folder: Path, base_name: str, targets: Sequence[str]) -> None:
    """Write ``adapter`` as a PEFT folder for the base model ``base_name``; ``targets`` are its module names such as ``q_proj``.

    Both files are written aside, read back and compared, then renamed into ``folder`` (the settings last); other files in it stay.
    Raises `AdapterError` if the targets do not describe the modules, or if it cannot be written or does not read back equal.
    """
    config = _config(adapter, base_name, targets)
    tensors = {
        f"base_model.model.{name}.lora_{letter}.weight": tensor.detach().contiguous()
        for name, pair in adapter.modules.items()
        for letter, tensor in zip("AB", pair, strict=True)
    }
    aside = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        save_file(tensors, aside / WEIGHTS_FILE, metadata={"format": "pt"})
        (aside / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        if _sorted(load_adapter(aside)).fingerprint() != _sorted(adapter).fingerprint():
            raise AdapterError(f"the adapter written for '{folder}' does not read back equal: check the disk and write it again")
        folder.mkdir(exist_ok=True)
        for name in (WEIGHTS_FILE, CONFIG_FILE):
            (aside / name).replace(folder / name)
    except (OSError, SafetensorError) as error:
        raise AdapterError(f"cannot write the adapter '{folder}': {error}. Free space or choose another folder.") from error
    finally:
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)


def load_adapter(folder: Path) -> Adapter:
    """Read a PEFT LoRA folder; weights become fp32. Raises `AdapterError` with the reason if it is not plain, whole and finite.

    Modules come back by layer, then as ``target_modules`` lists them: the order of the model, unless a target matches two of a layer.
    """
    config = _read_config(folder)
    pairs: dict[str, dict[str, torch.Tensor]] = {}
    for key, tensor in _read_weights(folder).items():
        match = _KEY.fullmatch(key)
        if match is None:
            raise AdapterError(f"'{folder}' holds the tensor '{key}': expected only LoRA factors of linear modules")
        pairs.setdefault(match["module"], {})[match["letter"]] = _checked(folder, key, tensor)
    if not pairs:
        raise AdapterError(f"'{folder}' holds no LoRA factors: save it again from a model with adapted modules")
    rank = config["r"]
    for name, pair in pairs.items():
        if len(pair) != 2:
            raise AdapterError(f"'{folder}': module '{name}' has lora_{''.join(pair)} only, expected a pair of lora_A and lora_B")
        if pair["A"].shape[0] != rank or pair["B"].shape[1] != rank:
            shapes = f"A {tuple(pair['A'].shape)} and B {tuple(pair['B'].shape)}"
            raise AdapterError(f"'{folder}': module '{name}' has {shapes}, expected A [r, in] and B [out, r] of rank r = {rank}")
    order = sorted(pairs, key=lambda name: _place(name, config.get("target_modules")))
    return Adapter({name: (pairs[name]["A"], pairs[name]["B"]) for name in order}, rank, float(config["lora_alpha"]))


def _sorted(adapter: Adapter) -> Adapter:
    """The modules by name: of two that one target matches in a layer, a folder does not tell which came first."""
    return replace(adapter, modules=dict(sorted(adapter.modules.items())))


def _config(adapter: Adapter, base_name: str, targets: Sequence[str]) -> dict[str, Any]:
    owner = {name: [target for target in targets if name == target or name.endswith(f".{target}")] for name in adapter.modules}
    lost = [name for name, found in owner.items() if not found]
    used = list(dict.fromkeys(found[0] for found in owner.values() if found))  # in the order of the model, for `_place`
    if lost or set(used) != set(targets):
        odd = f"module '{lost[0]}' matches none" if lost else f"no module matches {sorted(set(targets) - set(used))}"
        raise AdapterError(f"the targets {list(targets)} do not describe the adapter's modules: {odd}")
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_name,
        "r": adapter.rank,
        "lora_alpha": int(adapter.alpha) if adapter.alpha == int(adapter.alpha) else adapter.alpha,
        "target_modules": used,
        "lora_dropout": 0.0,
        "bias": "none",
        "use_dora": False,
        "use_rslora": False,
        "fan_in_fan_out": False,
        "modules_to_save": None,
        "init_lora_weights": True,
        "inference_mode": True,
    }


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG_FILE
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise AdapterError(f"'{folder}' is not a PEFT adapter: cannot read {CONFIG_FILE} ({error.strerror})") from error
    except ValueError as error:
        raise AdapterError(f"'{path}' is not valid JSON: {error}. Save the adapter again.") from error
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise AdapterError(f"'{path}': expected the settings of a PEFT LoRA adapter (peft_type LORA)")
    reasons = [f"{name}: {why}" for name, why in _REFUSED.items() if config.get(name)]
    if config.get("bias", "none") != "none":
        reasons.append(f"bias is {config['bias']!r}: it has biases")
    if config.get("init_lora_weights") not in _PLAIN_INITS:
        reasons.append(f"init_lora_weights is {config['init_lora_weights']!r}: the base's own weights were changed with it")
    if reasons:
        raise AdapterError(f"'{folder}' is not a plain LoRA adapter ({'; '.join(reasons)}): convert it first")
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if type(rank) is not int or rank < 1 or not isinstance(alpha, (int, float)) or not 0 < alpha < math.inf:
        raise AdapterError(f"'{path}': expected a rank r of at least 1 and lora_alpha above 0, got {rank!r} and {alpha!r}")
    return config


def _read_weights(folder: Path) -> dict[str, torch.Tensor]:
    path = folder / WEIGHTS_FILE
    if not path.is_file():
        other = " Pickled .bin weights are not read: save them as safetensors." if (folder / "adapter_model.bin").exists() else ""
        raise AdapterError(f"'{folder}' has no {WEIGHTS_FILE}.{other}")
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise AdapterError(f"'{path}' cannot be read ({error}): the file is damaged or cut off; copy or save it again") from error


def _checked(folder: Path, key: str, tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dim() != 2 or not tensor.is_floating_point():
        raise AdapterError(f"'{folder}': '{key}' is {tensor.dtype} of shape {tuple(tensor.shape)}, expected a matrix of floats")
    if not bool(torch.isfinite(tensor).all()):
        raise AdapterError(f"'{folder}': '{key}' holds NaN or infinite weights: use an earlier checkpoint of this adapter")
    return tensor.float()


def _place(name: str, targets: object) -> tuple[Any, ...]:
    """Sorting key of a module: safetensors files list tensors alphabetically, models do not."""
    numbers = tuple(int(part) for part in name.split(".") if part.isdigit())
    listed = targets if isinstance(targets, list) else []
    target = next((i for i, item in enumerate(listed) if name == item or name.endswith(f".{item}")), len(listed))
    return not numbers, numbers, target, name
