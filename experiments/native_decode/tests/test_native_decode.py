"""The decoding step in C gives the tokens and log-probabilities of torch's, for adapters of several ranks, prompts and lengths."""

from itertools import chain

import numpy as np
import pytest
import torch
from experiments.native_decode.decoder import make_pool, native_sampling
from experiments.native_decode.loading import load

from populora.core.config import BaseConfig
from populora.core.errors import BaseModelError
from populora.core.types import Request
from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.model.loading import load_base
from populora.engine.sampling.inprocess import InProcessSampler

compiled = pytest.mark.skipif(isinstance(load(), str), reason=f"decode.c cannot be compiled here: {load()}")
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make_sampler(targets: tuple[str, ...]) -> InProcessSampler:
    model, tokenizer = load_base(BaseConfig())
    adapted = AdaptedModel(model, targets, 3, 8, 16.0)
    adapted.bank.initialise(0, [8, 4, 2])
    noise = torch.randn(adapted.bank.master.shape, generator=torch.Generator().manual_seed(1))
    for slot, rank in enumerate((8, 4, 2)):
        adapted.bank.master[slot] += 0.02 * noise[slot]
        for a, b in adapted.bank.factors.values():
            a[slot, rank:], b[slot, :, rank:] = 0.0, 0.0
    return InProcessSampler(adapted, tokenizer, 0, rows=20)


@compiled
@pytest.mark.parametrize("targets", [TARGETS, ("q_proj", "v_proj"), ("down_proj",)])
@pytest.mark.parametrize("temperature", [1.0, 0.7, 0.0])
def test_responses_are_those_of_torch(targets, temperature):
    sampler = make_sampler(targets)
    requests = [
        Request("<solve><code_o>" + "x = 1\n" * number, slot, 3, ("t", slot, number)) for slot in (-1, 0, 1, 2) for number in range(5)
    ]
    expected = sampler.generate(requests, 40, temperature, "</answer>")
    with native_sampling(sampler, make_pool(sampler.adapted, 40)):
        responses = sampler.generate(requests, 40, temperature, "</answer>")
        again = sampler.generate(requests, 40, temperature, "</answer>")
    assert responses == again
    for theirs, ours in zip(chain.from_iterable(expected), chain.from_iterable(responses), strict=True):
        assert ours.tokens == theirs.tokens and ours.stopped == theirs.stopped
        differences = np.abs(np.subtract(ours.logprobs, theirs.logprobs))  # a badly conditioned token differs more than others
        assert differences.mean() < 1e-5 and differences.max() < 1e-3
        assert ours.entropy == pytest.approx(theirs.entropy, abs=1e-5)


@compiled
def test_a_model_on_two_threads_is_left_to_torch():
    torch.set_num_threads(2)
    with pytest.raises(BaseModelError, match="one thread"):
        make_pool(make_sampler(("q_proj",)).adapted, 8)
