"""An engine's process: a sampler that answers batches, and joins those that come together."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from populora.adapters.adapter import Adapter
from populora.core.config import Config
from populora.core.installed import versions
from populora.core.types import Generation, Request
from populora.engine.cluster.process import settle_in
from populora.engine.cluster.serving import How, Serving
from populora.engine.model.loading import fingerprint, load_base, load_tokenizer
from populora.engine.model.model import AdaptedModel
from populora.engine.model.shapes import check_room
from populora.engine.sampling.backends import check_backend, open_sampler


@dataclass(frozen=True)
class _Given:
    """Adapters as a sampler wants them, from a mapping."""

    adapters: Mapping[int, Adapter]

    def adapter(self, slot: int) -> Adapter:
        return self.adapters[slot]


class EngineHost:
    """Loads what it needs when it is opened, not when it is made: a base that cannot be loaded is that error, and not a dead actor."""

    def __init__(self, process: int = 0) -> None:
        self._open = ExitStack()

    def gpus(self) -> list[str]:
        """The GPUs of this process's bundle, by the names that ``CUDA_VISIBLE_DEVICES`` takes."""
        return [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]

    def open(self, config: Config, adapters: Mapping[int, Adapter]) -> tuple[str, dict[str, str]]:
        """Load the base and publish ``adapters``, if there are any yet. Returns the fingerprint of the base, if it was loaded here, and
        what is installed. Raises as a run in one process does."""
        settle_in(config)
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # a process of vLLM's own would outlive this one and hold the GPU
        check_backend(config)
        check_room(config)
        adapted, base = None, ""
        if config.engine.backend == "vllm":
            tokenizer = load_tokenizer(config.base)
        else:
            model, tokenizer = load_base(config.base)
            base = fingerprint(model)
            adapted = AdaptedModel(model, config.lora.targets, config.population.members, config.lora.rank, config.lora.alpha)
        self._sampler = self._open.enter_context(open_sampler(config, tokenizer, adapted))
        self._serving = Serving(self._sampler)
        if adapters:
            self.publish(adapters)
        return base, versions()

    def publish(self, adapters: Mapping[int, Adapter]) -> None:
        """Adapters by slot that have changed; between `rest` and the next batch."""
        self._sampler.publish(_Given(adapters), sorted(adapters))

    async def sample(self, requests: Sequence[Request], how: How) -> list[list[Generation]]:
        """The generations of each request. Has no effect on the engine: it may be asked again, here or elsewhere."""
        return await asyncio.wrap_future(self._serving.submit(requests, how))

    async def rest(self) -> None:
        """Give back what only a stream needs; done when all batches are."""
        await asyncio.wrap_future(self._serving.rest())

    def close(self) -> None:
        """Let the sampler go."""
        self._open.close()
