"""The recipe of the tiny base, and its corpus cut into batches: a pure function of the recipe, shard by shard.

Documents come from a named stream per shard; rows are sorted by length, cut at ``batch_tokens`` and shuffled by another.
Rows are padded on the right, so causal attention needs no mask.
"""

import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from typing import Any

import numpy as np
from experiments.tiny_base.corpus import Document, draw_shard
from experiments.tiny_base.mixtures import MIXTURES, Mixture
from experiments.tiny_base.tokenizer import build_tokenizer

from populora.core.rng import stream
from populora.sandbox.jail import die_with_parent


@dataclass(frozen=True)
class Stage:
    """One course of training: fresh optimisers, a warm-up, a constant learning rate, then a linear decay to zero."""

    learning_rate: float
    phases: tuple[tuple[str, int], ...]
    """What the corpus is made of, in order: names of `MIXTURES` with their numbers of shards."""
    decay_shards: int
    """Over the last shards of the stage the learning rate falls."""

    @property
    def shards(self) -> int:
        return sum(count for _, count in self.phases)


FIRST = Stage(4e-3, (("short", 6), ("reasoning", 1), ("execution", 10), ("reasoning", 17), ("final", 14)), decay_shards=28)
SECOND = Stage(3e-3, (("searching", 10), ("finished", 12)), decay_shards=19)
THIRD = Stage(3e-3, (("guessing", 16), ("settling", 4), ("settled", 26)), decay_shards=36)
FOURTH = Stage(3e-3, (("summarising", 20),), decay_shards=20)


@dataclass(frozen=True)
class PretrainConfig:
    """Settings of a build. Lengths and batch sizes are in tokens."""

    seed: int = 0
    hidden: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int = 4
    feed_forward: int = 512
    context: int = 512
    shard_documents: int = 8192
    """Documents a shard."""
    stages: tuple[Stage, ...] = (FIRST, SECOND, THIRD, FOURTH)
    warmup_steps: int = 20
    weight_decay: float = 0.05
    batch_tokens: int = 8192
    workers: int = 2
    """Processes of one thread each that share every batch; their gradients are summed."""
    prompt_weight: float = 0.03
    """Loss weight of prompt tokens."""
    languages: tuple[str, ...] = ("python",)
    """Whose tokens the tokenizer has: ``python``, or ``python`` and ``sql``."""
    start: str = ""
    """A base to start from, as `BaseConfig.path`: its tokens keep their embeddings. Empty: from scratch."""

    @property
    def shards(self) -> int:
        return sum(stage.shards for stage in self.stages)

    def place(self, shards: float) -> tuple[Stage, float]:
        """The stage that is under way after so many shards, and how many of them were its own. The last takes what is left."""
        for stage in self.stages[:-1]:
            if shards < stage.shards:
                return stage, shards
            shards -= stage.shards
        return self.stages[-1], shards


Batch = tuple[np.ndarray, np.ndarray]
"""Token ids [rows, length] and loss weights [rows, length], both padded on the right with zeros."""


@dataclass(frozen=True)
class Row:
    """One tokenised document and the loss weights of its tokens."""

    tokens: list[int]
    weights: list[float]


def mixture_of(config: PretrainConfig, index: int) -> Mixture:
    """The corpus phase that a shard belongs to."""
    stage, place = config.place(index)
    ends = np.cumsum([count for _, count in stage.phases])
    return MIXTURES[stage.phases[int(np.searchsorted(ends, place, side="right"))][0]]


def tokenised(documents: list[Document], prompt_weight: float, languages: tuple[str, ...] = ("python",)) -> list[Row]:
    """Documents as rows; each ends with the end-of-text token, which weighs what the piece before it does."""
    tokenizer: Any = build_tokenizer(languages)
    prompts = tokenizer([document.prompt for document in documents])["input_ids"]
    pieces = iter(tokenizer([text for document in documents for text, _ in document.pieces])["input_ids"])
    rows = []
    for document, prompt in zip(documents, prompts, strict=True):
        tokens, weights = list(prompt), [0.0, *[prompt_weight] * (len(prompt) - 1)]  # nothing predicts the first token
        for _, weight in document.pieces:
            piece = next(pieces)
            tokens += piece
            weights += [weight] * len(piece)
        rows.append(Row([*tokens, tokenizer.eos_token_id], [*weights, document.pieces[-1][1]]))
    return rows


def shard_batches(config: PretrainConfig, index: int) -> list[Batch]:
    """Batches of one shard: documents sorted by length, cut at ``batch_tokens``, shuffled by a named stream."""
    documents = draw_shard(config.seed, index, config.shard_documents, mixture_of(config, index))
    rows = tokenised(documents, config.prompt_weight, config.languages)
    rows = sorted((row for row in rows if len(row.tokens) <= config.context), key=lambda row: len(row.tokens))
    batches: list[Batch] = []
    start = 0
    while start < len(rows):
        stop = start + 1
        while stop < len(rows) and _padded(rows[stop]) * (stop + 1 - start) <= config.batch_tokens:
            stop += 1
        batches.append(_batch(rows[start:stop]))
        start = stop
    batches = [batch for batch in batches if len(batch[0]) >= config.workers]  # at most the last: a row for every worker
    order = stream(config.seed, "corpus-order", index).permutation(len(batches))
    return [batches[position] for position in order]


def _padded(row: Row) -> int:
    return -(-len(row.tokens) // 8) * 8


def _batch(rows: list[Row]) -> Batch:
    shape = len(rows), _padded(rows[-1])
    tokens, weights = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.float32)
    for index, row in enumerate(rows):
        tokens[index, : len(row.tokens)] = row.tokens
        weights[index, : len(row.weights)] = row.weights
    return tokens, weights


@cache
def corpus_digest(config: PretrainConfig) -> str:
    """SHA-256 over the tokenizer and the first documents of every phase: another grammar, trace or mixture is another recipe.

    It also differs between Python versions that print syntax trees in another way, and with them the held-out split.
    """
    digest = hashlib.sha256(build_tokenizer(config.languages).backend_tokenizer.to_str().encode())
    phases = [phase for stage in config.stages for phase in stage.phases]
    for index in np.cumsum([0, *(count for _, count in phases[:-1])]).tolist():  # the first shard of every phase
        for document in draw_shard(config.seed, index, 64, mixture_of(config, index)):
            digest.update(f"{document.kind}\0{document.prompt}\0{document.pieces!r}\0".encode())
    return digest.hexdigest()


def prefetched(config: PretrainConfig, first: int) -> Iterator[list[Batch]]:
    """Shards from ``first`` on, the next ones being drawn by a worker process meanwhile. It ends with this process, however that ends."""
    with ProcessPoolExecutor(1, get_context("spawn"), die_with_parent, (os.getpid(),)) as pool:
        waiting = [pool.submit(shard_batches, config, index) for index in range(first, min(first + 2, config.shards))]
        for index in range(first, config.shards):
            batches = waiting.pop(0).result()
            if index + 2 < config.shards:
                waiting.append(pool.submit(shard_batches, config, index + 2))
            yield batches
