"""A small random Qwen2 with the tiny base's tokenizer and adapters that do something."""

import pytest
from experiments.tiny_base.tokenizer import build_tokenizer, vocabulary_size
from small_models import random_qwen2, randomise
from transformers import Qwen2ForCausalLM

from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.sampling.inprocess import InProcessSampler

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj")
SLOTS, RANK, ALPHA, CONTEXT = 3, 4, 8.0, 192


def random_base(hidden: int = 64) -> Qwen2ForCausalLM:
    size = vocabulary_size(build_tokenizer())
    return random_qwen2(vocab_size=size, hidden_size=hidden, intermediate_size=96, max_position_embeddings=CONTEXT, initializer_range=0.06)


def random_adapted(alpha: float = ALPHA, hidden: int = 64) -> AdaptedModel:
    return randomise(AdaptedModel(random_base(hidden), TARGETS, SLOTS, RANK, alpha))


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
