"""Pretrain the tiny base from scratch: Qwen2 architecture, Muon for the matrices, AdamW for the rest.

The recipe is a pure function of its settings: the corpus is drawn shard by shard from a named stream, batches are formed
and shuffled per shard, and the learning rate depends on the position in the run alone. A checkpoint after every shard makes the
build resumable with the same result. Rows are padded on the right, so causal attention needs no mask; the loss is the
mean over response tokens plus ``prompt_weight`` on prompt tokens. bfloat16 autocast is used for matrix products.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from transformers import Qwen2Config, Qwen2ForCausalLM

from populora.base.corpus import FINAL, REASONING, SHORT, Mixture, draw_shard
from populora.base.tokenizer import build_tokenizer, vocabulary_size
from populora.errors import RunDirectoryError
from populora.rng import stream, stream_key


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
    shards: int = 140
    shard_documents: int = 8192
    """Documents a shard; one shard is about 0.85 million tokens."""
    short_shards: int = 12
    """The first shards hold mostly short programs."""
    decay_shards: int = 70
    """Over the last shards the learning rate falls linearly to zero."""
    final_shards: int = 36
    """In the last shards most answers are direct."""
    warmup_steps: int = 50
    learning_rate: float = 3e-3
    weight_decay: float = 0.05
    batch_tokens: int = 4096
    prompt_weight: float = 0.03
    propose_weight: float = 0.4
    """Loss weights of prompt tokens and, before the final shards, of proposers' responses (a solver's response: 1). Most of
    their entropy is the generator's dice, which nobody can learn; with full weight it drowns the gradient of execution."""


Model = Any
"""A ``Qwen2ForCausalLM``; transformers' own annotations do not survive type checkers."""

Batch = tuple[np.ndarray, np.ndarray]
"""Token ids [rows, length] and loss weights [rows, length], both padded on the right with zeros."""


@dataclass(frozen=True)
class Row:
    """One tokenised document and the loss weight of its response tokens."""

    prompt: list[int]
    response: list[int]
    weight: float

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.response)


def new_model(config: PretrainConfig, vocabulary: int) -> Model:
    """A freshly initialised Qwen2 with tied embeddings."""
    torch.manual_seed(stream_key(config.seed, "base-init") % 2**63)
    shape = Qwen2Config(
        vocab_size=vocabulary, hidden_size=config.hidden, num_hidden_layers=config.layers,
        num_attention_heads=config.heads, num_key_value_heads=config.kv_heads, intermediate_size=config.feed_forward,
        max_position_embeddings=config.context,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0}, tie_word_embeddings=True, pad_token_id=0,
        eos_token_id=1, bos_token_id=None, dtype="float32",
    )  # fmt: skip
    return Qwen2ForCausalLM(shape)


def mixture_of(config: PretrainConfig, index: int) -> Mixture:
    """The corpus phase that a shard belongs to."""
    if index >= config.shards - config.final_shards:
        return FINAL
    return SHORT if index < config.short_shards else REASONING


def shard_batches(config: PretrainConfig, index: int) -> list[Batch]:
    """Batches of one shard: documents sorted by length, cut at ``batch_tokens``, shuffled by a named stream."""
    tokenizer: Any = build_tokenizer()
    documents = draw_shard(config.seed, index, config.shard_documents, mixture_of(config, index))
    prompts = tokenizer([document.prompt for document in documents])["input_ids"]
    responses = tokenizer([document.response for document in documents])["input_ids"]
    proposing = 1.0 if mixture_of(config, index) is FINAL else config.propose_weight
    weights = [proposing if document.kind.startswith("propose") else 1.0 for document in documents]
    rows = [
        Row(prompt, [*response, tokenizer.eos_token_id], weight)
        for prompt, response, weight in zip(prompts, responses, weights, strict=True)
    ]
    rows = sorted((row for row in rows if row.length <= config.context), key=lambda row: row.length)
    batches: list[Batch] = []
    start = 0
    while start < len(rows):
        stop = start + 1
        while stop < len(rows) and _padded(rows[stop]) * (stop + 1 - start) <= config.batch_tokens:
            stop += 1
        batches.append(_batch(rows[start:stop], config.prompt_weight))
        start = stop
    order = stream(config.seed, "corpus-order", index).permutation(len(batches))
    return [batches[position] for position in order]


