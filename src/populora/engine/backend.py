"""Build the components of a run in this process: sampler, learner, sandbox. `populora.engine.cluster` builds them as Ray actors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from populora.core.config import Config
from populora.engine.learning.learner import Learner
from populora.engine.learning.protocol import Updater
from populora.engine.model.bank import LoraBank
from populora.engine.model.loading import fingerprint, load_base
from populora.engine.model.model import AdaptedModel
from populora.engine.model.shapes import check_room
from populora.engine.planning.planner import check_context
from populora.engine.sampling.backends import check_backend, open_sampler
from populora.engine.sampling.protocol import Sampler
from populora.sandbox.layers import Tier
from populora.sandbox.pool import SandboxPool, limits_of
from populora.tasks.verifier import Judge


@dataclass(frozen=True)
class Backend:
    """The components of a run. The adapters of ``bank`` are allocated but not initialised."""

    tokenizer: Any
    sampler: Sampler
    learner: Updater
    bank: LoraBank
    judge: Judge
    tier: Tier
    """The sandbox's isolation."""
    base_sha256: str


@contextmanager
def local_backend(config: Config) -> Iterator[Backend]:
    """Build all components in this process. The sandbox ends with the block."""
    check_backend(config)
    if config.threads:
        torch.set_num_threads(config.threads)
    check_room(config)
    model, tokenizer = load_base(config.base)
    base, lora = fingerprint(model), config.lora
    adapted = AdaptedModel(model, lora.targets, config.population.members, lora.rank, lora.alpha, config.learner.activation_checkpointing)
    check_context(config, adapted.context)
    box = config.sandbox
    with (
        SandboxPool(limits_of(box), box.workers, box.allow_weak) as pool,
        open_sampler(config, tokenizer, adapted) as sampler,
    ):
        yield Backend(tokenizer, sampler, Learner(adapted, config.learner), adapted.bank, pool, pool.tier, base)
