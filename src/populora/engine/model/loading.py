"""Load the frozen base model and its tokenizer, from the package (`EMBEDDED`) or anywhere transformers can load from."""

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from populora.core.config import EMBEDDED, BaseConfig
from populora.core.errors import BaseModelError

TOKENIZER_FILES = ("*token*", "vocab*", "*.model", "tekken*")
ALIGNMENT = 64
"""Bytes: torch's allocator places each tensor at a multiple of it."""


def base_folder(config: BaseConfig) -> Path:
    """Return the folder of the base's files, if they are on this disk: in the package for an embedded one, else the path itself."""
    embedded = EMBEDDED.get(config.path)
    return Path(str(files("populora.engine.model").joinpath(embedded))) if embedded else Path(config.path)


def base_name(config: BaseConfig) -> str:
    """Return the name by which other libraries load the base: an absolute path if it is a folder, else its name on the hub."""
    folder = base_folder(config)
    return str(folder.absolute()) if folder.is_dir() else config.path


def with_absolute_path(config: BaseConfig) -> BaseConfig:
    """Return the base as it is found from any working folder: a folder that is not the package's has its absolute path."""
    return config if config.path in EMBEDDED else replace(config, path=base_name(config))


def load_base(config: BaseConfig, mapped: bool = False) -> tuple[Any, Any]:
    """Load the model (eval mode, frozen) and its tokenizer. Raises `BaseModelError` if it is missing or unreadable.

    With ``mapped`` the weights stay on the CPU. If their files have the base's precision they are mapped from them: the processes of a
    machine share these pages, and none has a copy.
    """
    path, device = base_source(config), torch_device(config.device)
    if device.index:  # CUDA graphs and streams are of the current device
        torch.cuda.set_device(device)
    disable_progress_bar()  # it would corrupt the live table
    with _reading(path):
        loaded: Any = AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, config.dtype), output_loading_info=True)
        model, info = loaded
    if info["missing_keys"]:  # transformers fills them with random numbers and goes on
        missing = sorted(info["missing_keys"])
        raise BaseModelError(
            f"base.path '{path}': expected weights for every parameter, but {len(missing)} have none ({', '.join(missing[:3])}, …): "
            "the files are incomplete or of another architecture; download them again."
        )
    tokenizer = load_tokenizer(config, model.get_input_embeddings().num_embeddings)
    return (model if mapped else _align(model.to(device))).eval().requires_grad_(False), tokenizer


def load_tokenizer(config: BaseConfig, vocabulary: int | None = None) -> Any:
    """Load the base's tokenizer. Raises `BaseModelError` if it is missing or has ids outside the ``vocabulary`` of the model."""
    path = base_source(config)
    if (folder := Path(path)).is_dir() and not any(file for pattern in TOKENIZER_FILES for file in folder.glob(pattern)):
        raise BaseModelError(f"base.path '{path}': expected a tokenizer's files next to the weights, such as tokenizer.json, found none")
    with _reading(path):
        tokenizer: Any = AutoTokenizer.from_pretrained(path)
        _check_tokenizer(tokenizer, vocabulary or AutoConfig.from_pretrained(path).vocab_size, path)
    return tokenizer


def _align(model: Any) -> Any:
    """Copy CPU weights that do not begin at a multiple of 64 bytes, as torch's own allocations do.

    A weight that is mapped from its file begins where the file's header ends. The last bits of a matrix product depend on that address,
    so the same weights in another file would give other results.
    """
    for parameter in model.parameters():
        if parameter.device.type == "cpu" and parameter.data_ptr() % ALIGNMENT:
            parameter.data = parameter.data.clone()
    return model


def base_fingerprint(model: Any) -> str:
    """Compute the SHA-256 of the loaded weights of a base."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def base_source(config: BaseConfig) -> str:
    """Return the folder or hub name that transformers loads from. Raises `BaseModelError` for a folder that is not there."""
    folder = base_folder(config)
    if config.path in EMBEDDED and not (folder / "config.json").is_file():
        raise BaseModelError(
            f"the base '{config.path}' is missing from the package (expected {folder}/config.json). Reinstall populora, or set "
            "base.path to another model."
        )
    if config.path.startswith(("/", "./", "../", "~")) and not folder.is_dir():
        home = " (~ is not expanded)" if config.path.startswith("~") else ""
        raise BaseModelError(f"base.path '{config.path}': there is no such folder{home}")
    return str(folder) if config.path in EMBEDDED else config.path


@contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        yield
    except BaseModelError:
        raise
    except Exception as error:  # tokenizers has no other class
        raise BaseModelError(
            f"base.path '{path}': expected a folder or hub name of a causal LM with its tokenizer; loading failed: {error}"
        ) from error


def _check_tokenizer(tokenizer: Any, vocabulary: int, path: str) -> None:
    """Raise `BaseModelError` for a tokenizer of another model, or one that cannot write a program."""
    text = "def f(x):\n    return x"
    ids = tokenizer.encode(text, add_special_tokens=False)
    if tokenizer.vocab_size > vocabulary:
        raise BaseModelError(
            f"base.path '{path}': its tokenizer has {tokenizer.vocab_size} tokens, its model embeddings for {vocabulary}: take the model's "
            "own tokenizer, or resize the model's embeddings."
        )
    if not ids or tokenizer.decode(ids).strip() != text:
        raise BaseModelError(
            f"base.path '{path}': expected a tokenizer that writes {text!r} and reads it back, got ids {ids[:8]}: put the tokenizer's "
            "files (tokenizer.json, tokenizer_config.json) next to the weights."
        )


def torch_device(name: str) -> torch.device:
    """Return the CPU or the CUDA device of this name. Raises `BaseModelError` for other names, and for a device that is not there."""
    if not re.fullmatch(r"cpu|cuda(:(0|[1-9][0-9]*))?", name):
        raise BaseModelError(f'base.device \'{name}\': expected "cpu", "cuda" or a CUDA device such as "cuda:1"')
    if name != "cpu" and int(name.partition(":")[2] or 0) >= torch.cuda.device_count():
        raise BaseModelError(f"device '{name}' is not available on this machine: choose \"cpu\"")
    return torch.device(name)
