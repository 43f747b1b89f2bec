"""What every sampling backend has to do: the same tests of the in-process sampler, of vLLM, and of two of either in Ray's actors, with PEFT
as oracle.

vLLM pins its own versions of many libraries and has an environment of its own (`make test-vllm`); elsewhere its half is skipped. On a
CPU it is asked in float32, so that tokens and log-probabilities can be compared one by one.
"""

import pickle
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from actor_processes import actors, kill
from draws import PROMPTS, STOP, difference, requests_of, same_draws
from greedy import greedy_tokens
from peft import PeftModel
from small_models import randomise
from transformers import AutoModelForCausalLM
from vllm_tests import DEVICE, needs_vllm

from populora.adapters.peft_format import save_adapter
from populora.core.config import BaseConfig, ClusterConfig, Config, EngineConfig, LoraConfig
from populora.core.errors import ConfigError
from populora.core.types import Request
from populora.engine.cluster.actor_pool import ActorPool
from populora.engine.cluster.adapter_holders import holders_of
from populora.engine.cluster.cluster_sampler import ClusterSampler
from populora.engine.cluster.placement import join_ray
from populora.engine.cluster.ray_backend import engine_pool
from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.sampling.inprocess import InProcessSampler
from populora.engine.sampling.vllm import VllmSampler

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj")
SLOTS, RANK, ALPHA, CONTEXT, SEED = 8, 8, 16.0, 192, 7
ALL = (*range(SLOTS), -1)
REQUESTS = requests_of(ALL)
LONG = "def h(x):\n" + "    x = x * 2 + 1\n" * 9
NOISE = 1e-4
"""Of other batch shapes, in log-probabilities."""

needs_ray = pytest.mark.skipif(not find_spec("ray"), reason="Ray is not installed: make test-ray")


def clustered(settings: Config, backend: str) -> Config:
    """Two engines as Ray actors, each with half of the adapters, and with the context of the model that all are asked with."""
    lengths = replace(settings.selfplay, overlap="eager", max_prompt_tokens=CONTEXT // 2, max_response_tokens=CONTEXT // 2)
    engine = EngineConfig(backend=backend, cache_mb=64)
    return replace(settings, selfplay=lengths, engine=engine, cluster=ClusterConfig(learners=1, engines=2, adapter_copies=1))


@pytest.fixture(scope="module")
def base(tmp_path_factory, make_base, tokenizer) -> Path:
    folder = tmp_path_factory.mktemp("base")
    make_base(hidden=128).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def settings(base) -> Config:
    return Config(
        seed=SEED, base=BaseConfig(path=str(base), device=DEVICE), lora=LoraConfig(RANK, ALPHA, TARGETS), engine=EngineConfig(cache_mb=64)
    )


@pytest.fixture(scope="module")
def adapted(base) -> AdaptedModel:
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).to(DEVICE)
    return randomise(AdaptedModel(model, TARGETS, SLOTS, RANK, ALPHA))


@pytest.fixture(
    scope="module",
    params=[
        "inprocess",
        pytest.param("vllm", marks=needs_vllm),
        pytest.param("two inprocess engines", marks=[needs_ray, pytest.mark.ray]),
        pytest.param("two vllm engines", marks=[needs_vllm, needs_ray, pytest.mark.ray, pytest.mark.thorough]),
    ],
)
def sampler(request, adapted, settings, tokenizer):
    if request.param == "inprocess":
        yield InProcessSampler(adapted, tokenizer, SEED)
        return
    if request.param.startswith("two"):
        with join_ray(engines := clustered(settings, request.param.split()[1])) as cluster:
            pool, holders = engine_pool(engines, cluster, published := {}), holders_of(SLOTS, engines.cluster)
            made = ClusterSampler(pool, published, holders, torch.float32, eager=True)
            made.sync_weights(adapted.bank, range(SLOTS))
            yield made
        return
    with closing(VllmSampler(settings, tokenizer, SLOTS, CONTEXT)) as made:
        made.sync_weights(adapted.bank, range(SLOTS))
        yield made


