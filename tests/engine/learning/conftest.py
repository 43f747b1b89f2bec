"""A small random Qwen2 with adapters that do something, and the same adapters in PEFT: the oracle."""

import pytest
from peft import LoraConfig, get_peft_model
from small_models import random_qwen2, random_rows, randomise

from populora.engine.learning.batching import TrainRow
from populora.engine.model.adapted_model import AdaptedModel

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "down_proj")
SLOTS, RANK, ALPHA = 4, 4, 12.0


@pytest.fixture
def adapted() -> AdaptedModel:
    return randomise(AdaptedModel(random_qwen2(), TARGETS, SLOTS, RANK, ALPHA))


@pytest.fixture
def peft_model(adapted):
    """All slots as PEFT adapters "0", "1", ... on a base of its own, trainable."""
    config = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=list(TARGETS), lora_dropout=0.0, bias="none")
    model = get_peft_model(random_qwen2(), config, adapter_name="0")
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
    """``make_rows(seed, slots)``: rows of several lengths."""

    def make(seed: int, slots=range(SLOTS)) -> list[TrainRow]:
        return random_rows(seed, {slot: 2 + slot % 2 for slot in slots}, longest=15)

    return make
