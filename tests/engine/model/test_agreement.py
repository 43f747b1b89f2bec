"""Sampler, learner and PEFT agree on the shipped base, each as far from float64 as float32 is."""

import pytest
import torch
from peft import PeftModel
from small_models import randomise
from transformers import AutoModelForCausalLM

from populora.adapters.peft_format import save_adapter
from populora.core.config import BaseConfig
from populora.core.types import Generation, Request
from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.model.loading import base_folder, load_base
from populora.engine.model.packing import PromptGroup
from populora.engine.sampling.inprocess import InProcessSampler
from populora.tasks.render import load_prompts, solve_prompt
from populora.training.evaluation import load_held_out

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj")


@pytest.fixture(scope="module")
def model_and_tokenizer():
    return load_base(BaseConfig())


@pytest.fixture(scope="module")
def adapted(model_and_tokenizer) -> AdaptedModel:
    return randomise(AdaptedModel(model_and_tokenizer[0], TARGETS, 1, rank=8, alpha=16.0), 0.02)


@pytest.fixture(scope="module")
def generations(adapted, model_and_tokenizer) -> list[Generation]:
    prompts = load_prompts("compact")
    problems = load_held_out(BaseConfig(), per_type=8)
    requests = [Request(solve_prompt(prompts, problem), 0, 4, (index,)) for index, problem in enumerate(problems)]
    sampler = InProcessSampler(adapted, model_and_tokenizer[1], seed=0)
    return [response for responses in sampler.generate(requests, 224, 1.0, prompts.stop) for response in responses]


def learners(adapted, generations) -> torch.Tensor:
    with torch.no_grad():
        return torch.cat([adapted.logprobs(adapted.pack([PromptGroup(0, made.prompt_tokens, (made.tokens,))]))[0] for made in generations])


def pefts(folder, generations, dtype) -> torch.Tensor:
    base = AutoModelForCausalLM.from_pretrained(base_folder(BaseConfig()), dtype=torch.float32)
    model = PeftModel.from_pretrained(base, folder).to(dtype).eval()
    logprobs = []
    for made in generations:
        ids, start = torch.tensor([[*made.prompt_tokens, *made.tokens]]), len(made.prompt_tokens) - 1
        with torch.no_grad():
            logprobs.append(model(ids).logits[0, start:-1].log_softmax(-1).gather(1, ids[0, start + 1 :, None])[:, 0])
    return torch.cat(logprobs)


@pytest.mark.slow
def test_all_logprobs_are_within_rounding_of_float64(adapted, generations, tmp_path):
    save_adapter(adapted.bank.adapter(0), tmp_path, "tiny", TARGETS)
    exact = pefts(tmp_path, generations, torch.float64)
    sampled = torch.tensor([value for made in generations for value in made.logprobs])
    trained = learners(adapted, generations)
    assert (sampled - trained).abs().max() < 1e-5
    for ours in (sampled, trained, pefts(tmp_path, generations, torch.float32)):
        difference = (ours.double() - exact).abs()
        assert difference.max() < 2e-5 and difference.quantile(0.999) < 1e-5


@pytest.mark.slow
def test_another_adapter_is_further_away_by_orders_of_magnitude(adapted, generations):
    """The negative control of the test above."""
    sampled = torch.tensor([value for made in generations for value in made.logprobs])
    kept = adapted.bank.master.clone()
    adapted.bank.master += 1e-4 * torch.randn(kept.shape, generator=torch.Generator().manual_seed(2))
    assert (sampled - learners(adapted, generations)).abs().max() > 1e-4
    adapted.bank.master.copy_(kept)
