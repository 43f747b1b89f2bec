"""The process of an engine: a sampler that answers batches, and joins those that arrive together."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from populora.adapters.adapter import Adapter
from populora.core.config import Config
from populora.core.errors import ClusterError
from populora.core.installed import run_versions
from populora.core.types import Generation, Request
from populora.engine.backend import open_engine
from populora.engine.cluster.process import init_process
from populora.engine.cluster.sampler_thread import SamplerThread, SamplingParams
from populora.engine.model.base_shape import check_memory


@dataclass(frozen=True)
class _AdapterMapping:
    """Adapters by slot, as `Sampler.sync_weights` takes them."""

    adapters: Mapping[int, Adapter]

    def adapter(self, slot: int) -> Adapter:
        return self.adapters[slot]


class EngineActor:
    """Loads the base model in `open`, so that a failure to load is raised as an error, not as a dead actor."""

    def __init__(self, process: int = 0) -> None:
        self._open = ExitStack()
        self._thread = SamplerThread()
        self._places: dict[int, int] = {}
        """The sampler's slot of each slot of the run that this engine holds."""

    def gpus(self) -> list[str]:
        """Return the GPUs of this process's bundle, as named in ``CUDA_VISIBLE_DEVICES``."""
        return [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]

    def open(self, config: Config, slots: Sequence[int]) -> tuple[str, dict[str, str], str]:
        """Load the base model, with room for the adapters of ``slots``. Returns the fingerprint of the base model, if it was loaded here,
        the versions of installed libraries and what decodes. Raises the same errors as a run in one process."""
        init_process(config)
        if config.base.device != "cpu" and len(self.gpus()) != config.engine.tensor_parallel:
            raise ClusterError(
                f"expected Ray to give this engine engine.tensor_parallel ({config.engine.tensor_parallel}) GPUs, but it sees "
                f"{','.join(self.gpus()) or 'none'} (CUDA_VISIBLE_DEVICES). Unset RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES where Ray "
                "starts."
            )
        check_memory(config)
        self._thread.sampler, base = self._thread.call(lambda: self._open.enter_context(open_engine(config, len(slots)))).result()
        self._places = {-1: -1} | {slot: place for place, slot in enumerate(slots)}
        return base, run_versions(config), self._thread.sampler.decoder

    def sync_weights(self, slots: Sequence[int], *adapters: Adapter) -> None:
        """Load the changed adapters of slots. Call it between `end_stream` and the next batch."""
        places = [self._places[slot] for slot in slots]
        sampler, source = self._thread.sampler, _AdapterMapping(dict(zip(places, adapters, strict=True)))
        self._thread.call(lambda: sampler.sync_weights(source, places)).result()

    async def sample(self, requests: Sequence[Request], params: SamplingParams) -> list[list[Generation]]:
        """Return the generations of each request. This has no side effect, so it can be repeated here or on another engine."""
        placed = [replace(request, slot=self._places[request.slot]) for request in requests]
        return await asyncio.wrap_future(self._thread.submit(placed, params))

    async def end_stream(self) -> None:
        """Wait for all batches, and release what only a stream needs."""
        await asyncio.wrap_future(self._thread.end_stream())

    def close(self) -> None:
        """Break off what is sampled, and close the sampler."""
        self._thread.close(self._open.close).result()
