"""Adapters without effect, and samplers with other weights than the learner, stop the run."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from populora.core.config import LearnerConfig
from populora.core.errors import AdapterEffectError
from populora.core.types import Request
from populora.engine.learning.batching import TrainRow
from populora.engine.learning.learner import InProcessLearner
from populora.engine.sampling.inprocess import InProcessSampler
from populora.engine.sampling.sync_check import check_adapter_sync

PROBES = ("<solve><code_o>def f(x):", "<propose><code_i>")


def test_adapters_that_work_pass_with_their_effect(adapted, sampler):
    effects = check_adapter_sync(InProcessLearner(adapted, LearnerConfig()), sampler, adapted.bank, PROBES)
    assert sorted(effects) == [0, 1, 2]
    assert min(effects.values()) > 1e-3


def test_untrained_adapters_need_no_effect(adapted, sampler):
    adapted.bank.initialise(0)
    assert check_adapter_sync(InProcessLearner(adapted, LearnerConfig()), sampler, adapted.bank, PROBES) == {}


def test_a_trained_adapter_at_scale_zero_stops_the_run(make_adapted, tokenizer):
    adapted = make_adapted(alpha=0.0)
    with pytest.raises(AdapterEffectError, match="slot 0: a trained adapter must change"):
        check_adapter_sync(InProcessLearner(adapted, LearnerConfig()), InProcessSampler(adapted, tokenizer, 0), adapted.bank, PROBES)


def test_a_sampler_with_stale_weights_stops_the_run(adapted, make_adapted, tokenizer):
    stale = InProcessSampler(make_adapted(), tokenizer, 0)
    check_adapter_sync(InProcessLearner(adapted, LearnerConfig()), stale, adapted.bank, PROBES)
    child = adapted.bank.adapter(1)
    adapted.bank.load(1, dataclasses.replace(child, modules={name: (2 * a, b) for name, (a, b) in child.modules.items()}))
    check_adapter_sync(InProcessLearner(adapted, LearnerConfig()), stale, adapted.bank, PROBES, slots=(0, 2))
    with pytest.raises(AdapterEffectError, match="slot 1: sampler and learner must agree"):
        check_adapter_sync(InProcessLearner(adapted, LearnerConfig()), stale, adapted.bank, PROBES)


class Rounded:
    """A sampler whose log-probabilities of one answer differ by ``error``: of its first token or, with ``every``, of all."""

    def __init__(self, sampler, error: float, every: bool):
        self._sampler, self._error, self._every = sampler, error, every

    def generate(self, requests, *settings):
        answers = self._sampler.generate(requests, *settings)
        return [[self._moved(one) if index == 0 else one for one in answer] for index, answer in enumerate(answers)]

    def _moved(self, answer):
        moved = [value + self._error * (self._every or index == 0) for index, value in enumerate(answer.logprobs)]
        return dataclasses.replace(answer, logprobs=tuple(moved))


@pytest.mark.parametrize(("every", "error", "stops"), [(True, 5e-5, True), (False, 5e-4, False), (False, 2e-3, True)])
def test_one_badly_conditioned_token_of_a_probe_is_no_stale_sampler(adapted, sampler, every, error, stops):
    rounded = Rounded(sampler, error, every)
    if stops:
        with pytest.raises(AdapterEffectError, match="slot 0: sampler and learner must agree"):
            check_adapter_sync(InProcessLearner(adapted, LearnerConfig()), rounded, adapted.bank, PROBES)
    else:
        check_adapter_sync(InProcessLearner(adapted, LearnerConfig()), rounded, adapted.bank, PROBES)


def test_rows_of_a_stale_sampler_stop_the_update_and_fresh_ones_do_not(adapted, make_adapted, tokenizer, sampler):
    stale = InProcessSampler(make_adapted(), tokenizer, 0)
    adapted.bank.master[2] *= 1.5
    learner = InProcessLearner(adapted, LearnerConfig(learning_rate=1e-3))
    for source in (stale, sampler):
        asked = [Request(PROBES[0], slot, 2, (slot,)) for slot in range(3)]
        answers = source.generate(asked, 12, 1.0, "</answer>")
        rows = [
            TrainRow(request.slot, one.prompt_tokens, one.tokens, one.logprobs, advantage)
            for request, pair in zip(asked, answers, strict=True)
            for one, advantage in zip(pair, (1.0, -1.0), strict=True)
        ]
        if source is stale:
            before = adapted.bank.state()
            with pytest.raises(AdapterEffectError, match="slot 2: sampler and learner must agree on log-probabilities"):
                learner.update(rows)
            assert all(torch.equal(before[name], tensor) for name, tensor in adapted.bank.state().items())
        else:
            updates = learner.update(rows)
            assert max(update.max_difference for update in updates.values()) < 1e-5
            assert all(update.kl < 1e-9 and update.clip_fraction == 0 for update in updates.values())
            assert all(update.entropy > 0 for update in updates.values())


@pytest.mark.parametrize(("every", "error", "stops"), [(True, 5e-5, True), (False, 5e-5, False), (False, 2e-3, True)])
def test_one_token_may_round_worse_than_all_of_them(adapted, sampler, every, error, stops):
    (one, two), *_ = sampler.generate([Request(PROBES[0], 0, 2, (0,))], 12, 1.0, "</answer>")
    first = [value + error * (every or index == 0) for index, value in enumerate(one.logprobs)]
    second = [value + error * every for value in two.logprobs]
    rows = [
        TrainRow(0, each.prompt_tokens, each.tokens, tuple(logprobs), advantage)
        for each, logprobs, advantage in ((one, first, 1.0), (two, second, -1.0))
    ]
    learner = InProcessLearner(adapted, LearnerConfig(learning_rate=1e-3))
    if stops:
        with pytest.raises(AdapterEffectError, match="slot 0: sampler and learner must agree"):
            learner.update(rows)
    else:
        assert learner.update(rows)[0].max_difference == pytest.approx(error, rel=0.2)
