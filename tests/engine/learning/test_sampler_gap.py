"""Where the sampler's log-probabilities are not the learner's: truncated weights, recomputed ratios, what is logged and what is refused."""

import dataclasses
import math

import pytest
import torch

from populora.core.config import LearnerConfig
from populora.core.errors import AdapterEffectError
from populora.engine.learning.batching import TrainRow
from populora.engine.learning.learner import InProcessLearner, policy_loss, truncation
from populora.engine.model.packing import PromptGroup, pack

CONFIG = LearnerConfig(learning_rate=1e-3, grad_clip=1e9)


def exact(adapted, rows: list[TrainRow], shift: float = 0.0) -> list[TrainRow]:
    """The rows with the learner's own log-probabilities, minus ``shift``, as the sampler's."""
    with torch.no_grad():
        return [
            row._replace(logprobs=(adapted.logprobs(pack([PromptGroup(row.slot, row.prompt_tokens, (row.tokens,))]))[0] - shift).tolist())
            for row in rows
        ]


def drifted(rows: list[TrainRow]) -> list[TrainRow]:
    """The rows of a sampler that is off by noise, the more the higher the slot."""
    noise = torch.Generator().manual_seed(0)
    return [
        row._replace(logprobs=[value + 0.15 * row.slot * float(torch.randn((), generator=noise)) for value in row.logprobs]) for row in rows
    ]


def gradient(adapted, config: LearnerConfig, rows: list[TrainRow]) -> torch.Tensor:
    state = adapted.bank.state()
    InProcessLearner(adapted, config, agreement=math.inf).update(rows)
    gradient = adapted.bank.gradient.clone()
    adapted.bank.restore(state)
    return gradient


def test_a_weight_beyond_the_cap_counts_as_the_cap_with_its_gradient():
    sampled = torch.tensor([-3.0, -1.0, -1.0])
    for old in (sampled, torch.tensor([-1.0, -1.2, -1.0])):  # the sampler's, or recomputed ones
        new = torch.tensor([-1.0, -1.2, -1.0], requires_grad=True)
        losses, _ = policy_loss(new, old, torch.full((3,), -1.0), 0.2, 0.28)
        losses = losses * truncation(new, old, sampled, 2.0)
        expected = torch.tensor([2.0, math.exp(-0.2), 1.0])  # min(new / sampled, 2); advantages are -1
        torch.testing.assert_close(losses.detach(), expected)
        torch.testing.assert_close(torch.autograd.grad(losses.sum(), new)[0], expected)


def test_recomputed_log_probabilities_give_the_same_gradient_where_the_sampler_was_right(adapted, make_rows):
    rows = exact(adapted, make_rows(0))
    ours = gradient(adapted, CONFIG, rows)
    recomputed = gradient(adapted, dataclasses.replace(CONFIG, old_logprobs="recomputed"), rows)
    assert float((ours - recomputed).norm() / ours.norm()) < 1e-5


def test_where_the_sampler_was_wrong_recomputing_unclips_and_the_cap_bounds_it(adapted, make_rows):
    """Every token is exp(1) times likelier to the learner: rows with an advantage above zero are clipped unless recomputed."""
    rows = [row._replace(advantage=1.0) for row in exact(adapted, make_rows(0), shift=1.0)]
    right = gradient(adapted, CONFIG, [row._replace(advantage=1.0) for row in exact(adapted, make_rows(0))])
    assert not gradient(adapted, CONFIG, rows).any()
    for cap, weight in ((2.0, 2.0), (10.0, math.e), (0.0, 1.0)):
        recomputed = gradient(adapted, dataclasses.replace(CONFIG, old_logprobs="recomputed", tis_cap=cap), rows)
        assert float((recomputed - weight * right).norm() / right.norm()) < 1e-4


def test_kl_and_effective_sample_size_of_each_member_are_those_of_their_formulas(adapted, make_rows):
    rows = exact(adapted, make_rows(0))
    pairs = list(zip(rows, drifted(rows), strict=True))
    updates = InProcessLearner(adapted, CONFIG, agreement=math.inf).update([row for _, row in pairs])
    for slot, update in updates.items():
        mine = [(row.logprobs, other.logprobs) for row, other in pairs if row.slot == slot]
        log_weights = torch.cat([torch.tensor(new).double() - torch.tensor(old).double() for new, old in mine])
        weights = log_weights.exp()
        assert update.kl == pytest.approx(float((weights - 1 - log_weights).mean()), abs=1e-4)
        weights = weights.clamp(max=CONFIG.tis_cap)
        assert update.ess == pytest.approx(float(weights.sum() ** 2 / (len(weights) * (weights**2).sum())), abs=1e-4)


def test_one_token_far_off_is_left_to_the_cap(adapted, make_rows):
    rows = exact(adapted, [row for row in make_rows(0) if row.slot == 0])
    far = rows[0]._replace(logprobs=(rows[0].logprobs[0] - 4.0, *rows[0].logprobs[1:]))
    settings = dataclasses.replace(CONFIG, max_kl=10.0)  # so few tokens have a large mean
    (update,) = InProcessLearner(adapted, settings, agreement=1.0).update([far, *rows[1:]]).values()
    assert update.ess > 0.9


@pytest.mark.parametrize("bound", [{"min_ess": 0.99}, {"max_kl": 1e-3}])
def test_a_sampler_that_drifted_away_stops_the_update_before_any_change(adapted, make_rows, bound):
    rows = drifted(exact(adapted, make_rows(0)))
    before = adapted.bank.state()
    with pytest.raises(AdapterEffectError, match=r"slot 1: expected a KL .* effective\s+sample size"):
        InProcessLearner(adapted, dataclasses.replace(CONFIG, **bound), agreement=10.0).update(rows)
    assert all(torch.equal(before[name], tensor) for name, tensor in adapted.bank.state().items())
    InProcessLearner(adapted, CONFIG, agreement=10.0).update(rows)


def test_the_effective_size_of_weights_that_nobody_uses_stops_nothing(adapted, make_rows):
    rows = drifted(exact(adapted, make_rows(0)))
    settings = dataclasses.replace(CONFIG, max_kl=10.0, min_ess=0.99, tis_cap=0.0)
    assert min(update.ess for update in InProcessLearner(adapted, settings, agreement=10.0).update(rows).values()) < 0.99
