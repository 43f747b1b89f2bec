"""The rows that are decoded together: who enters, one token for each, who leaves.

A finished row's place is taken by the next response that waits, first of the adapter with the fewest rows: while each has work, all
adapters keep equally many rows, so that their segments of the batch are equal. Rows are sorted by adapter.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from populora.core.types import Request
from populora.engine.model.model import AdaptedModel
from populora.engine.model.packing import Group, pack
from populora.engine.sampling.decoders import Decoding, Steps
from populora.engine.sampling.token_sampling import BLOCK, Ending, Uniforms, choose

PREFILL_TOKENS = 16384  # prompts computed in one forward; a longer one alone
REFILL = 1 / 16  # share of the rows that must be free: prompts are prefilled together rather than one by one


@dataclass(eq=False)
class Row:
    """One response being written."""

    job: Job
    sample: int
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropy: float = 0.0
    """Sum over the tokens."""
    stopped: bool = False
    uniforms: np.ndarray = field(default_factory=lambda: np.empty(0))
    """Those of the current block of tokens."""

    def uniform(self) -> float:
        """The number for the next token."""
        place = len(self.tokens) % BLOCK
        if place == 0:
            self.uniforms = self.job.uniforms.block(self.sample, len(self.tokens) // BLOCK)
        return self.uniforms[place]


@dataclass(eq=False)
class Job:
    """A request on its way: ``done`` are its finished rows by sample; once prefilled, ``prompt_number`` names it in the cache and
    ``hidden`` [d] is the last state of its prompt, from which all its samples start."""

    request: Request
    prompt: tuple[int, ...]
    uniforms: Uniforms
    done: dict[int, Row] = field(default_factory=dict)
    prompt_number: int = -1
    hidden: torch.Tensor = field(default_factory=lambda: torch.empty(0))


class Rows:
    """At most ``limit`` rows of a model, each of at most ``max_tokens`` tokens. ``steps`` are made for as many rows, or more."""

    def __init__(self, adapted: AdaptedModel, ending: Ending, limit: int, max_tokens: int, temperature: float, steps: Steps | None = None):
        self.adapted, self.ending, self.limit, self.max_tokens, self.temperature = adapted, ending, limit, max_tokens, temperature
        self._waiting: defaultdict[int, deque[tuple[Job, int]]] = defaultdict(deque)
        self._rows: list[Row] = []
        self._hidden = adapted.head.weight.new_empty(0, adapted.head.in_features)
        self._steps = Decoding(adapted, limit).start() if steps is None else steps
        self._cache = self._steps.cache

    @property
    def busy(self) -> bool:
        """Whether there is anything to decode."""
        return bool(self._rows) or any(self._waiting.values())

    def add(self, jobs: Iterable[Job]) -> None:
        """Let the jobs' samples wait for rows."""
        for job in jobs:
            self._waiting[job.request.slot].extend((job, sample) for sample in range(job.request.samples))

    def step(self) -> list[Job]:
        """Fill free rows and write one token to each; returns the jobs that this finished."""
        free = self.limit - len(self._rows)
        if free and (not self._rows or free >= self.limit * REFILL):
            self._fill(self._next(free))
        live = [place for place, over in enumerate(self._write()) if not over]
        finished = self._leave(live)
        if live:
            self._hidden = self._steps([row.tokens[-1] for row in self._rows], [row.job.request.slot for row in self._rows])
        return finished

    def _next(self, free: int) -> list[tuple[Job, int]]:
        """Whose turn it is."""
        rows = Counter(row.job.request.slot for row in self._rows)
        turns = [(rows[slot], slot) for slot, waiting in self._waiting.items() if waiting]
        heapq.heapify(turns)
        chosen: list[tuple[Job, int]] = []
        while turns and len(chosen) < free:
            count, slot = heapq.heappop(turns)
            chosen.append(self._waiting[slot].popleft())
            if self._waiting[slot]:
                heapq.heappush(turns, (count + 1, slot))
        return chosen

    def _fill(self, chosen: Sequence[tuple[Job, int]]) -> None:
        if not chosen:
            return
        self._prefill([job for job in dict.fromkeys(job for job, _ in chosen) if job.prompt_number < 0])
        self._rows += [Row(job, sample) for job, sample in chosen]
        order = sorted(range(len(self._rows)), key=lambda place: self._rows[place].job.request.slot)
        self._cache.add_rows([job.prompt_number for job, _ in chosen])
        self._cache.keep_rows(np.array(order))
        states = torch.cat((self._hidden, torch.stack([job.hidden for job, _ in chosen])))
        self._hidden = states.index_select(0, torch.tensor(order, device=self.adapted.device))
        self._rows = [self._rows[place] for place in order]

    def _prefill(self, jobs: Sequence[Job]) -> None:
        """Run each prompt once."""
        for chunk in _chunks(sorted(jobs, key=lambda job: len(job.prompt))):
            packed = pack([Group(job.request.slot, job.prompt) for job in chunk], self.adapted.device, keep=True)
            hidden = self.adapted.forward(packed.ids, packed.positions, packed.route, packed.plan)[packed.last]
            numbers = self._cache.add_prompts(packed.plan.kept, [len(job.prompt) for job in chunk])
            for job, number, state in zip(chunk, numbers, hidden, strict=True):
                job.prompt_number, job.hidden = number, state

    def _write(self) -> list[bool]:
        """Choose each row's next token; returns which rows are over with it."""
        uniforms = torch.from_numpy(np.array([row.uniform() for row in self._rows]))
        tokens, logprobs, entropies = choose(self.adapted.logits(self._hidden), self.temperature, uniforms)
        over: list[bool] = []
        for row, token, logprob, entropy in zip(self._rows, tokens.tolist(), logprobs.tolist(), entropies.tolist(), strict=True):
            row.tokens.append(token)
            row.logprobs.append(logprob)
            row.entropy += entropy
            row.stopped = self.ending.ends(row.tokens)
            over.append(row.stopped or len(row.tokens) == self.max_tokens)
        return over

    def _leave(self, live: Sequence[int]) -> list[Job]:
        """Keep the live rows only; the jobs whose last row left."""
        if len(live) == len(self._rows):
            return []
        finished: list[Job] = []
        staying = set(live)
        for row in (row for place, row in enumerate(self._rows) if place not in staying):
            row.job.done[row.sample] = row
            if len(row.job.done) == row.job.request.samples:
                finished.append(row.job)
        self._cache.keep_rows(np.array(live, dtype=np.int64))
        self._cache.drop_prompts([job.prompt_number for job in finished])
        self._rows = [self._rows[place] for place in live]
        self._hidden = self._hidden[:0]
        return finished


def _chunks(jobs: Sequence[Job]) -> list[list[Job]]:
    """Jobs of similar prompt length, at most `PREFILL_TOKENS` a chunk, each sorted by slot."""
    chunks: list[list[Job]] = []
    filled = PREFILL_TOKENS
    for job in jobs:
        if filled + len(job.prompt) > PREFILL_TOKENS:
            chunks.append([])
            filled = 0
        chunks[-1].append(job)
        filled += len(job.prompt)
    return [sorted(chunk, key=lambda job: job.request.slot) for chunk in chunks]
