"""Pretrain the tiny base from scratch: Qwen2 architecture, Muon for the matrices, AdamW for the rest.

The workers are processes of one thread that hold the same model: each takes every ``workers``-th row of a batch, gradients
are summed, all make the same update. At this size most of the time goes into small operations that threads do not speed up.
The loss is a mean weighted by token; the log counts the tokens that have a weight. The learning rate depends on the position
in the run alone and a checkpoint follows every shard, so a build resumes with the same result.
"""

import io
import json
import os
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from experiments.tiny_base.data import Batch, PretrainConfig, corpus_digest, prefetched
from experiments.tiny_base.tokenizer import build_tokenizer, vocabulary_size
from torch.multiprocessing.spawn import ProcessRaisedException, spawn
from transformers import Qwen2Config, Qwen2ForCausalLM

from populora.core.config import BaseConfig
from populora.core.errors import RunDirectoryError
from populora.core.files import disk_errors, write_file
from populora.core.rng import stream_key
from populora.engine.model.loading import load_base
from populora.sandbox.jail import die_with_parent

Model = Any
"""A ``Qwen2ForCausalLM``; transformers' own annotations do not survive type checkers."""


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


def start_from(model: Model, path: str) -> None:
    """Take over the weights of a base of the same shape whose tokens are the first of this model's. Raises `BaseModelError`."""
    base, tokenizer = load_base(BaseConfig(path=path))
    weights, known = base.state_dict(), len(tokenizer)
    embedding = model.get_input_embeddings().weight
    with torch.no_grad():
        embedding[:known] = weights["model.embed_tokens.weight"][:known]
    tied = {"model.embed_tokens.weight": embedding, "lm_head.weight": embedding}
    model.load_state_dict({**weights, **tied})


