"""vLLM loads the shipped base with its own tokenizer and gives transformers' greedy answers. Skipped where vLLM is not installed.

vLLM has no place in the development environment: it pins its own versions of many libraries. CONTRIBUTING.md says how to run this.
"""

from importlib.resources import files

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from populora.config import BaseConfig
from populora.heldout import load_held_out
from populora.tasks.render import load_prompts, solve_prompt

vllm = pytest.importorskip("vllm")
BASE = str(files("populora.base").joinpath("tiny"))


def test_vllm_gives_the_greedy_answers_of_transformers():
    prompts = [solve_prompt(load_prompts("compact"), problem) for problem in load_held_out(BaseConfig(path=BASE), per_type=8)]
    settings = vllm.SamplingParams(temperature=0, max_tokens=96, logprobs=0)
    engine = vllm.LLM(BASE, dtype="float32", enforce_eager=True, max_model_len=384, seed=0, logprobs_mode="processed_logprobs")
    answers = engine.generate(prompts, settings)
    tokenizer, model = AutoTokenizer.from_pretrained(BASE), AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32)
    assert len(answers) == 24
    for prompt, answer in zip(prompts, answers, strict=True):
        ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
        assert answer.prompt_token_ids == ids[0].tolist()
        expected = model.generate(ids, max_new_tokens=96, do_sample=False)[0, ids.shape[1] :]
        found = list(answer.outputs[0].token_ids)
        assert found == expected.tolist()
        with torch.no_grad():
            logprobs = model(torch.cat([ids[0], expected])[None]).logits[0, ids.shape[1] - 1 : -1].log_softmax(-1)
        for position, token in enumerate(found):
            assert answer.outputs[0].logprobs[position][token].logprob == pytest.approx(float(logprobs[position, token]), abs=1e-4)
