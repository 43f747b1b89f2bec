"""vLLM loads the shipped base and exported adapters, and writes what transformers and the in-process sampler write.

Skipped where vLLM is not installed: it pins its own versions of many libraries, so it has an environment of its own (`make test-vllm`).
"""

from importlib.resources import files

import pytest
import torch
from small_models import randomise
from transformers import AutoModelForCausalLM, AutoTokenizer
from vllm_tests import DEVICE

from populora.adapters.peft_format import load_adapter, save_adapter
from populora.cli.main import main
from populora.core.config import BaseConfig
from populora.core.types import Request
from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.model.loading import load_base
from populora.engine.sampling.inprocess import InProcessSampler
from populora.tasks.render import load_prompts, solve_prompt
from populora.training.evaluation import load_held_out

vllm = pytest.importorskip("vllm")
BASE = str(files("populora.engine.model").joinpath("tiny_base"))
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj")
TOKENS = 96


@pytest.fixture(scope="module")
def engine():
    return vllm.LLM(
        BASE, dtype="float32", enforce_eager=True, max_model_len=384, seed=0, logprobs_mode="processed_logprobs",
        enable_lora=True, max_lora_rank=8,
        kv_cache_memory_bytes=256 << 20, gpu_memory_utilization=0.05,  # else it would take most of a GPU from the other tests
    )  # fmt: skip


@pytest.fixture(scope="module")
def prompts():
    return [solve_prompt(load_prompts("compact"), problem) for problem in load_held_out(BaseConfig(), per_type=4)]


def greedy(engine, prompts, adapter=None):
    answers = engine.generate(prompts, vllm.SamplingParams(temperature=0, max_tokens=TOKENS, logprobs=0), lora_request=adapter)
    assert len(answers) == 12
    return answers


def test_the_base_gives_the_greedy_answers_of_transformers(engine, prompts):
    tokenizer, model = AutoTokenizer.from_pretrained(BASE), AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32)
    for prompt, answer in zip(prompts, greedy(engine, prompts), strict=True):
        ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
        assert answer.prompt_token_ids == ids[0].tolist()
        expected = model.generate(ids, max_new_tokens=TOKENS, do_sample=False)[0, ids.shape[1] :]
        tokens = list(answer.outputs[0].token_ids)
        assert tokens == expected.tolist()
        with torch.no_grad():
            logprobs = model(torch.cat([ids[0], expected])[None]).logits[0, ids.shape[1] - 1 : -1].log_softmax(-1)
        for position, token in enumerate(tokens):
            assert answer.outputs[0].logprobs[position][token].logprob == pytest.approx(float(logprobs[position, token]), abs=1e-4)


def test_exported_and_bred_adapters_give_the_answers_of_the_in_process_sampler(engine, prompts, tmp_path):
    model, tokenizer = load_base(BaseConfig(device=DEVICE))
    adapted = randomise(AdaptedModel(model, TARGETS, 2, rank=8, alpha=16.0), 0.05)
    folders = [tmp_path / name for name in ("S0", "S1", "child")]
    for slot, folder in enumerate(folders[:2]):
        save_adapter(adapted.bank.adapter(slot), folder, "tiny", TARGETS)
    assert main(["breed", *map(str, folders[:2]), "--operator", "x2", "-o", str(folders[2])]) == 0
    adapted.bank.load(1, load_adapter(folders[2]))
    sampler = InProcessSampler(adapted, tokenizer, seed=0)
    for slot, folder in ((0, folders[0]), (1, folders[2])):
        check_equal_answers(engine, prompts, sampler, slot, folder)


def check_equal_answers(engine, prompts, sampler, slot, folder):
    theirs = greedy(engine, prompts, vllm.lora.request.LoRARequest(folder.name, slot + 1, str(folder)))
    ours = sampler.generate([Request(prompt, slot, 1, (index,)) for index, prompt in enumerate(prompts)], TOKENS, 0.0, "")
    for answer, (response,) in zip(theirs, ours, strict=True):
        assert list(answer.outputs[0].token_ids) == list(response.tokens)
        logprobs = [at[token].logprob for at, token in zip(answer.outputs[0].logprobs, response.tokens, strict=True)]
        assert logprobs == pytest.approx(response.logprobs, abs=1e-4)
    bare = [list(answer.outputs[0].token_ids) for answer in greedy(engine, prompts)]
    assert bare != [list(response.tokens) for (response,) in ours]
