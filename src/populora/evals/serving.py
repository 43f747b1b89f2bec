"""Adapters in an engine: read from PEFT folders, compared with the base, and made alike, so that one engine serves all of them at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from populora.adapters.adapter import Adapter
from populora.adapters.peft_format import Folder, read_folder
from populora.adapters.peft_settings import CARRIED
from populora.core.config import Config, LoraConfig, PopulationConfig
from populora.core.errors import AdapterError
from populora.engine.model.loading import load_base, load_tokenizer
from populora.engine.model.model import AdaptedModel
from populora.engine.model.shapes import check_room
from populora.engine.planning.model_shape import ModelShape
from populora.engine.sampling.backends import check_backend, open_sampler
from populora.engine.sampling.protocol import Sampler


@dataclass(frozen=True)
class Served:
    """Adapters by slot, all of the same modules. Ranks and alphas are their own."""

    adapters: tuple[Adapter, ...]
    targets: tuple[str, ...]

    def adapter(self, slot: int) -> Adapter:
        """See `populora.engine.sampling.protocol.Adapters`."""
        return self.adapters[slot]

    def settings(self, config: Config, prompt_tokens: int, response_tokens: int) -> Config:
        """``config`` with room for these adapters, and for prompts and responses of so many tokens."""
        rank = max(adapter.rank for adapter in self.adapters)
        return replace(
            config, lora=LoraConfig(rank, float(rank), self.targets), population=PopulationConfig(len(self.adapters), 0),
            selfplay=replace(config.selfplay, max_prompt_tokens=prompt_tokens, max_response_tokens=response_tokens),
        )  # fmt: skip


def serve(folders: Sequence[Path], shapes: ModelShape) -> Served:
    """The adapters of these folders, by slot; without any, one that does nothing. A module that one adapts and another does not gets
    zeros there, which change nothing.

    Raises `AdapterError` for one that is for another base, or that a scale alpha / rank does not describe.
    """
    found = {folder: _plain(folder, read_fitting(folder, shapes)) for folder in folders}
    used = {name for adapter in found.values() for name in adapter.modules} or {next(iter(shapes.linears))}
    targets = tuple(dict.fromkeys(name.rsplit(".", 1)[-1] for name in shapes.linears if name in used))
    modules = shapes.adapted(targets)
    each = tuple(_filled(adapter, modules) for adapter in found.values())
    return Served(each or (_filled(Adapter({}, 1, 1.0), modules),), targets)


def read_fitting(folder: Path, shapes: ModelShape) -> Folder:
    """A PEFT folder whose modules the base has. Raises `AdapterError` with the first that differs."""
    found = read_folder(folder)
    for name, (a, b) in found.adapter.modules.items():
        came, expected = (a.shape[1], b.shape[0]), shapes.linears.get(name)
        if came != expected:
            has = f"has {expected}" if expected else f"has no such linear module, its {len(shapes.linears)} are in {shapes.layers} layers"
            raise AdapterError(
                f"'{folder}' is an adapter for another base: its module '{name}' has (in, out) = {came}, and '{shapes.name}' {has}. Its "
                f"settings name the base '{found.settings.get('base_model_name_or_path')}'."
            )
    return found


@contextmanager
def open_engine(config: Config, served: Served) -> Iterator[Sampler]:
    """A sampler in this process that has the adapters. Raises as `populora.engine.backend.local_backend`."""
    check_backend(config)
    if config.threads:
        torch.set_num_threads(config.threads)
    if config.engine.backend == "vllm":  # has a base of its own
        adapted, tokenizer = None, load_tokenizer(config.base)
    else:
        check_room(config)
        model, tokenizer = load_base(config.base)
        adapted = AdaptedModel(model, config.lora.targets, len(served.adapters), config.lora.rank, config.lora.alpha)
    with open_sampler(config, tokenizer, adapted) as sampler:
        sampler.publish(served, range(len(served.adapters)))
        yield sampler


def _plain(folder: Path, found: Folder) -> Adapter:
    if given := [f"{name} = {found.settings[name]}" for name in CARRIED if found.settings.get(name)]:
        raise AdapterError(
            f"'{folder}' has {', '.join(given)}: adapters that are served together have one rank, one alpha and the scale alpha / rank. "
            "Merge it into its base instead (--merge)."
        )
    return found.adapter


def _filled(adapter: Adapter, modules: Mapping[str, tuple[int, int]]) -> Adapter:
    nothing = {
        name: (torch.zeros(adapter.rank, inner), torch.zeros(outer, adapter.rank))
        for name, (inner, outer) in modules.items()
        if name not in adapter.modules
    }
    return replace(adapter, modules={name: adapter.modules.get(name) or nothing[name] for name in modules})
