"""The sampler of the embedded scale: it reads the very tensors that train.

Requests are sampled in waves of bounded size. In a wave every prompt is prefilled once for all its samples, rows are sorted
by slot so that the adapters are segments of one batch, and finished rows are dropped as they come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from populora.engine.drawing import Ending, Uniforms, choose, decode
from populora.errors import ConfigError
from populora.lora.attention import DecodeAttention
from populora.lora.model import AdaptedModel
from populora.lora.packing import Group, pack
from populora.lora.routing import Route
from populora.types import Generation, Request

CACHE_BYTES = 1 << 30  # bound on the keys and values of a wave's responses
DEAD = 0.125  # share of finished rows at which a wave is compacted: dropping copies the cache, so not for every row


@dataclass(frozen=True)
class _Job:
    """A request with its tokenised prompt and its place in the caller's list."""

    place: int
    request: Request
    prompt: tuple[int, ...]


@dataclass(frozen=True)
class _Rows:
    """What a wave wrote for each of its rows: tokens, log-probabilities and entropies [rows, max_tokens], and lengths [rows]."""

    tokens: torch.Tensor
    logprobs: torch.Tensor
    entropies: torch.Tensor
    lengths: torch.Tensor
    stopped: torch.Tensor


class InProcessSampler:
    """Samples from an `AdaptedModel`; ``rows`` bounds the responses decoded at a time (fewer where their cache would exceed
    `CACHE_BYTES`)."""

    def __init__(self, adapted: AdaptedModel, tokenizer: Any, seed: int, rows: int = 512):
        self.adapted, self.tokenizer, self.seed, self.rows = adapted, tokenizer, seed, rows
        self._bytes_per_token = _cache_bytes_per_token(adapted.model)
        self._eos = _eos_ids(adapted.model, tokenizer)
        self._endings: dict[str, Ending] = {}

    def count_tokens(self, prompt: str) -> int:
        """Length of the prompt in tokens."""
        return len(self._encode(prompt))

    @torch.inference_mode()
    def generate(self, requests: Sequence[Request], max_tokens: int, temperature: float, stop: str) -> list[list[Generation]]:
        """See `populora.engine.base.Sampler.generate`."""
        jobs = self._jobs(requests, max_tokens, temperature)
        ending = self._ending(stop)
        results: list[list[Generation]] = [[] for _ in requests]
        for wave in _waves(jobs, min(self.rows, CACHE_BYTES // (self._bytes_per_token * max_tokens))):
            written = self._decode(wave, max_tokens, temperature, ending)
            start = 0
            for job in wave:
                rows = range(start, start + job.request.samples)
                results[job.place] = [self._generation(job.prompt, written, row) for row in rows]
                start = rows.stop
        return results

    def _prefill(self, wave: Sequence[_Job]) -> tuple[torch.Tensor, DecodeAttention]:
        """Run the prompts once; returns the logits of all rows' first tokens and the cache to go on with."""
        device = self.adapted.device
        packed = pack([Group(job.request.slot, job.prompt) for job in wave], device, keep=True)
        hidden = self.adapted.forward(packed.ids, packed.positions, packed.route, packed.plan)
        samples = torch.tensor([job.request.samples for job in wave], device=device)
        group = torch.arange(len(wave), device=device).repeat_interleave(samples)
        lengths = torch.tensor([len(job.prompt) for job in wave], device=device)
        return self.adapted.logits(hidden[packed.last])[group], DecodeAttention(packed.plan.kept, lengths, group)

    def _decode(self, wave: Sequence[_Job], max_tokens: int, temperature: float, ending: Ending) -> _Rows:
        """Sample all rows of a wave (jobs sorted by slot)."""
        device = self.adapted.device
        logits, cache = self._prefill(wave)
        samples = [job.request.samples for job in wave]
        uniforms = Uniforms(self.seed, [job.request.key for job in wave], samples)
        written = _empty_rows(sum(samples), max_tokens)
        live = torch.arange(sum(samples))  # the wave's row of each row that is still decoded
        slots = torch.tensor([job.request.slot for job in wave]).repeat_interleave(torch.tensor(samples))
        done = torch.zeros(len(live), dtype=torch.bool)
        route = _one_each(slots, device)
        for index in range(max_tokens):
            tokens, logprobs, entropies = (x.cpu() for x in choose(logits, temperature, uniforms.at(index)[live]))
            written.tokens[live, index], written.logprobs[live, index], written.entropies[live, index] = tokens, logprobs, entropies
            written.lengths[live[~done]] = index + 1
            ended = ~done & _ended(ending, written.tokens, live, index)
            written.stopped[live[ended]] = True
            done |= ended
            if bool(done.all()) or index + 1 == max_tokens:
                break
            if int(done.sum()) >= DEAD * len(done):
                kept = torch.nonzero(~done)[:, 0]
                cache.keep_rows(kept.to(device))
                live, slots, tokens, done = live[kept], slots[kept], tokens[kept], done[kept]
                route = _one_each(slots, device)
            logits = self.adapted.logits(self.adapted.forward(tokens.to(device), cache.step(), route, cache))
        return written

    def _jobs(self, requests: Sequence[Request], max_tokens: int, temperature: float) -> list[_Job]:
        """Tokenise and check everything before any work."""
        if max_tokens < 1 or temperature < 0:
            raise ConfigError(f"expected max_tokens >= 1 and temperature >= 0, got {max_tokens} and {temperature}")
        jobs = [_Job(place, request, self._encode(request.prompt)) for place, request in enumerate(requests)]
        if len({job.request.key for job in jobs}) < len(jobs):
            raise ConfigError("two requests of one call have the same key: they would draw the same random numbers; name them apart")
        room = self.adapted.context - max_tokens
        for job in jobs:
            if not 0 < len(job.prompt) <= room:
                raise ConfigError(
                    f"request {job.request.key}: expected a prompt of 1 to {room} tokens (context {self.adapted.context} "
                    f"minus {max_tokens} for the response), got {len(job.prompt)}. Shorten it or lower selfplay.max_response_tokens."
                )
            if not -1 <= job.request.slot < self.adapted.bank.slots:
                raise ConfigError(f"request {job.request.key}: slot {job.request.slot} does not exist, there are {self.adapted.bank.slots}")
        return jobs

    def _ending(self, stop: str) -> Ending:
        if stop not in self._endings:
            self._endings[stop] = Ending(self.tokenizer, self.adapted.head.out_features, stop, self._eos)
        return self._endings[stop]

    def _encode(self, prompt: str) -> tuple[int, ...]:
        return tuple(self.tokenizer(prompt)["input_ids"])

    def _generation(self, prompt: tuple[int, ...], written: _Rows, row: int) -> Generation:
        length = int(written.lengths[row])
        tokens = tuple(written.tokens[row, :length].tolist())
        entropy = float(written.entropies[row, :length].mean())
        logprobs = tuple(written.logprobs[row, :length].tolist())
        return Generation(decode(self.tokenizer, tokens), prompt, tokens, logprobs, entropy, bool(written.stopped[row]))


def _waves(jobs: Sequence[_Job], rows: int) -> Iterator[list[_Job]]:
    """Jobs of similar prompt length, at most ``rows`` responses (at least one job) a wave, each wave sorted by slot."""
    wave: list[_Job] = []
    for job in sorted((job for job in jobs if job.request.samples > 0), key=lambda job: len(job.prompt)):
        if wave and sum(other.request.samples for other in wave) + job.request.samples > rows:
            yield sorted(wave, key=lambda other: other.request.slot)
            wave = []
        wave.append(job)
    if wave:
        yield sorted(wave, key=lambda other: other.request.slot)


def _empty_rows(rows: int, tokens: int) -> _Rows:
    floats = torch.zeros(rows, tokens)
    ints = torch.zeros(rows, dtype=torch.int64)
    return _Rows(torch.zeros(rows, tokens, dtype=torch.int64), floats, floats.clone(), ints, torch.zeros(rows, dtype=torch.bool))


def _one_each(slots: torch.Tensor, device: torch.device) -> Route:
    """Route of one token per row."""
    return Route.of(slots.tolist(), [1] * len(slots), device)


def _ended(ending: Ending, written: torch.Tensor, live: torch.Tensor, index: int) -> torch.Tensor:
    """Which of the live rows end with the token they just got."""
    tokens = written[live, index]
    ended = ending.is_eos[tokens]
    for row in torch.nonzero(ending.may_stop[tokens] & ~ended)[:, 0].tolist():
        ended[row] = ending.stops(written[live[row], : index + 1].tolist())
    return ended


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
