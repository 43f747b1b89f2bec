"""The in-process sampler against the learner's forward, PEFT and transformers' own generation."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from draws import same_draws
from greedy import greedy_tokens

from populora.core.errors import ConfigError
from populora.core.types import Generation, Request
from populora.engine.model.packing import PromptGroup, pack
from populora.engine.sampling.batch import ContinuousBatch
from populora.engine.sampling.inprocess import InProcessSampler

PROMPTS = (
    "<solve><code_o>```python\ndef f(x):\n    return x + 1\n```\n```input\n3\n```\n<think>",
    "<propose><code_f>",
    "def g(a, b):\n    return a * b",
)
STOP = "</answer>"


def requests(samples: int = 3, slots=(2, -1, 0, 1)) -> list[Request]:
    return [Request(prompt, slot, samples, ("test", slot, index)) for slot in slots for index, prompt in enumerate(PROMPTS)]


def learner_logprobs(adapted, slot: int, generation: Generation) -> torch.Tensor:
    with torch.no_grad():
        return adapted.logprobs(pack([PromptGroup(slot, generation.prompt_tokens, (generation.tokens,))]))[0]


def peft_logprobs(model, slot: int, generation: Generation) -> torch.Tensor:
    ids = torch.tensor([[*generation.prompt_tokens, *generation.tokens]])
    start = len(generation.prompt_tokens) - 1
    with torch.no_grad():
        if slot < 0:
            with model.disable_adapter():
                logits = model(ids).logits
        else:
            model.set_adapter(str(slot))
            logits = model(ids).logits
    return logits[0, start:-1].log_softmax(-1).gather(1, ids[0, start + 1 :, None])[:, 0]


def furthest(adapted_requests, results, logprobs) -> float:
    """Largest difference between the sampler's log-probabilities and those of ``logprobs(slot, generation)``."""
    pairs = [(request.slot, one) for request, many in zip(adapted_requests, results, strict=True) for one in many]
    return max(float((logprobs(slot, one) - torch.tensor(one.logprobs)).abs().max()) for slot, one in pairs)


def test_logprobs_equal_the_learners_and_pefts(adapted, sampler, peft_model):
    asked = requests()
    results = sampler.generate(asked, 40, 1.0, STOP)
    assert [len(many) for many in results] == [3] * len(asked)
    assert furthest(asked, results, lambda slot, one: learner_logprobs(adapted, slot, one)) < 1e-5
    assert furthest(asked, results, lambda slot, one: peft_logprobs(peft_model, slot, one)) < 1e-5


def test_slots_that_share_a_key_draw_the_same_numbers(adapted, sampler):
    """What lets adapters be compared on equal terms."""
    adapted.bank.load(1, adapted.bank.adapter(0))
    one, other = sampler.generate([Request(PROMPTS[0], slot, 3, ("shared",)) for slot in (0, 1)], 40, 1.0, STOP)
    assert [generation.tokens for generation in one] == [generation.tokens for generation in other]
    assert len({generation.tokens for generation in one}) > 1


def test_rows_of_another_slot_are_noticed(adapted, sampler, peft_model):
    """The negative control of the test above."""
    asked = requests(slots=(0, 1))
    results = sampler.generate(asked, 40, 1.0, STOP)
    assert furthest(asked, results, lambda slot, one: learner_logprobs(adapted, 1 - slot, one)) > 0.1
    assert furthest(asked, results, lambda slot, one: peft_logprobs(peft_model, 1 - slot, one)) > 0.1


def test_greedy_decoding_equals_transformers_with_peft(sampler, peft_model, tokenizer):
    asked = requests(samples=1)
    for request, (ours,) in zip(asked, sampler.generate(asked, 80, 0.0, ""), strict=True):
        ids = tokenizer(request.prompt, return_tensors="pt")["input_ids"]
        if request.slot < 0:
            with peft_model.disable_adapter():
                theirs = greedy_tokens(peft_model, ids, 80)
        else:
            peft_model.set_adapter(str(request.slot))
            theirs = greedy_tokens(peft_model, ids, 80)
        assert list(ours.tokens) == theirs
        assert ours.stopped == (ours.tokens[-1] == tokenizer.eos_token_id)


