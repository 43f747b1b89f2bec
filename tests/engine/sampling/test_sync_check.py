"""Adapters without effect, and samplers with other weights than the learner, stop the run."""

import dataclasses
import math
from collections import Counter
from contextlib import nullcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from populora.core.config import LearnerConfig
from populora.core.errors import AdapterEffectError, BaseModelError
from populora.core.types import Request
from populora.engine.learning.batching import TrainRow
from populora.engine.learning.learner import InProcessLearner
from populora.engine.learning.update import Batch, check_update
from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.sampling.inprocess import InProcessSampler
from populora.engine.sampling.sync_check import agreement_of, check_adapter_sync

PROBES = ("<solve><code_o>def f(x):", "<propose><code_i>")
SLOTS = (0, 1, 2)


def test_adapters_that_work_pass(adapted, sampler):
    check_adapter_sync(InProcessLearner(adapted, LearnerConfig()), sampler, adapted.bank, PROBES, SLOTS)


def test_untrained_adapters_need_no_effect(adapted, sampler):
    adapted.bank.initialise(0)
    check_adapter_sync(InProcessLearner(adapted, LearnerConfig()), sampler, adapted.bank, PROBES, SLOTS)


def test_a_trained_adapter_at_scale_zero_stops_the_run(make_adapted, tokenizer):
    adapted = make_adapted(alpha=0.0)
    with pytest.raises(AdapterEffectError, match="slot 0: a trained adapter must change"):
        check_adapter_sync(InProcessLearner(adapted, LearnerConfig()), InProcessSampler(adapted, tokenizer, 0), adapted.bank, PROBES, SLOTS)


def test_a_trained_adapter_without_effect_among_others_stops_the_run(adapted, sampler):
    idle = adapted.bank.adapter(1)
    adapted.bank.load(1, dataclasses.replace(idle, modules={name: (0 * a, b) for name, (a, b) in idle.modules.items()}))
    with pytest.raises(AdapterEffectError, match="slot 1: a trained adapter must change"):
        check_adapter_sync(InProcessLearner(adapted, LearnerConfig()), sampler, adapted.bank, PROBES, SLOTS)


@pytest.mark.parametrize("budget", [1, 64])
def test_log_probabilities_do_not_depend_on_the_token_budget(adapted, sampler, budget):
    requests = [Request(probe, slot, 2, (index,)) for slot in (0, 2) for index, probe in enumerate(PROBES)]
    answers = {slot: [] for slot in (2, 0)}
    for request, samples in zip(requests, sampler.generate(requests, 12, 1.0, ""), strict=True):
        answers[request.slot] += samples
    small = InProcessLearner(adapted, LearnerConfig(micro_batch_tokens=budget)).logprobs(answers)
    large = InProcessLearner(adapted, LearnerConfig()).logprobs(answers)
    assert sorted(small) == [0, 2]
    for slot, of_slot in answers.items():
        sampled = torch.tensor([value for answer in of_slot for value in answer.logprobs])
        assert (small[slot] - large[slot]).abs().max() < 1e-5 and (small[slot][0] - sampled).abs().max() < 1e-5
        assert (small[slot][1] - sampled).abs().max() > 1e-3
    assert InProcessLearner(adapted, LearnerConfig()).logprobs({}) == {}


@pytest.mark.parametrize(("step", "stops"), [(1e-8, True), (1e-2, False)])
def test_a_first_step_that_bfloat16_rounds_away_stops_the_run_and_names_the_learning_rate(make_base, tokenizer, step, stops):
    adapted = AdaptedModel(make_base().bfloat16(), ("q_proj", "v_proj"), 1, 4, 8.0)
    adapted.bank.initialise(0)
    adapter = adapted.bank.adapter(0)
    signs = {name: (a, torch.where(torch.rand(b.shape) < 0.5, -step, step)) for name, (a, b) in adapter.modules.items()}  # as Adam's first
    adapted.bank.load(0, dataclasses.replace(adapter, modules=signs))
    with pytest.raises(AdapterEffectError, match=r"learner\.learning_rate is too small") if stops else nullcontext():
        check_adapter_sync(InProcessLearner(adapted, LearnerConfig()), InProcessSampler(adapted, tokenizer, 0), adapted.bank, PROBES, [0])


def test_a_sampler_with_stale_weights_stops_the_run(adapted, make_adapted, tokenizer):
    stale = InProcessSampler(make_adapted(), tokenizer, 0)
    check_adapter_sync(InProcessLearner(adapted, LearnerConfig()), stale, adapted.bank, PROBES, SLOTS)
    child = adapted.bank.adapter(1)
    adapted.bank.load(1, dataclasses.replace(child, modules={name: (2 * a, b) for name, (a, b) in child.modules.items()}))
    check_adapter_sync(InProcessLearner(adapted, LearnerConfig()), stale, adapted.bank, PROBES, slots=(0, 2))
    with pytest.raises(AdapterEffectError, match="slot 1: sampler and learner must agree"):
        check_adapter_sync(InProcessLearner(adapted, LearnerConfig()), stale, adapted.bank, PROBES, SLOTS)


class Rounded:
    """A sampler that is off by ``error`` for so many requests: in the first token of each response or, with ``every``, in all."""

    def __init__(self, sampler, error: float, every: bool, count: int = 1):
        self._sampler, self._error, self._every, self._count = sampler, error, every, count

    def generate(self, requests, *settings):
        answers = self._sampler.generate(requests, *settings)
        return [[self._moved(response) for response in responses] for responses in answers[: self._count]] + answers[self._count :]

    def _moved(self, response):
        moved = [value + self._error * (self._every or index == 0) for index, value in enumerate(response.logprobs)]
        return dataclasses.replace(response, logprobs=tuple(moved))


