"""PEFT adapters, checked against the base model: padded to the same modules to share an engine, or merged by PEFT in fp32."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from populora.adapters.adapter import Adapter
from populora.adapters.peft_format import Folder, read_folder
from populora.adapters.peft_settings import CARRIED
from populora.adapters.threads import torch_threads
from populora.core.config import BaseConfig, Config, LoraConfig
from populora.core.errors import AdapterError, ConfigError
from populora.core.files import disk_errors
from populora.engine.backend import open_engine
from populora.engine.model.loading import load_base
from populora.engine.planning.model_shape import ModelShape
from populora.engine.sampling.sampler import Sampler


@dataclass(frozen=True)
class LoadedAdapters:
    """Adapters by slot, all of the same modules. Ranks and alphas differ."""

    adapters: tuple[Adapter, ...]
    targets: tuple[str, ...]

    def adapter(self, slot: int) -> Adapter:
        """Return the adapter in a slot."""
        return self.adapters[slot]

    def config(self, config: Config, prompt_tokens: int, response_tokens: int) -> Config:
        """Return ``config`` with space for these adapters, and for prompts and responses of these numbers of tokens."""
        rank = max(adapter.rank for adapter in self.adapters)
        return replace(
            config, lora=LoraConfig(rank, float(rank), self.targets),
            selfplay=replace(config.selfplay, max_prompt_tokens=prompt_tokens, max_response_tokens=response_tokens),
        )  # fmt: skip


def load_adapters(folders: Sequence[Path], shapes: ModelShape, any_scale: bool = False) -> LoadedAdapters:
    """Load the adapters by slot, or one that does nothing; modules that one lacks are zero. Raises `AdapterError` where they do not fit."""
    adapters: list[Adapter] = []
    for folder in folders:
        content = read_checked(folder, shapes)
        special = [f"{name} = {content.settings[name]}" for name in CARRIED if content.settings.get(name)]
        if special and not any_scale:
            fault = f"'{folder}' has {', '.join(special)}"
            raise AdapterError(f"{fault}: adapters in one engine have one rank and the scale alpha / rank. Merge it instead (--merge).")
        adapters.append(content.adapter)
    used = {name for adapter in adapters for name in adapter.modules} or {next(iter(shapes.linears))}
    targets = tuple(dict.fromkeys(name.rsplit(".", 1)[-1] for name in shapes.linears if name in used))
    modules = shapes.adapted(targets)
    return LoadedAdapters(tuple(_pad(adapter, modules) for adapter in adapters or [Adapter({}, 1, 1.0)]), targets)


def _pad(adapter: Adapter, modules: Mapping[str, tuple[int, int]]) -> Adapter:
    return replace(
        adapter,
        modules={
            name: adapter.modules.get(name) or (torch.zeros(adapter.rank, inner), torch.zeros(outer, adapter.rank))
            for name, (inner, outer) in modules.items()
        },
    )


def read_checked(folder: Path, shapes: ModelShape) -> Folder:
    """Read a PEFT folder and compare its modules with the base model's. Raises `AdapterError` for the first that differs."""
    content = read_folder(folder)
    for name, (a, b) in content.adapter.modules.items():
        shape, expected = (a.shape[1], b.shape[0]), shapes.linears.get(name)
        if shape != expected:
            fault = f"has {expected}" if expected else f"has no such linear module, its {len(shapes.linears)} are in {shapes.layers} layers"
            raise AdapterError(
                f"'{folder}' is an adapter for another base: its module '{name}' has (in, out) = {shape}, and '{shapes.name}' {fault}. Its "
                f"settings name the base '{content.settings.get('base_model_name_or_path')}'."
            )
    return content


@contextmanager
def open_loaded(config: Config, loaded: LoadedAdapters, base_sha256: str = "") -> Iterator[Sampler]:
    """Open a sampler with the adapters. Raises `ConfigError` for a base of another fingerprint (vLLM's is not checked), and as engines."""
    with torch_threads(config.threads), open_engine(config, len(loaded.adapters)) as (sampler, sha256):
        if base_sha256 and sha256 not in ("", base_sha256):
            fault = f"'{config.base.path}' is not the base of the run"
            raise ConfigError(f"{fault}: expected weights of SHA-256 {base_sha256}, got {sha256}. Name the run's base with --base.")
        sampler.sync_weights(loaded, range(len(loaded.adapters)))
        yield sampler


def merge(base: BaseConfig, adapter: Path, folder: Path) -> None:
    """Replace ``folder`` by the base model in fp32 with the adapter merged into it. Raises `BaseModelError`."""
    from peft import PeftModel

    model, tokenizer = load_base(replace(base, dtype="float32"))
    merged = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload(safe_merge=True)
    shutil.rmtree(folder, ignore_errors=True)
    with disk_errors(folder):
        folder.mkdir(parents=True)
        merged.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