def test_a_request_draws_the_same_whatever_else_is_sampled(adapted, sampler, tokenizer):
    asked = requests()
    together = sampler.generate(asked, 40, 1.0, STOP)
    backwards = sampler.generate(asked[::-1], 40, 1.0, STOP)[::-1]
    narrow = InProcessSampler(adapted, tokenizer, seed=7, rows=4).generate(asked, 40, 1.0, STOP)
    alone = [sampler.generate([request], 40, 1.0, STOP)[0] for request in asked]
    for others in (backwards, narrow, alone):
        assert all(same_draws(adapted, 7, *answers) for answers in zip(asked, together, others, strict=True))
    other_seed = InProcessSampler(adapted, tokenizer, seed=8).generate(asked, 40, 1.0, STOP)
    assert not any(same_draws(adapted, 7, *answers) for answers in zip(asked, together, other_seed, strict=True))


def test_no_more_responses_are_decoded_at_a_time_than_the_cache_holds(monkeypatch, adapted, sampler, tokenizer):
    limits: list[int] = []

    class Watched(ContinuousBatch):
        def __init__(self, adapted, ending, limit, *others):
            limits.append(limit)
            super().__init__(adapted, ending, limit, *others)

    monkeypatch.setattr("populora.engine.sampling.inprocess.ContinuousBatch", Watched)
    small = InProcessSampler(adapted, tokenizer, seed=7, cache_mb=1)
    shape = adapted.model.config
    token = 2 * 4 * shape.num_hidden_layers * shape.num_key_value_heads * shape.hidden_size // shape.num_attention_heads
    answers = zip(requests(), small.generate(requests(), 45, 1.0, STOP), sampler.generate(requests(), 45, 1.0, STOP), strict=True)
    assert all(same_draws(adapted, 7, *pair) for pair in answers)
    assert limits == [(1 << 20) // (48 * token), 512]  # whole pages
    with pytest.raises(ConfigError, match=r"engine.cache_mb is 1: one response of 100000 tokens needs"):
        small.generate(requests(), 100_000, 1.0, STOP)


def test_a_prompt_is_computed_once_and_free_places_are_filled_while_others_are_written(monkeypatch, adapted, tokenizer):
    decks: list[ContinuousBatch] = []
    live: list[int] = []
    prompts: list[int] = []

    class Watched(ContinuousBatch):
        def __init__(self, *arguments):
            decks.append(self)
            super().__init__(*arguments)

        def _fill(self, chosen):
            live.append(len(self._rows))
            super()._fill(chosen)

    def counted(groups, *arguments, **named):
        prompts.append(len(groups))
        return pack(groups, *arguments, **named)

    monkeypatch.setattr("populora.engine.sampling.inprocess.ContinuousBatch", Watched)
    monkeypatch.setattr("populora.engine.sampling.batch.pack", counted)
    asked = requests()
    narrow = InProcessSampler(adapted, tokenizer, seed=7, rows=3)
    assert sum(request.samples for request in asked) > 3 and any(request.samples > 1 for request in asked)
    narrow.generate(asked, 40, 1.0, STOP)
    assert sum(prompts) == len(asked)
    assert live[0] == 0 and max(live) > 0
    (deck,) = decks
    cache = deck._cache
    assert not cache._place and not cache._lengths.any() and sorted(cache._free) == list(range(cache._capacity))


def test_the_same_call_gives_the_same_bytes_and_another_seed_does_not(adapted, sampler, tokenizer):
    assert sampler.generate(requests(), 30, 1.0, STOP) == sampler.generate(requests(), 30, 1.0, STOP)
    other = InProcessSampler(adapted, tokenizer, seed=8)
    assert sampler.generate(requests(), 30, 1.0, STOP) != other.generate(requests(), 30, 1.0, STOP)


def test_a_longer_limit_only_continues_a_response(sampler):
    short, long = (sampler.generate(requests(), limit, 1.0, STOP) for limit in (10, 45))
    for many, more in zip(short, long, strict=True):
        for cut, whole in zip(many, more, strict=True):
            assert cut.tokens == whole.tokens[: len(cut.tokens)]
            assert cut.stopped == (len(whole.tokens) <= 10 and whole.stopped)


def test_samples_of_one_request_differ_and_zero_samples_are_none(sampler):
    (request,) = requests()[:1]
    none, many = sampler.generate(
        [dataclasses.replace(request, samples=0, key=("none",)), dataclasses.replace(request, samples=6)], 20, 1.0, STOP
    )
    assert none == []
    assert len({one.tokens for one in many}) == 6


class Script:
    """Makes the sampler write given tokens: stands in for the choice from the logits."""

    def __init__(self, monkeypatch, tokens):
        self.tokens = iter(tokens)
        monkeypatch.setattr("populora.engine.sampling.batch.sample_tokens", self.choose)

    def choose(self, logits, temperature, uniforms):
        chosen = torch.full((len(logits),), next(self.tokens))
        return chosen, torch.zeros(len(logits)), torch.zeros(len(logits))


@pytest.mark.parametrize(
    ("text", "kept", "stopped"),
    [
        ("7\n```</answer> 12", "7\n```</answer>", True),  # one token holds the stop text and more
        ("7</answer>\n", "7</answer>", True),
        ("</answe>rs", "</answe>rs", False),
        ("ab<eos>cd", "ab", True),
    ],
)
def test_a_response_ends_at_the_stop_text_or_eos(monkeypatch, sampler, tokenizer, text, kept, stopped):
    tokens = tokenizer(text)["input_ids"]
    Script(monkeypatch, tokens)
    ((one,),) = sampler.generate([Request("x", 0, 1, ("stop",))], len(tokens), 1.0, STOP)
    assert (one.text, one.stopped) == (kept, stopped)
    assert one.tokens == tuple(tokens[: len(one.tokens)])


def test_a_stop_text_spelt_in_single_bytes_ends_a_response(monkeypatch, sampler, tokenizer):
    spelt = [token for character in "ok</answer>!" for token in tokenizer(character)["input_ids"]]
    Script(monkeypatch, spelt)
    ((one,),) = sampler.generate([Request("x", 0, 1, ("stop",))], len(spelt), 1.0, STOP)
    assert one.text == "ok</answer>"
    assert one.stopped


def test_a_stop_text_with_spaces_is_found_too(monkeypatch, sampler, tokenizer):
    tokens = tokenizer("x = 1 end of\nit all")["input_ids"]
    Script(monkeypatch, tokens)
    ((one,),) = sampler.generate([Request("x", 0, 1, ("stop",))], len(tokens), 1.0, "of\nit")
    assert one.text == "x = 1 end of\nit"


def test_what_does_not_fit_is_known_before_any_work(sampler):
    long = "x" * 150
    assert sampler.count_tokens(long) == 150
    sampler.generate([Request(long, 0, 1, ("a",))], 42, 1.0, STOP)
    for asked, limit, complaint in (
        ([Request(long, 0, 1, ("a",))], 43, "prompt of 1 to 149 tokens"),
        ([Request("", 0, 1, ("a",))], 10, "got 0"),
        ([Request("x", 3, 1, ("a",))], 10, "slot 3"),
        ([Request("x", 0, 1, ("a",)), Request("y", 0, 1, ("a",))], 10, "same key"),
        ([Request("x", 0, 1, ("a",))], 0, "max_tokens"),
    ):
        with pytest.raises(ConfigError, match=complaint):
            sampler.generate(asked, limit, 1.0, STOP)
