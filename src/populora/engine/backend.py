"""Build the components of a run in this process: sampler, learner, sandbox. `populora.engine.cluster` builds them as Ray actors."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from populora.adapters.threads import torch_threads
from populora.core.config import Config
from populora.domains.registry import sandbox_limits
from populora.engine.bank import Bank
from populora.engine.learning.learner import InProcessLearner, Learner
from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.model.base_shape import check_memory, read_base_shape
from populora.engine.model.loading import base_fingerprint, load_base, load_tokenizer
from populora.engine.planning.memory import check_vllm_cache
from populora.engine.planning.planner import check_context
from populora.engine.sampling.inprocess import InProcessSampler
from populora.engine.sampling.sampler import Sampler
from populora.engine.sampling.vllm import VllmSampler, check_vllm
from populora.sandbox.layers import Tier
from populora.sandbox.pool import Judge, SandboxPool


@dataclass(frozen=True)
class Backend:
    """The components of a run. The adapters of ``bank`` are allocated but not initialised."""

    tokenizer: Any
    sampler: Sampler
    learner: Learner
    bank: Bank
    judge: Judge
    tier: Tier
    """The sandbox's isolation tier."""
    base_sha256: str


@contextmanager
def local_backend(config: Config) -> Iterator[Backend]:
    """Build all components in this process. The sandbox ends with the block, and ``config.threads`` holds for it alone."""
    check_backend(config)
    box = config.sandbox
    with torch_threads(config.threads):
        adapted, tokenizer, base = _load_adapted(config, config.population.members, learns=True)
        check_context(config, adapted.context)
        with (
            SandboxPool(sandbox_limits(config), box.workers, box.allow_weak) as pool,
            _open_sampler(config, tokenizer, adapted, config.population.members) as sampler,
        ):
            yield Backend(tokenizer, sampler, InProcessLearner(adapted, config.learner), adapted.bank, pool, pool.tier, base)


def check_backend(config: Config) -> None:
    """Raise `ConfigError`, before any model is loaded, if the sampling backend of the settings is not available here, or if vLLM's cache or
    context is too small: it would name settings of its own."""
    if config.engine.backend == "vllm":
        check_vllm(config.base.device)
        shape = read_base_shape(config.base)
        check_context(config, shape.context)
        check_vllm_cache(config, shape)


def _load_adapted(config: Config, slots: int, learns: bool) -> tuple[AdaptedModel, Any, str]:
    """Load the base model with room for ``slots`` adapters, its tokenizer and its fingerprint."""
    check_memory(config)
    model, tokenizer = load_base(config.base)
    base, lora = base_fingerprint(model), config.lora
    checkpointing = config.learner.activation_checkpointing if learns else "none"
    adapted = AdaptedModel(model, lora.targets, slots, lora.rank, lora.alpha, checkpointing, config.base.kernels, learns)
    return adapted, tokenizer, base


@contextmanager
def open_engine(config: Config, slots: int) -> Iterator[tuple[Sampler, str]]:
    """Open a sampler with a base model of its own and room for ``slots`` adapters. Yields it and the base's fingerprint. With vLLM that is
    empty, and memory is not checked."""
    check_backend(config)
    if config.engine.backend == "vllm":
        adapted, tokenizer, base = None, load_tokenizer(config.base), ""
    else:
        adapted, tokenizer, base = _load_adapted(config, slots, learns=False)
    with _open_sampler(config, tokenizer, adapted, slots) as sampler:
        yield sampler, base


@contextmanager
def _open_sampler(config: Config, tokenizer: Any, adapted: AdaptedModel | None, slots: int) -> Iterator[Sampler]:
    """Open a sampler for the longest prompt and response. vLLM needs no ``adapted`` model, it has its own base."""
    if adapted is None or config.engine.backend == "vllm":
        context = config.selfplay.max_prompt_tokens + config.selfplay.max_response_tokens
        with closing(VllmSampler(config, tokenizer, slots, context)) as sampler:
            yield sampler
        return
    sampler = InProcessSampler(adapted, tokenizer, config.seed, config.engine.rows, config.engine.cache_mb)
    sampler.rows_at_a_time(config.selfplay.max_response_tokens)  # refuses a cache that is too small
    yield sampler
