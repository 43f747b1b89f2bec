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
    device = torch_device(config.device)
    try:
        found: Any = AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, config.dtype), output_loading_info=True)
        model, loaded = found
        tokenizer: Any = AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise BaseModelError(
            f"base.path '{path}': expected a folder or hub name of a causal LM with its tokenizer; loading failed: {error}"
        ) from error
    if loaded["missing_keys"]:  # transformers fills them with random numbers and goes on
        missing = sorted(loaded["missing_keys"])
        raise BaseModelError(
            f"base.path '{path}': expected weights for every parameter, but {len(missing)} have none ({', '.join(missing[:3])}, …): "
            "the files are incomplete or of another architecture; download them again."
        )
    _check_tokenizer(tokenizer, model.get_input_embeddings().num_embeddings, path)
    return model.to(device).eval().requires_grad_(False), tokenizer


def _check_tokenizer(tokenizer: Any, vocabulary: int, path: str) -> None:
    """A folder without tokenizer files loads as an empty tokenizer; one of another model has other ids."""
    text = "def f(x):\n    return x"
    ids = tokenizer.encode(text, add_special_tokens=False)
    if not ids or tokenizer.decode(ids).strip() != text or max(ids) >= vocabulary:
        raise BaseModelError(
            f"base.path '{path}': expected a tokenizer that writes {text!r} in ids below {vocabulary} and reads it back, got ids "
            f"{ids[:8]}: put the tokenizer's files (tokenizer.json, tokenizer_config.json) beside the weights."
        )


def torch_device(name: str) -> torch.device:
    """The device of that name. Raises `BaseModelError` if there is none."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise BaseModelError(f'device \'{name}\': expected a torch device such as "cpu" or "cuda:0"') from error
    if device.type != "cpu" and (device.index or 0) >= torch.cuda.device_count():
        raise BaseModelError(f"device '{name}' is not available on this machine: choose \"cpu\"")
    return device