@pytest.fixture(scope="module")
def peft_model(base, adapted, tmp_path_factory):
    """All slots as PEFT adapters "0", "1", …"""
    folder = tmp_path_factory.mktemp("peft")
    for slot in range(SLOTS):
        save_adapter(adapted.bank.adapter(slot), folder / str(slot), str(base), TARGETS)
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), folder / "0", adapter_name="0")
    for slot in range(1, SLOTS):
        model.load_adapter(folder / str(slot), adapter_name=str(slot))
    return model.eval()


def pefts(model, slot: int, ids: torch.Tensor, run):
    if slot < 0:
        with model.disable_adapter(), torch.no_grad():
            return run(ids)
    model.set_adapter(str(slot))
    with torch.no_grad():
        return run(ids)


@pytest.mark.slow
def test_greedy_tokens_of_eight_adapters_and_the_base_in_one_batch_are_those_of_peft(sampler, peft_model, tokenizer):
    asked = requests_of(ALL, samples=1)
    different = set()
    for request, (ours,) in zip(asked, sampler.generate(asked, 80, 0.0, ""), strict=True):
        ids = tokenizer(request.prompt, return_tensors="pt")["input_ids"]
        theirs = pefts(peft_model, request.slot, ids, lambda prompt: greedy_tokens(peft_model, prompt, 80))
        assert list(ours.prompt_tokens) == ids[0].tolist()
        assert list(ours.tokens) == theirs
        assert ours.stopped == (ours.tokens[-1] == tokenizer.eos_token_id)
        different.add(tuple(ours.tokens))
    assert len(different) > 2 * len(PROMPTS)  # the adapters do something


def test_log_probabilities_of_sampled_tokens_are_those_of_peft(sampler, peft_model):
    results = sampler.generate(REQUESTS, 40, 1.0, STOP)
    assert [len(responses) for responses in results] == [3] * len(REQUESTS)
    for request, responses in zip(REQUESTS, results, strict=True):
        for response in responses:
            ids = torch.tensor([[*response.prompt_tokens, *response.tokens]])
            start = len(response.prompt_tokens)
            logits = pefts(peft_model, request.slot, ids, lambda tokens: peft_model(tokens).logits)[0, start - 1 : -1]
            expected = logits.log_softmax(-1).gather(1, ids[0, start:, None])[:, 0]
            tolerance = 1e-5 if isinstance(sampler, InProcessSampler) else 1e-4  # vLLM has kernels of its own
            assert float((expected - torch.tensor(response.logprobs)).abs().max()) < tolerance


def test_an_answer_has_four_bytes_for_each_token_and_each_log_probability_and_shares_its_prompt(sampler):
    (answers,) = sampler.generate([Request(PROMPTS[0], 0, 3, ("compact",))], 20, 1.0, STOP)
    for answer in answers:
        values = [memoryview(part) for part in (answer.prompt_tokens, answer.tokens, answer.logprobs)]
        assert [(value.format, value.itemsize) for value in values] == [("i", 4), ("i", 4), ("f", 4)]
        assert pickle.loads(pickle.dumps(answer)) == answer != replace(answer, logprobs=answer.logprobs[:-1])
    assert len({id(answer.prompt_tokens) for answer in answers}) == 1


def test_a_request_with_a_seed_of_its_own_does_not_draw_by_the_runs(sampler):
    """Its draws are those of its key with that seed; with the run's own it is any other request."""
    tokens = {}
    for seed in (None, SEED, SEED + 1):
        (responses,) = sampler.generate([Request(PROMPTS[0], 0, 4, ("seeded",), seed=seed)], 40, 1.0, STOP)
        tokens[seed] = [response.tokens for response in responses]
    assert tokens[None] == tokens[SEED] != tokens[SEED + 1]