def _padded(row: Row) -> int:
    return -(-row.length // 8) * 8


def _batch(rows: list[Row], prompt_weight: float) -> Batch:
    length = _padded(rows[-1])
    tokens = np.zeros((len(rows), length), dtype=np.int64)
    weights = np.zeros((len(rows), length), dtype=np.float32)
    for index, row in enumerate(rows):
        tokens[index, : row.length] = row.prompt + row.response
        weights[index, 1 : len(row.prompt)] = prompt_weight
        weights[index, len(row.prompt) : row.length] = row.weight
    return tokens, weights


def prefetched(config: PretrainConfig, first: int) -> Iterator[tuple[int, list[Batch]]]:
    """Shards from ``first`` on, the next ones being drawn by a worker process meanwhile."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(shard_batches, config, first + ahead) for ahead in range(2)]
        index = first
        while True:
            batches = waiting.pop(0).result()
            waiting.append(pool.submit(shard_batches, config, index + 2))
            yield index, batches
            index += 1


def make_optimizers(model: Model, config: PretrainConfig) -> list[torch.optim.Optimizer]:
    """Muon on the matrices of the layers, AdamW on embeddings, norms and biases."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    rate, decay = config.learning_rate, config.weight_decay
    return [
        torch.optim.Muon(matrices, lr=rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=rate, weight_decay=0.0, betas=(0.9, 0.95), fused=True),
    ]


def learning_rate(config: PretrainConfig, step: int, shards: float) -> float:
    """Warm-up by steps, then constant, then linear decay over the last ``decay_shards``."""
    warm = min(1.0, (step + 1) / config.warmup_steps)
    return config.learning_rate * warm * min(1.0, max(0.0, (config.shards - shards) / config.decay_shards))


def loss_of(model: Model, batch: Batch, device: torch.device) -> torch.Tensor:
    """Weighted mean cross-entropy (nats per weighted token) of one batch."""
    tokens, weights = (torch.from_numpy(part).to(device) for part in batch)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        hidden = model.model(input_ids=tokens, use_cache=False).last_hidden_state[:, :-1]
        wanted, weight = tokens[:, 1:].reshape(-1), weights[:, 1:].reshape(-1)
        kept = weight > 0
        logits = model.lm_head(hidden.reshape(-1, hidden.shape[-1])[kept])
    losses = F.cross_entropy(logits.float(), wanted[kept], reduction="none")
    return (losses * weight[kept]).sum() / weight.sum()


def pretrain(
    config: PretrainConfig, folder: Path, threads: int = 2, device: str = "cpu", progress: Callable[[dict], None] = lambda line: None
) -> Model:
    """Train through all shards, or go on from the folder's checkpoint. Writes ``training_log.jsonl``."""
    torch.set_num_threads(threads)
    folder.mkdir(parents=True, exist_ok=True)
    model = new_model(config, vocabulary_size(build_tokenizer())).to(device)
    optimizers = make_optimizers(model, config)
    state = _resume(folder / "checkpoint.pt", config, model, optimizers, device)
    started = time.time()
    for index, batches in prefetched(config, state["shards"]):
        losses = _train_shard(model, optimizers, config, index, batches, state, torch.device(device))
        state["shards"] = index + 1
        line = {**state, "loss": round(float(np.mean(losses)), 4), "seconds": round(time.time() - started, 1)}
        with (folder / "training_log.jsonl").open("a") as log:
            log.write(json.dumps(line) + "\n")
        progress(line)
        before_decay = state["shards"] <= config.shards - config.decay_shards
        _save(folder, config, model, optimizers, state, ["checkpoint.pt", *(["stable.pt"] if before_decay else [])])
        if state["shards"] == config.shards:
            break
    return model


def _train_shard(model, optimizers, config: PretrainConfig, index: int, batches: list[Batch], state: dict[str, int], device) -> list[float]:
    losses = []
    for position, batch in enumerate(batches):
        rate = learning_rate(config, state["step"], index + position / len(batches))
        loss = loss_of(model, batch, device)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        losses.append(float(loss.detach()))
        state["step"] += 1
        state["tokens"] += int((batch[1] > 0).sum())
    return losses


def _resume(path: Path, config: PretrainConfig, model: Model, optimizers: list[torch.optim.Optimizer], device: str) -> dict[str, int]:
    """Counters of the checkpoint, or of the start. Raises `RunDirectoryError` for a checkpoint of another recipe."""
    if not path.exists():
        return {"shards": 0, "step": 0, "tokens": 0}
    saved = torch.load(path, weights_only=True, map_location=device)
    changed = [name for name, value in asdict(config).items() if saved["config"].get(name) != value]
    if changed:
        raise RunDirectoryError(f"'{path}' belongs to another recipe (it differs in {', '.join(changed)}): choose another --work folder")
    model.load_state_dict(saved["model"])
    for optimizer, values in zip(optimizers, saved["optimizers"], strict=True):
        optimizer.load_state_dict(values)
    return saved["state"]


def _save(folder: Path, config, model, optimizers, state: dict[str, int], names: list[str]) -> None:
    content = {
        "model": model.state_dict(), "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "state": state, "config": asdict(config),
    }  # fmt: skip
    for name in names:
        torch.save(content, folder / f"{name}.part")
        (folder / f"{name}.part").replace(folder / name)
