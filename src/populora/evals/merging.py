"""Merge adapters into their base model with PEFT in fp32, as the paper evaluates them, and compare the merged model with the adapter."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from populora.core.config import BaseConfig
from populora.core.errors import AdapterError, ConfigError
from populora.core.files import disk_errors
from populora.core.invocation import pip_install
from populora.engine.model.loading import load_base

LOGIT_BOUND = 1e-4
"""Largest difference of a logit between the merged model and the adapter, both in fp32, as a share of the largest logit. Rounding errors
grow with the logits, whose size differs between base models."""
PROBES, PROBE_TOKENS = 4, 256
"""The number of prompts that are compared, and the tokens of each."""


def require_peft() -> Any:
    """Import PEFT. Raises `ConfigError` where it is not installed."""
    try:
        return import_module("peft")
    except ImportError as error:
        command = pip_install("peft")
        raise ConfigError(f"merging adapters takes PEFT, which is not installed: `{command}`, or evaluate without --merge") from error


@contextmanager
def merged(base: BaseConfig, adapter: Path, folder: Path, prompts: Sequence[str]) -> Iterator[float]:
    """Merge into ``folder``, which is deleted after the block; yields the difference of the logits. Raises as `merge`."""
    try:
        yield merge(base, adapter, folder, prompts)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@torch.inference_mode()
def merge(base: BaseConfig, adapter: Path, folder: Path, prompts: Sequence[str]) -> float:
    """Write the base model with the adapter merged into it, and its tokenizer, into ``folder``, which is replaced.

    Returns the largest difference between its logits and the adapter's, over a few of the prompts, as a share of the largest logit.
    Raises `AdapterError` if it exceeds `LOGIT_BOUND`, `ConfigError` without PEFT, and `BaseModelError` for a base model that cannot be
    loaded.
    """
    peft, exact = require_peft(), replace(base, dtype="float32")
    model, tokenizer = load_base(exact)
    probes = [tokenizer(prompt, return_tensors="pt")["input_ids"][:, :PROBE_TOKENS].to(model.device) for prompt in prompts[:PROBES]]
    unmerged = peft.PeftModel.from_pretrained(model, str(adapter)).eval()
    expected = [unmerged(input_ids=ids).logits.cpu() for ids in probes]
    model_merged = unmerged.merge_and_unload(safe_merge=True)
    shutil.rmtree(folder, ignore_errors=True)
    with disk_errors(folder):
        folder.mkdir(parents=True)
        model_merged.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    del model, unmerged, model_merged
    reloaded, _ = load_base(replace(exact, path=str(folder)))
    largest = max(float(logits.abs().max()) for logits in expected)
    difference = max(
        float((reloaded(input_ids=ids).logits.cpu() - logits).abs().max()) for ids, logits in zip(probes, expected, strict=True)
    )
    difference /= largest
    if not difference <= LOGIT_BOUND:
        raise AdapterError(
            f"'{adapter}' merged into '{base.path}' is another model: expected its logits within {LOGIT_BOUND} of the adapter's on "
            f"{len(probes)} prompts, as a share of the largest logit, but they differ by {difference:.2e}. "
            "Evaluate it without --merge, and report it."
        )
    return difference