def make_optimizers(model: Model, config: PretrainConfig) -> list[torch.optim.Optimizer]:
    """Muon on the matrices of the layers, AdamW on embeddings, norms and biases. Every step sets its own learning rate."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    return [
        torch.optim.Muon(matrices, weight_decay=config.weight_decay, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, weight_decay=0.0, betas=(0.9, 0.95), fused=True),
    ]


def learning_rate(config: PretrainConfig, step: int, shards: float) -> float:
    """Within a stage: warm-up by its own ``step``, then constant, then linear decay; ``shards`` counts from the very start."""
    stage, index = config.place(shards)
    warm = min(1.0, (step + 1) / config.warmup_steps)
    return stage.learning_rate * warm * min(1.0, max(0.0, (stage.shards - index) / stage.decay_shards))


def loss_of(model: Model, batch: Batch, total: float, device: torch.device) -> torch.Tensor:
    """Weighted cross-entropy of some rows of a batch, divided by ``total``, the weight of the whole batch (nats a token)."""
    tokens, weights = (torch.from_numpy(part).to(device) for part in batch)
    hidden = model.model(input_ids=tokens, use_cache=False).last_hidden_state[:, :-1]
    wanted, weight = tokens[:, 1:].reshape(-1), weights[:, 1:].reshape(-1)
    kept = weight > 0
    logits = model.lm_head(hidden.reshape(-1, hidden.shape[-1])[kept])
    losses = F.cross_entropy(logits, wanted[kept], reduction="none")
    return (losses * weight[kept]).sum() / total


def pretrain(config: PretrainConfig, folder: Path, device: str = "cpu", progress: Callable[[dict], None] = lambda line: None) -> Model:
    """Train through all shards, or go on from the folder's checkpoint. Writes ``training_log.jsonl``.

    Raises `RunDirectoryError` for a checkpoint that is damaged or of another recipe, and for a full disk.
    """
    with disk_errors(folder, "create"):
        folder.mkdir(parents=True, exist_ok=True)
    checkpoint = folder / "checkpoint.pt"
    first = _checked(checkpoint, config)["state"]["shards"] if checkpoint.exists() else 0
    _cut_log(folder / "training_log.jsonl", first)
    if first < config.shards:
        _run_workers(config, folder, device, first, progress)
    model = new_model(config, vocabulary_size(build_tokenizer(config.languages)))
    model.load_state_dict(_checked(checkpoint, config)["model"])
    return model


def _cut_log(path: Path, shards: int) -> None:
    """Forget what a killed build logged beyond its last checkpoint."""
    lines = path.read_text().splitlines(keepends=True)[:shards] if path.exists() else []
    write_file(path, "".join(lines).encode())


def _run_workers(config: PretrainConfig, folder: Path, device: str, first: int, progress: Callable[[dict], None]) -> None:
    context = mp.get_context("spawn")
    queues, lines = [context.Queue() for _ in range(config.workers)], context.Queue()
    with tempfile.TemporaryDirectory() as meeting:
        workers: Any = spawn(
            _work, (os.getpid(), config, folder, device, f"file://{meeting}/store", queues, lines), config.workers, join=False
        )
        try:
            for batches in prefetched(config, first):
                for rank, queue in enumerate(queues):
                    queue.put([(part[0][rank :: config.workers], part[1][rank :: config.workers], part[1].sum()) for part in batches])
                while lines.empty():
                    workers.join(timeout=0.2)  # raises what a worker raised
                progress(lines.get())
        except ProcessRaisedException as error:
            _, known, said = str(error).rpartition(f"{RunDirectoryError.__name__}: ")
            if not known:
                raise
            raise RunDirectoryError(said.strip()) from error
        finally:
            for process in workers.processes:  # between shards a worker only waits, and its checkpoint is written
                process.terminate()
                process.join()


def _work(rank: int, parent: int, config: PretrainConfig, folder: Path, device: str, meeting: str, queues: list, lines: Any) -> None:
    """One worker: train on the rows that its queue brings until it is ended. Worker 0 also logs and saves."""
    die_with_parent(parent)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=config.workers)
    model = new_model(config, vocabulary_size(build_tokenizer(config.languages))).to(device)
    optimizers = make_optimizers(model, config)
    state = _resume(folder / "checkpoint.pt", config, model, optimizers, device)
    started = time.time()
    while True:
        batches = queues[rank].get()
        if config.place(state["shards"])[1] == 0:  # a stage begins
            optimizers, state["stage_began"] = make_optimizers(model, config), state["step"]
        loss = _train_shard(model, optimizers, config, batches, state, torch.device(device))
        if rank == 0:
            line = {**state, "loss": round(loss, 4), "seconds": round(time.time() - started, 1)}
            log_file = folder / "training_log.jsonl"
            with disk_errors(log_file), log_file.open("a") as log:
                log.write(json.dumps(line) + "\n")
            _save(folder / "checkpoint.pt", config, model, optimizers, state)
            lines.put(line)


def _train_shard(model, optimizers, config: PretrainConfig, batches: list, state: dict[str, int], device: torch.device) -> float:
    """One optimiser step a batch; returns the mean loss of the shard. Advances ``state``."""
    parameters, losses = list(model.parameters()), []
    for position, (tokens, weights, total) in enumerate(batches):
        rate = learning_rate(config, state["step"] - state["stage_began"], state["shards"] + position / len(batches))
        loss = loss_of(model, (tokens, weights), float(total), device)
        loss.backward()
        counts = torch.tensor([float(loss.detach()), float((weights > 0).sum())], dtype=torch.float64)
        dist.all_reduce(counts)
        _sum_gradients(parameters)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        losses.append(float(counts[0]))
        state["step"] += 1
        state["tokens"] += int(counts[1])
    state["shards"] += 1
    return float(np.mean(losses))


def _sum_gradients(parameters: list[torch.nn.Parameter]) -> None:
    """Add the gradients of all workers, in one message."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    dist.all_reduce(flat)
    for gradient, summed in zip(gradients, flat.split([gradient.numel() for gradient in gradients]), strict=True):
        gradient.copy_(summed.view_as(gradient))


def _checked(path: Path, config: PretrainConfig, device: str = "cpu") -> dict:
    if not zipfile.is_zipfile(path):  # what torch writes; half of one is none
        raise RunDirectoryError(f"'{path}' is damaged: expected a checkpoint of a build. Delete it to begin again.")
    saved = torch.load(path, weights_only=True, map_location=device)
    wanted = {**asdict(config), "corpus": corpus_digest(config)}
    changed = [name for name, value in wanted.items() if saved["config"].get(name) != value]
    if changed:
        raise RunDirectoryError(f"'{path}' belongs to another recipe (it differs in {', '.join(changed)}): choose another --work folder")
    return saved


def _resume(path: Path, config: PretrainConfig, model: Model, optimizers: list[torch.optim.Optimizer], device: str) -> dict[str, int]:
    """Counters of the checkpoint, or of the start."""
    if not path.exists():
        if config.start:
            start_from(model, config.start)
        return {"shards": 0, "step": 0, "tokens": 0, "stage_began": 0}
    saved = _checked(path, config, device)
    model.load_state_dict(saved["model"])
    if config.place(saved["state"]["shards"])[1] > 0:  # a stage that begins makes its own optimisers
        for optimizer, values in zip(optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(values)
    return saved["state"]


def _save(path: Path, config: PretrainConfig, model: Model, optimizers: list[torch.optim.Optimizer], state: dict[str, int]) -> None:
    content = {
        "model": model.state_dict(), "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "state": state, "config": {**asdict(config), "corpus": corpus_digest(config)},
    }  # fmt: skip
    packed = io.BytesIO()
    torch.save(content, packed)
    write_file(path, packed.getvalue())
