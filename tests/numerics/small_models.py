"""Small random models, adapters that do something, and rows to learn from."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from populora.engine.learning.batching import TrainRow
from populora.engine.model.adapted_model import AdaptedModel


def random_qwen2(**changes: Any) -> Qwen2ForCausalLM:
    """Make a Qwen2 of two layers; equal settings give equal weights."""
    torch.manual_seed(0)
    shape: dict[str, Any] = {
        "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 64, "max_position_embeddings": 128, "tie_word_embeddings": True, "initializer_range": 0.05,
        "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None, "dtype": "float32",
    }  # fmt: skip
    return Qwen2ForCausalLM(Qwen2Config(**(shape | changes)))


def randomise(adapted: AdaptedModel, scale: float = 0.1) -> AdaptedModel:
    """Initialise all adapters and add noise, so that each of them changes the model."""
    adapted.bank.initialise(0)
    noise = torch.randn(adapted.bank.master.shape, generator=torch.Generator().manual_seed(3))
    adapted.bank.master += scale * noise.to(adapted.device)
    adapted.bank.sync()
    return adapted


def random_rows(seed: int, prompts: Mapping[int, int], longest: int) -> list[TrainRow]:
    """Make rows in random order: ``prompts`` of each slot with three responses each. The old log-probabilities are made up."""
    rng = np.random.default_rng(seed)
    rows = []
    for slot in [slot for slot, count in prompts.items() for _ in range(count)]:
        prompt = rng.integers(2, 96, int(rng.integers(1, 20))).tolist()
        for _ in range(3):
            tokens = rng.integers(2, 96, int(rng.integers(1, longest + 1))).tolist()
            old = rng.normal(-4.5, 1.0, len(tokens)).tolist()
            rows.append(TrainRow(slot, prompt, tokens, old, float(rng.normal())))
    return [rows[index] for index in rng.permutation(len(rows))]
