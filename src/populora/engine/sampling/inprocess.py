"""The sampler that reads the very tensors that train.

Every prompt is computed once for all its samples. Rows are sorted by slot, so that the adapters are segments of one batch, and finished
rows are replaced by waiting ones (`populora.engine.sampling.batch`).
"""

from array import array
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from populora.core.types import Generation, Request
from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.model.base_shape import shape_of_model
from populora.engine.planning.decoding_memory import page_tokens, rows_at_a_time
from populora.engine.sampling.batch import ActiveRequest, ContinuousBatch, Row
from populora.engine.sampling.decoder_pool import DecoderPool
from populora.engine.sampling.sampler import AdapterSource, RequestKey, RequestSource, Sampler, check_request, check_sampling
from populora.engine.sampling.token_sampling import StopCondition, UniformStream, decode


class InProcessSampler(Sampler):
    """Samples from an `AdaptedModel`, at most ``rows`` responses at a time.

    ``cache_mb`` (MiB) bounds them too: it holds the keys and values of all rows even if each reaches the length limit. In C, a small base
    has fewer (`DecoderPool.best_rows`).
    """

    def __init__(self, adapted: AdaptedModel, tokenizer: Any, seed: int, rows: int = 512, cache_mb: int = 1024):
        self.adapted, self.tokenizer, self.seed, self.rows, self.cache_mb = adapted, tokenizer, seed, rows, cache_mb
        self.decoders = DecoderPool(adapted, rows, cache_mb)
        self._shape = shape_of_model("", adapted.model)
        self._eos = _eos_ids(adapted.model, tokenizer)
        self._stops: dict[str, StopCondition] = {}

    @property
    def decoder(self) -> str:
        """See `populora.engine.sampling.sampler.Sampler.decoder`."""
        return self.decoders.description

    @property
    def independent(self) -> bool:
        """See `populora.engine.sampling.sampler.Sampler.independent`."""
        return self.decoders.native

    def sync_weights(self, adapters: AdapterSource, slots: Iterable[int]) -> None:
        """Copy adapters from elsewhere. Those of the bank that is sampled from need no copy."""
        if adapters is not self.adapted.bank:
            for slot in slots:
                self.adapted.bank.load(slot, adapters.adapter(slot))

    def rows_at_a_time(self, max_tokens: int) -> int:
        """Return how many responses of ``max_tokens`` tokens fit into the cache. Raises `ConfigError` if none does."""
        page = page_tokens(self.adapted.device.type)
        return rows_at_a_time(self.rows, self.cache_mb, self._shape, self.adapted.model.dtype.itemsize, max_tokens, page)

    @torch.inference_mode()
    def stream(self, source: RequestSource, max_tokens: int, temperature: float, stop: str) -> Iterator[tuple[Request, list[Generation]]]:
        """See `populora.engine.sampling.sampler.Sampler.stream`."""
        check_sampling(max_tokens, temperature)
        limit = self.decoders.best_rows(self.rows_at_a_time(max_tokens))
        decoder = self.decoders.acquire(limit, max_tokens)
        batch = ContinuousBatch(self._stop_condition(stop), limit, max_tokens, temperature, decoder)
        keys: set[RequestKey] = set()
        while True:
            requests = [self._prepare(request, max_tokens, keys) for request in source.next(block=not batch.busy)]
            yield from ((active.request, []) for active in requests if active.request.samples == 0)
            batch.add(requests)
            if not requests and not batch.busy:
                self.decoders.release(decoder)
                return
            for active in batch.step() if batch.busy else ():
                yield active.request, [self._generation(active, active.done[sample]) for sample in range(active.request.samples)]

    def _prepare(self, request: Request, max_tokens: int, keys: set[RequestKey]) -> ActiveRequest:
        """Tokenise and check a request; ``keys`` are those of the stream so far."""
        prompt = array("i", self.tokenizer(request.prompt)["input_ids"])
        check_request(request, len(prompt), keys, self.adapted.context, max_tokens, self.adapted.bank.slots)
        seed = self.seed if request.seed is None else request.seed
        return ActiveRequest(request, prompt, UniformStream(seed, request.key, request.samples))

    def _stop_condition(self, stop: str) -> StopCondition:
        if stop not in self._stops:
            self._stops[stop] = StopCondition(self.tokenizer, self.adapted.head.out_features, stop, self._eos)
        return self._stops[stop]

    def _generation(self, active: ActiveRequest, row: Row) -> Generation:
        text, tokens, logprobs = decode(self.tokenizer, row.tokens), array("i", row.tokens), array("f", row.logprobs)
        return Generation(text, active.prompt, tokens, logprobs, row.entropy / len(tokens), row.stopped)


def _eos_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    configured = model.generation_config.eos_token_id
    ids = [tokenizer.eos_token_id, *(configured if isinstance(configured, list) else [configured])]
    return frozenset(token for token in ids if token is not None)
