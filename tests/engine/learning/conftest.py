"""A small random Qwen2 with adapters that do something, and the same adapters in PEFT: the oracle."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import Qwen2Config, Qwen2ForCausalLM

from populora.engine.learning.batching import TrainRow
from populora.engine.model.model import AdaptedModel

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "down_proj")
SLOTS, RANK, ALPHA, VOCABULARY = 4, 4, 12.0, 96


def random_base() -> Qwen2ForCausalLM:
    torch.manual_seed(0)
    shape = Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=64,
        max_position_embeddings=128, tie_word_embeddings=True, initializer_range=0.05, pad_token_id=0, eos_token_id=1,
        bos_token_id=None, dtype="float32",
    )  # fmt: skip
    return Qwen2ForCausalLM(shape)


@pytest.fixture
def adapted() -> AdaptedModel:
    made = AdaptedModel(random_base(), TARGETS, SLOTS, RANK, ALPHA)
    made.bank.initialise(0)
    made.bank.master += 0.1 * torch.randn(made.bank.master.shape, generator=torch.Generator().manual_seed(3))
    return made


@pytest.fixture
def peft_model(adapted):
    """All slots as PEFT adapters "0", "1", ... on a base of its own, trainable."""
    config = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=list(TARGETS), lora_dropout=0.0, bias="none")
    model = get_peft_model(random_base(), config, adapter_name="0")
    for slot in range(1, SLOTS):
        model.add_adapter(str(slot), config)
    for slot in range(SLOTS):
        for name, (a, b) in adapted.bank.adapter(slot).modules.items():
            layer = model.base_model.model.get_submodule(name)
            layer.lora_A[str(slot)].weight.data.copy_(a)
            layer.lora_B[str(slot)].weight.data.copy_(b)
    return model.eval()


@pytest.fixture
def make_rows():
    """``make_rows(seed, slots)``: rows of several lengths in random order, three to a prompt; old log-probabilities are made up."""

    def make(seed: int, slots=range(SLOTS)) -> list[TrainRow]:
        rng = np.random.default_rng(seed)
        rows = []
        for slot in slots:
            for _ in range(2 + slot % 2):
                prompt = rng.integers(2, VOCABULARY, int(rng.integers(1, 20))).tolist()
                for _ in range(3):
                    tokens = rng.integers(2, VOCABULARY, int(rng.integers(1, 16))).tolist()
                    old = rng.normal(-4.5, 1.0, len(tokens)).tolist()
                    rows.append(TrainRow(slot, prompt, tokens, old, float(rng.normal())))
        return [rows[index] for index in rng.permutation(len(rows))]

    return make
