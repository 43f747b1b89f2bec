"""The sampler of the embedded scale: it reads the very tensors that train.

Every prompt is computed once for all its samples, rows are sorted by slot so that the adapters are segments of one batch, and the
places of finished rows are filled again from the requests that wait (`populora.engine.sampling.batch`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from populora.core.errors import ConfigError
from populora.core.types import Generation, Request
from populora.engine.model.decode_cache import PAGE
from populora.engine.model.model import AdaptedModel
from populora.engine.sampling.batch import Job, Row, Rows
from populora.engine.sampling.decoders import Decoding
from populora.engine.sampling.protocol import Adapters, Feed
from populora.engine.sampling.requests import Named, all_of, check_request, check_sampling
from populora.engine.sampling.token_sampling import Ending, Uniforms, decode


class InProcessSampler:
    """Samples from an `AdaptedModel`; ``rows`` bounds the responses decoded at a time, and so does ``cache_mb``, MiB for the keys and
    values that all of them can come to have."""

    def __init__(self, adapted: AdaptedModel, tokenizer: Any, seed: int, rows: int = 512, cache_mb: int = 1024):
        self.adapted, self.tokenizer, self.seed, self.rows, self.cache_mb = adapted, tokenizer, seed, rows, cache_mb
        self.decoding = Decoding(adapted, rows)
        self._bytes_per_token = _cache_bytes_per_token(adapted.model)
        self._eos = _eos_ids(adapted.model, tokenizer)
        self._endings: dict[str, Ending] = {}

    def publish(self, adapters: Adapters, slots: Iterable[int]) -> None:
        """Copy adapters that come from elsewhere. Nothing is to be done for those of the bank that is sampled from."""
        if adapters is not self.adapted.bank:
            for slot in slots:
                self.adapted.bank.load(slot, adapters.adapter(slot))

    def count_tokens(self, prompt: str) -> int:
        """Length of the prompt in tokens."""
        return len(self._encode(prompt))

    def rows_at_a_time(self, max_tokens: int) -> int:
        """How many responses of ``max_tokens`` tokens are decoded at a time. Raises `ConfigError` if the cache cannot hold one."""
        size = self._bytes_per_token * -(-max_tokens // PAGE) * PAGE
        if size > self.cache_mb << 20:
            raise ConfigError(
                f"engine.cache_mb is {self.cache_mb}: one response of {max_tokens} tokens needs {-(-size >> 20)}. Raise it or lower "
                "selfplay.max_response_tokens."
            )
        return min(self.rows, (self.cache_mb << 20) // size)

    def generate(self, requests: Sequence[Request], max_tokens: int, temperature: float, stop: str) -> list[list[Generation]]:
        """See `populora.engine.sampling.protocol.Sampler.generate`."""
        return all_of(self, requests, max_tokens, temperature, stop)

    @torch.inference_mode()
    def stream(self, feed: Feed, max_tokens: int, temperature: float, stop: str) -> Iterator[tuple[Request, list[Generation]]]:
        """See `populora.engine.sampling.protocol.Sampler.stream`."""
        check_sampling(max_tokens, temperature)
        limit, steps = self.rows_at_a_time(max_tokens), self.decoding.start()
        rows = Rows(self.adapted, self._ending(stop), limit, max_tokens, temperature, steps)
        keys: set[Named] = set()
        while True:
            requests = feed.take(idle=not rows.busy)
            jobs = self._jobs(requests, max_tokens, keys)
            yield from ((job.request, []) for job in jobs if job.request.samples == 0)
            rows.add(jobs)
            if not requests and not rows.busy:
                self.decoding.finish(steps)
                return
            for job in rows.step() if rows.busy else ():
                yield job.request, [self._generation(job, job.done[sample]) for sample in range(job.request.samples)]

    def _jobs(self, requests: Sequence[Request], max_tokens: int, keys: set[Named]) -> list[Job]:
        """Tokenise and check everything before any work; ``keys`` are those of the stream so far."""
        jobs = [Job(request, self._encode(request.prompt), Uniforms(self.seed, request.key, request.samples)) for request in requests]
        for job in jobs:
            check_request(job.request, len(job.prompt), keys, self.adapted.context, max_tokens, self.adapted.bank.slots)
        return jobs

    def _ending(self, stop: str) -> Ending:
        if stop not in self._endings:
            self._endings[stop] = Ending(self.tokenizer, self.adapted.head.out_features, stop, self._eos)
        return self._endings[stop]

    def _encode(self, prompt: str) -> tuple[int, ...]:
        return tuple(self.tokenizer(prompt)["input_ids"])

    def _generation(self, job: Job, row: Row) -> Generation:
        text = decode(self.tokenizer, row.tokens)
        return Generation(text, job.prompt, tuple(row.tokens), tuple(row.logprobs), row.entropy / len(row.tokens), row.stopped)


def _cache_bytes_per_token(model: Any) -> int:
    """Bytes of one token's keys and values in all layers."""
    shape = model.config
    size = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
    heads = getattr(shape, "num_key_value_heads", None) or shape.num_attention_heads
    return 2 * shape.num_hidden_layers * heads * size * model.dtype.itemsize


def _eos_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    named = model.generation_config.eos_token_id
    ids = [tokenizer.eos_token_id, *(named if isinstance(named, list) else [named])]
    return frozenset(token for token in ids if token is not None)
