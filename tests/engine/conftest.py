"""A small random Qwen2 with the tiny base's tokenizer and adapters that do something; the same adapters in PEFT as oracle."""

from __future__ import annotations

import json

import pytest
import torch
from experiments.tiny_base.tokenizer import build_tokenizer, vocabulary_size
from peft import PeftModel
from safetensors.torch import save_file
from transformers import Qwen2Config, Qwen2ForCausalLM

from populora.engine.model.model import AdaptedModel
from populora.engine.sampling.inprocess import InProcessSampler

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj")
SLOTS, RANK, ALPHA, CONTEXT = 3, 4, 8.0, 192


def random_base(hidden: int = 64) -> Qwen2ForCausalLM:
    torch.manual_seed(0)
    shape = Qwen2Config(
        vocab_size=vocabulary_size(build_tokenizer()), hidden_size=hidden, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=96, max_position_embeddings=CONTEXT, tie_word_embeddings=True,
        initializer_range=0.06, pad_token_id=0, eos_token_id=1, bos_token_id=None, dtype="float32",
    )  # fmt: skip
    return Qwen2ForCausalLM(shape)


def random_adapted(alpha: float = ALPHA, hidden: int = 64) -> AdaptedModel:
    made = AdaptedModel(random_base(hidden), TARGETS, SLOTS, RANK, alpha)
    made.bank.initialise(0)
    made.bank.master += 0.1 * torch.randn(made.bank.master.shape, generator=torch.Generator().manual_seed(3))
    return made


@pytest.fixture(scope="session")
def make_base():
    return random_base


@pytest.fixture
def make_adapted():
    return random_adapted


@pytest.fixture(scope="session")
def tokenizer():
    return build_tokenizer()


@pytest.fixture
def adapted() -> AdaptedModel:
    return random_adapted()


@pytest.fixture
def sampler(adapted, tokenizer) -> InProcessSampler:
    return InProcessSampler(adapted, tokenizer, seed=7)


@pytest.fixture
def peft_model(adapted, tmp_path):
    """All slots as PEFT adapters "0", "1", ..., written as files by hand and loaded by PEFT."""
    for slot in range(SLOTS):
        folder = tmp_path / str(slot)
        folder.mkdir()
        settings = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": ALPHA, "target_modules": list(TARGETS)}
        (folder / "adapter_config.json").write_text(json.dumps(settings))
        factors = adapted.bank.adapter(slot).modules.items()
        tensors = {
            f"base_model.model.{name}.lora_{letter}.weight": x for name, pair in factors for letter, x in zip("AB", pair, strict=True)
        }
        save_file(tensors, folder / "adapter_model.safetensors")
    model = PeftModel.from_pretrained(random_base(), tmp_path / "0", adapter_name="0")
    for slot in range(1, SLOTS):
        model.load_adapter(tmp_path / str(slot), adapter_name=str(slot))
    return model.eval()
