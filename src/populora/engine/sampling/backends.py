"""Which sampler a run's settings ask for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from populora.core.config import Config
from populora.engine.model.model import AdaptedModel
from populora.engine.sampling.inprocess import InProcessSampler
from populora.engine.sampling.protocol import Sampler
from populora.engine.sampling.vllm import VllmSampler, checked_vllm


def check_backend(config: Config) -> None:
    """Raises `ConfigError`, before any model is loaded, if the backend of the settings is not to be had here."""
    if config.engine.backend == "vllm":
        checked_vllm(config.base.device)


@contextmanager
def open_sampler(config: Config, tokenizer: Any, adapted: AdaptedModel | None) -> Iterator[Sampler]:
    """The sampler of a run, with room for its longest prompt and response. What it holds beside ``adapted``, which vLLM does not need,
    goes with the block."""
    if adapted is None or config.engine.backend == "vllm":
        limits = config.selfplay
        context = limits.max_prompt_tokens + limits.max_response_tokens
        with closing(VllmSampler(config, tokenizer, config.population.members, context)) as sampler:
            yield sampler
        return
    sampler = InProcessSampler(adapted, tokenizer, config.seed, config.engine.rows, config.engine.cache_mb)
    sampler.rows_at_a_time(config.selfplay.max_response_tokens)  # refuses a cache that is too small
    yield sampler