def test_the_mean_entropy_is_that_of_what_was_drawn_from(sampler, adapted, tokenizer):
    """vLLM only estimates it, from the tokens that were drawn."""
    results = sampler.generate([Request(PROMPTS[0], 0, 64, ("entropy",))], 40, 1.0, STOP)[0]
    exact = InProcessSampler(adapted, tokenizer, SEED + 1).generate([Request(PROMPTS[0], 0, 64, ("entropy",))], 40, 1.0, STOP)[0]
    mean, expected = (sum(response.entropy for response in responses) / 64 for responses in (results, exact))
    assert mean == pytest.approx(expected, rel=0.05)


def test_another_seed_gives_other_tokens(sampler, monkeypatch):
    if isinstance(sampler, ClusterSampler):
        pytest.skip("its engines have the seed: they are one of the samplers that this is asked of")
    first = sampler.generate(REQUESTS, 30, 1.0, STOP)
    monkeypatch.setattr(sampler, "seed", SEED + 1)
    assert difference(first, sampler.generate(REQUESTS, 30, 1.0, STOP)) == float("inf")  # in tokens


def test_a_request_draws_the_same_whatever_else_is_sampled(sampler, adapted):
    together = sampler.generate(REQUESTS, 40, 1.0, STOP)
    backwards = sampler.generate(REQUESTS[::-1], 40, 1.0, STOP)[::-1]
    alone = [sampler.generate([request], 40, 1.0, STOP)[0] for request in REQUESTS[:6]]
    if isinstance(sampler, InProcessSampler):
        answers = [*zip(REQUESTS, together, backwards, strict=True), *zip(REQUESTS[:6], together[:6], alone, strict=True)]
        assert all(same_draws(adapted, SEED, *answer) for answer in answers)
    else:
        assert difference(together, backwards) < NOISE and difference(together[:6], alone) < NOISE


def test_samples_of_one_request_differ_and_zero_samples_are_none(sampler):
    request = REQUESTS[0]
    none, six = sampler.generate([replace(request, samples=0, key=("none",)), replace(request, samples=6)], 20, 1.0, STOP)
    assert none == [] and len({tuple(response.tokens) for response in six}) == 6


def test_a_longer_limit_only_continues_a_response(sampler, tokenizer):
    short, long = (sampler.generate(REQUESTS, limit, 1.0, STOP) for limit in (10, 45))
    for cut, whole in (pair for answers in zip(short, long, strict=True) for pair in zip(*answers, strict=True)):
        assert cut.tokens == whole.tokens[: len(cut.tokens)]
        assert cut.stopped == (len(whole.tokens) <= 10 and whole.stopped)
        ended = whole.tokens[-1] == tokenizer.eos_token_id or STOP in whole.text
        assert whole.stopped == ended and (ended or len(whole.tokens) == 45)


def test_a_response_ends_with_the_token_that_completes_the_stop_text(sampler, tokenizer):
    asked = [Request(PROMPTS[0], slot, 1, ("stop", slot)) for slot in range(SLOTS)]
    stopped = 0
    for request, (whole,) in zip(asked, sampler.generate(asked, 60, 0.0, ""), strict=True):
        texts = [tokenizer.decode(whole.tokens[:end], skip_special_tokens=True) for end in range(len(whole.tokens) + 1)]
        stop = texts[9][len(texts[6]) : -1]  # ends inside a token, where that has more than one character
        if not (stop.isascii() and stop.isprintable() and stop):  # a random model writes halves of characters, too
            continue
        ((cut,),) = sampler.generate([request], 60, 0.0, stop)
        end = next(end for end, text in enumerate(texts) if stop in text)
        assert (cut.tokens, cut.text, cut.stopped) == (whole.tokens[:end], texts[end], True)
        stopped += 1
    assert stopped >= 3


def test_a_stream_takes_requests_while_others_are_written_and_gives_each_back_once(sampler):
    class Later:
        """Two requests more at every call, as long as there are some."""

        def __init__(self, asked):
            self.asked, self.idle = list(asked), []

        def next(self, block):
            self.idle.append(block)
            taken, self.asked = self.asked[:2], self.asked[2:]
            return taken

    source = Later(REQUESTS)
    answered = dict(sampler.stream(source, 20, 1.0, STOP))
    assert set(answered) == set(REQUESTS) and source.idle[0] and source.idle[-1] and not all(source.idle)
    assert difference([answered[request] for request in REQUESTS], sampler.generate(REQUESTS, 20, 1.0, STOP)) < NOISE