@pytest.mark.parametrize(("error", "allowed"), [(0.0, 1e-5), (3e-6, 1e-5), (1.5e-5, 3e-5)])
def test_sampler_and_learner_may_differ_twice_as_much_as_on_the_bare_base(adapted, sampler, error, allowed):
    learner, rounded = InProcessLearner(adapted, LearnerConfig()), Rounded(sampler, error, True, count=99)
    learner.agreement = agreement_of(learner, rounded, PROBES)
    assert learner.agreement == pytest.approx(allowed, rel=0.1)
    check_adapter_sync(learner, rounded, adapted.bank, PROBES, SLOTS)
    with pytest.raises(AdapterEffectError, match="slot 0: sampler and learner must agree"):
        check_adapter_sync(learner, Rounded(rounded, 4 * allowed, True), adapted.bank, PROBES, SLOTS)


def test_a_sampler_of_another_base_stops_the_run(adapted, sampler):
    with pytest.raises(BaseModelError, match=r"agree on the bare base within 2e-05 nats in the mean, but differ by 3\.\d+e-05"):
        agreement_of(InProcessLearner(adapted, LearnerConfig()), Rounded(sampler, 3e-5, True, count=99), PROBES)


def refused_if(stops: bool):
    return pytest.raises(AdapterEffectError, match="slot 0: sampler and learner must agree") if stops else nullcontext()


@pytest.mark.parametrize(
    ("every", "error", "count", "stops"),
    [(True, 5e-5, 1, True), (False, 5e-4, 2, False), (False, 8.0, 1, False), (False, 2e-3, 2, True), (False, math.nan, 1, True)],
)
def test_one_badly_conditioned_token_of_the_probes_is_no_stale_sampler(adapted, sampler, every, error, count, stops):
    with refused_if(stops):
        check_adapter_sync(InProcessLearner(adapted, LearnerConfig()), Rounded(sampler, error, every, count), adapted.bank, PROBES, SLOTS)


def test_a_sampler_that_differs_is_asked_for_longer_answers_of_that_adapter_alone(adapted, sampler, monkeypatch):
    asked, generate = [], sampler.generate
    monkeypatch.setattr(
        sampler, "generate", lambda requests, tokens, *rest: (asked.append((len(requests), tokens)), generate(requests, tokens, *rest))[1]
    )
    check_adapter_sync(InProcessLearner(adapted, LearnerConfig()), Rounded(sampler, 8.0, False), adapted.bank, PROBES, SLOTS)
    assert asked == [(6, 8), (2, 32)]


def rows_of(sampler, slots=range(3)) -> list[TrainRow]:
    """Two responses of each slot."""
    requests = [Request(PROBES[0], slot, 2, (slot,)) for slot in slots]
    return [
        TrainRow(request.slot, response.prompt_tokens, response.tokens, response.logprobs, advantage)
        for request, responses in zip(requests, sampler.generate(requests, 12, 1.0, "</answer>"), strict=True)
        for response, advantage in zip(responses, (1.0, -1.0), strict=True)
    ]


def test_rows_of_a_stale_sampler_stop_the_update_and_fresh_ones_do_not(adapted, make_adapted, tokenizer, sampler):
    stale = InProcessSampler(make_adapted(), tokenizer, 0)
    adapted.bank.master[2] *= 1.5
    learner, before = InProcessLearner(adapted, LearnerConfig(learning_rate=1e-3)), adapted.bank.state()
    with pytest.raises(AdapterEffectError, match="slot 2: sampler and learner must agree on log-probabilities"):
        learner.update(rows_of(stale))
    assert all(torch.equal(before[name], tensor) for name, tensor in adapted.bank.state().items())
    updates = learner.update(rows_of(sampler))
    assert max(update.max_difference for update in updates.values()) < 1e-5
    assert all(update.kl < 1e-9 and update.clip_fraction == 0 for update in updates.values())
    assert all(update.entropy > 0 for update in updates.values())


@pytest.mark.parametrize(("every", "error", "stops"), [(True, 5e-5, True), (False, 5e-5, False), (False, 2e-3, True)])
def test_one_token_may_round_worse_than_all_of_them(adapted, sampler, every, error, stops):
    learner, rows = InProcessLearner(adapted, LearnerConfig(learning_rate=1e-3)), rows_of(Rounded(sampler, error, every), [0])
    with refused_if(stops):
        assert learner.update(rows)[0].max_difference == pytest.approx(error, rel=0.2)


@given(st.integers(1, 400_000), st.floats(0, 3e-4), st.floats(3.0, 12.0))
def test_a_member_goes_on_with_one_outlier_or_one_in_ten_thousand_and_stops_with_more(tokens, share, far):
    """Bf16: a bound of 0.05 nats, outliers from 5 on."""
    outliers = min(tokens, round(share * tokens))
    sums = [0.1, 1.0, 0.0, 0.001 * tokens, 0.01 * tokens, tokens, tokens, 0.0, outliers, far]
    batch = Batch([], Counter({3: tokens}), [3], {})
    stops = outliers > max(1, tokens / 10_000)
    with pytest.raises(AdapterEffectError, match=rf"{outliers} of {tokens:,} tokens") if stops else nullcontext():
        assert check_update(batch, {3: sums}, {3: 0.5}, 0.05, LearnerConfig())[3].outliers == pytest.approx(outliers / tokens)
