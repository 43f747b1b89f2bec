"""The frozen base model and its tokenizer, from the package (``tiny``) or anywhere transformers can load from."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from populora.config import BaseConfig
from populora.errors import BaseModelError

TINY = "tiny"


def base_folder(config: BaseConfig) -> Path:
    """Where the base's files are, if they are on this disk: the package's own folder for ``tiny``, else the path itself."""
    return Path(str(files("populora").joinpath("base", TINY))) if config.path == TINY else Path(config.path)


def load_base(config: BaseConfig) -> tuple[Any, Any]:
    """The model (eval mode, frozen) and its tokenizer. Raises `BaseModelError` if it is missing or unreadable."""
    folder = base_folder(config)
    if config.path == TINY and not (folder / "config.json").is_file():
        raise BaseModelError(
            f"the tiny base is missing from the package (expected {folder}/config.json). Reinstall populora, make it with "
            "`populora base build`, or set base.path to another model."
        )
    return _load(str(folder) if config.path == TINY else config.path, config)


def _load(path: str, config: BaseConfig) -> tuple[Any, Any]:
    disable_progress_bar()  # it would print into the live table
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, config.dtype))
        tokenizer = AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError, SafetensorError) as error:
        raise BaseModelError(
            f"base.path '{path}': expected a folder or hub name of a causal LM with its tokenizer; loading failed: {error}"
        ) from error
    return model.to(_device(config)).eval().requires_grad_(False), tokenizer


def _device(config: BaseConfig) -> torch.device:
    try:
        device = torch.device(config.device)
    except RuntimeError as error:
        raise BaseModelError(f'base.device \'{config.device}\': expected a torch device such as "cpu" or "cuda:0"') from error
    if device.type != "cpu" and (device.index or 0) >= torch.cuda.device_count():
        raise BaseModelError(f"base.device is '{config.device}', but no such device is available: set base.device = \"cpu\"")
    return device