def test_what_an_abandoned_stream_had_begun_is_dropped(sampler):
    expected = sampler.generate(REQUESTS, 20, 1.0, STOP)

    class Endless:
        def next(self, block):
            return REQUESTS if block else ()

    stream = sampler.stream(Endless(), 20, 1.0, STOP)
    next(stream)
    stream.close()
    assert difference(expected, sampler.generate(REQUESTS, 20, 1.0, STOP)) < NOISE


def test_a_published_adapter_answers_at_once_and_no_tensor_of_the_learner_moves(sampler, adapted, tokenizer):
    """The prompt is long and repeated: what an engine keeps of prompts must not outlive the adapter that it was computed with."""
    asked = [Request(LONG, slot, 1, ("long", slot)) for slot in (0, 1, -1)]
    before = adapted.bank.state()
    old = [sampler.generate(asked, 30, 0.0, "") for _ in range(2)]
    assert difference(*old) < NOISE
    try:
        child = adapted.bank.adapter(1)
        adapted.bank.load(1, replace(child, modules={name: (-a, b) for name, (a, b) in child.modules.items()}))
        loaded = adapted.bank.state()
        sampler.sync_weights(adapted.bank, [1])
        assert all(torch.equal(tensor, loaded[name]) for name, tensor in adapted.bank.state().items())
        new = sampler.generate(asked, 30, 0.0, "")
        assert difference([old[0][0], old[0][2]], [new[0], new[2]]) < NOISE and old[0][1][0].tokens != new[1][0].tokens
        assert difference(new, InProcessSampler(adapted, tokenizer, SEED).generate(asked, 30, 0.0, "")) < NOISE
    finally:
        adapted.bank.restore(before)
        sampler.sync_weights(adapted.bank, [1])
    assert difference(old[0], sampler.generate(asked, 30, 0.0, "")) < NOISE


def test_what_does_not_fit_is_known_before_any_work(sampler):
    long = "x" * 150
    sampler.generate([Request(long, 0, 1, ("a",))], 42, 1.0, STOP)
    for asked, limit, complaint in (
        ([Request(long, 0, 1, ("a",))], 43, "prompt of 1 to 149 tokens"),
        ([Request("", 0, 1, ("a",))], 10, "got 0"),
        ([Request("x", SLOTS, 1, ("a",))], 10, f"slot {SLOTS}"),
        ([Request("x", 0, 1, ("a",)), Request("y", 0, 1, ("a",))], 10, "same key"),
        ([Request("x", 0, 1, ("a",))], 0, "max_tokens"),
    ):
        with pytest.raises(ConfigError, match=complaint):
            sampler.generate(asked, limit, 1.0, STOP)
    assert sampler.generate([Request("x", 0, 1, ("a",))], 5, 1.0, STOP)


def test_what_a_killed_engine_was_asked_is_answered_by_another(sampler, monkeypatch):
    if not isinstance(sampler, ClusterSampler):
        pytest.skip("an engine in this process dies with it: `populora resume`")
    expected = sampler.generate(REQUESTS, 40, 1.0, STOP)
    submit, victims, faults = ActorPool.submit, [pid for kind, pid in actors() if kind == "Engine"], sampler._pool.faults
    assert len(victims) == 2
    asked = set[int]()

    def submit_and_kill(self, call, *arguments, **named):
        pending = submit(self, call, *arguments, **named)
        if call.method == "sample" and len(asked) < 2:
            asked.add(call.index)
            if len(asked) == 2:  # both have requests, and most of them are not answered yet
                kill(victims[0])
        return pending

    monkeypatch.setattr(ActorPool, "submit", submit_and_kill)
    assert difference(expected, sampler.generate(REQUESTS, 40, 1.0, STOP)) < NOISE
    assert sampler._pool.faults == faults + 1
