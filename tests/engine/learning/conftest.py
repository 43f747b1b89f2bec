"""A small random Qwen2 with adapters that do something, and the same adapters in PEFT: the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from peft import LoraConfig, get_peft_model
from small_models import random_qwen2, randomise

from populora.engine.learning.batching import TrainRow
from populora.engine.model.model import AdaptedModel

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "down_proj")
SLOTS, RANK, ALPHA, VOCABULARY = 4, 4, 12.0, 96


@pytest.fixture
def adapted() -> AdaptedModel:
    return randomise(AdaptedModel(random_qwen2(vocab_size=VOCABULARY), TARGETS, SLOTS, RANK, ALPHA))


@pytest.fixture
def peft_model(adapted):
    """All slots as PEFT adapters "0", "1", ... on a base of its own, trainable."""
    config = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=list(TARGETS), lora_dropout=0.0, bias="none")
    model = get_peft_model(random_qwen2(vocab_size=VOCABULARY), config, adapter_name="0")
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
