"""Adapters merged into their base with PEFT in fp32, as the paper evaluates them; the merged model is compared with the adapter.

The weights are written in fp32, whatever precision they are served in: what is compared is the merging, not the rounding. Served in
bfloat16, a merged model has the sum W + s B A rounded once, where an adapter beside its base has W, A and B rounded apart.
"""

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
"""Largest difference of a logit between the merged model and the adapter beside its base, both in fp32, as a share of the largest logit:
what rounding does grows with the logits, and bases differ in their size."""
PROBES, PROBE_TOKENS = 4, 256
"""How many prompts are compared, and how much of each."""


def needs_peft() -> Any:
    """The module. Raises `ConfigError` where it is not installed."""
    try:
        return import_module("peft")
    except ImportError as error:
        command = pip_install("peft")
        raise ConfigError(f"merging adapters takes PEFT, which is not installed: `{command}`, or evaluate without --merge") from error


@contextmanager
def merged(base: BaseConfig, adapter: Path, folder: Path, prompts: Sequence[str]) -> Iterator[float]:
    """The difference that `merge` finds; the merged model is in ``folder`` until the end of the block. Raises as `merge`."""
    try:
        yield merge(base, adapter, folder, prompts)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@torch.inference_mode()
def merge(base: BaseConfig, adapter: Path, folder: Path, prompts: Sequence[str]) -> float:
    """Write the base with the adapter merged into it, and its tokenizer, into ``folder``, which what is there makes way for.

    Returns the largest difference between the logits of what was written and those of the adapter, over a few of the prompts, as a share
    of the largest logit. Raises `AdapterError` if it exceeds `LOGIT_BOUND`, `ConfigError` without PEFT, and `BaseModelError` for a base
    that cannot be loaded.
    """
    peft, exact = needs_peft(), replace(base, dtype="float32")
    model, tokenizer = load_base(exact)
    probes = [tokenizer(prompt, return_tensors="pt")["input_ids"][:, :PROBE_TOKENS].to(model.device) for prompt in prompts[:PROBES]]
    beside = peft.PeftModel.from_pretrained(model, str(adapter)).eval()
    wanted = [beside(input_ids=ids).logits.cpu() for ids in probes]
    inside = beside.merge_and_unload(safe_merge=True)
    shutil.rmtree(folder, ignore_errors=True)
    with disk_errors(folder):
        folder.mkdir(parents=True)
        inside.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    del model, beside, inside
    again, _ = load_base(replace(exact, path=str(folder)))
    largest = max(float(logits.abs().max()) for logits in wanted)
    difference = max(float((again(input_ids=ids).logits.cpu() - logits).abs().max()) for ids, logits in zip(probes, wanted, strict=True))
    difference /= largest
    if not difference <= LOGIT_BOUND:
        raise AdapterError(
            f"'{adapter}' merged into '{base.path}' is another model: expected its logits within {LOGIT_BOUND} of the adapter's on "
            f"{len(probes)} prompts, as a share of the largest logit, but they differ by {difference:.2e}. "
            "Evaluate it without --merge, and report it."
        )
    return difference
