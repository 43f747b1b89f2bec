"""One mixed update equals separate ones, member by member; the oracle is PEFT trained one adapter at a time."""

import dataclasses
import math
from array import array

import pytest
import torch

from populora.core.config import LearnerConfig
from populora.core.errors import AdapterEffectError, ConfigError, PopuloraError
from populora.core.types import Generation, UpdateStats
from populora.engine.learning.batching import TrainRow
from populora.engine.learning.learner import InProcessLearner, kl, kl_penalty

# At epsilon 1e-8 a first gradient of about 1e-8, a sum that cancels, moves its weight by the sign of its rounding error.
CONFIG = LearnerConfig(learning_rate=1e-3, micro_batch_tokens=150, grad_clip=0.5, epsilon=1e-5, weight_decay=0.01)


def off_policy(adapted, config=CONFIG) -> InProcessLearner:
    """A learner for rows with made-up old log-probabilities."""
    return InProcessLearner(adapted, config, agreement=math.inf)


def peft_logprobs(model, row: TrainRow) -> torch.Tensor:
    ids = torch.tensor([[*row.prompt_tokens, *row.tokens]])
    log_p = model(ids).logits[0].log_softmax(-1)
    return log_p[torch.arange(len(row.prompt_tokens) - 1, ids.shape[1] - 1), torch.tensor(row.tokens)]


def peft_loss(model, row: TrainRow, tokens: int) -> torch.Tensor:
    """The row's share of its member's loss: PPO with clip-higher, truncated weights, token mean over the member's batch."""
    ratio = (peft_logprobs(model, row) - torch.tensor(row.logprobs)).exp()
    surrogate = torch.min(ratio * row.advantage, ratio.clamp(1 - CONFIG.clip_low, 1 + CONFIG.clip_high) * row.advantage)
    weight = ratio.detach()
    return -(surrogate * weight.clamp(max=CONFIG.tis_cap) / weight).sum() / tokens


def peft_gradients(model, rows: list[TrainRow], slot: int) -> dict[str, torch.Tensor]:
    """Accumulate the member's gradient in PEFT; returns its parameters."""
    model.set_adapter(str(slot))
    mine = [row for row in rows if row.slot == slot]
    for row in mine:
        peft_loss(model, row, sum(len(other.tokens) for other in mine)).backward()
    return {name: parameter for name, parameter in model.named_parameters() if f".{slot}.weight" in name}


def as_row(adapted, parameters: dict[str, torch.Tensor], slot: int) -> torch.Tensor:
    """PEFT's tensors in the layout of the bank's flat row."""
    row = torch.zeros_like(adapted.bank.master[:1])
    for name, (a, b) in adapted.bank.by_module(row).items():
        a[0], b[0] = (parameters[f"base_model.model.{name}.lora_{letter}.{slot}.weight"].detach() for letter in "AB")
    return row[0]


@pytest.mark.parametrize("budget", [60, 200, 100_000])
def test_gradients_of_the_mixed_update_equal_pefts_whatever_the_micro_batches(adapted, peft_model, make_rows, budget):
    rows = make_rows(0)
    updates = off_policy(adapted, dataclasses.replace(CONFIG, micro_batch_tokens=budget)).update(rows)
    for slot in range(4):
        parameters = peft_gradients(peft_model, rows, slot)
        expected = as_row(adapted, {name: parameter.grad for name, parameter in parameters.items()}, slot)
        distances = (adapted.bank.gradient - expected).norm(dim=1) / expected.norm()
        assert float(distances[slot]) < 3e-6 and int((distances > 0.1).sum()) == 3
        assert updates[slot].grad_norm == pytest.approx(float(expected.norm()), rel=1e-5)
        assert updates[slot].clip_fraction > 0


@pytest.mark.parametrize("warmup_steps, scaled", [(0, False), (3, False), (3, True)])
def test_five_mixed_steps_equal_separate_trainings_also_for_members_that_skip_one(adapted, peft_model, make_rows, warmup_steps, scaled):
    config = dataclasses.replace(CONFIG, warmup_steps=warmup_steps)
    scales = [{0: 1.0, 1: left / 5, 2: left / 20} if scaled else {} for left in (5, 4, 3, 2, 1)]  # slot 3 has none
    learner = off_policy(adapted, config)
    present = [(0, 1, 2, 3), (1, 2, 3), (0, 2, 3), (0, 1, 3), (0, 1, 2, 3)]
    batches = [make_rows(10 + step, slots) for step, slots in enumerate(present)]
    for rows, scale in zip(batches, scales, strict=True):
        learner.update(rows, scale)
    for slot in range(4):
        peft_model.set_adapter(str(slot))
        parameters = {name: parameter for name, parameter in peft_model.named_parameters() if f".{slot}.weight" in name}
        optimiser = torch.optim.AdamW(
            parameters.values(), lr=CONFIG.learning_rate, betas=CONFIG.betas, eps=CONFIG.epsilon, weight_decay=CONFIG.weight_decay
        )
        warmup = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda done: min(1.0, (done + 1) / (warmup_steps or 1)))
        for rows, slots, scale in zip(batches, present, scales, strict=True):
            if slot in slots:
                optimiser.param_groups[0]["lr"] = warmup.get_last_lr()[0] * scale.get(slot, 1.0)
                optimiser.zero_grad()
                peft_gradients(peft_model, rows, slot)
                torch.nn.utils.clip_grad_norm_(parameters.values(), CONFIG.grad_clip)
                optimiser.step()
                warmup.step()
        moved = as_row(adapted, parameters, slot).detach()
        assert float((adapted.bank.master[slot] - moved).abs().max()) < 1e-6
        assert int(adapted.bank.steps[slot]) == sum(slot in slots for slots in present)


def test_a_kl_to_the_base_adds_its_gradient(adapted, peft_model, make_rows):
    """The base's log-probabilities are those of PEFT's model without its adapter."""
    rows, weight = make_rows(4), 0.3
    updates = off_policy(adapted, dataclasses.replace(CONFIG, base_kl=weight)).update(rows)
    for slot in range(4):
        mine = [row for row in rows if row.slot == slot]
        parameters, tokens, divergence = peft_gradients(peft_model, rows, slot), sum(len(row.tokens) for row in mine), 0.0
        for row in mine:
            with peft_model.disable_adapter(), torch.no_grad():
                base = peft_logprobs(peft_model, row)
            gap = base - peft_logprobs(peft_model, row)
            (weight * gap.square().sum() / (2 * tokens)).backward()
            divergence += (gap.detach().exp() - 1 - gap.detach()).sum().item() / tokens
        expected = as_row(adapted, {name: parameter.grad for name, parameter in parameters.items()}, slot)
        assert float((adapted.bank.gradient[slot] - expected).norm() / expected.norm()) < 3e-6
        assert updates[slot].base_kl == pytest.approx(divergence, rel=1e-3) and divergence > 1e-4
    assert off_policy(adapted).update(rows)[0].base_kl is None


def test_the_penalty_s_mean_gradient_is_that_of_the_kl_over_the_whole_vocabulary():
    torch.manual_seed(0)
    logits, base = torch.randn(5, 40, requires_grad=True), torch.randn(5, 40).log_softmax(-1)
    logprobs = logits.log_softmax(-1)
    (exact,) = torch.autograd.grad((logprobs.exp() * (logprobs - base)).sum(), logits, retain_graph=True)
    (expected,) = torch.autograd.grad((logprobs.exp().detach() * kl_penalty(logprobs, base)).sum(), logits, retain_graph=True)
    torch.testing.assert_close(expected, exact)
    estimated = (logprobs.exp() * kl(logprobs, base)).sum()
    torch.testing.assert_close(estimated, (logprobs.exp() * (logprobs - base)).sum())


def test_a_member_without_advantages_is_still_pulled_to_the_base(adapted, make_rows):
    """A teacher whose proposals all fail alike has no advantage to learn from."""
    rows = [row._replace(advantage=0.0) for row in make_rows(3, (0, 2))]
    before = adapted.bank.state()["master"].clone()
    updates = off_policy(adapted, dataclasses.replace(CONFIG, base_kl=0.1)).update(rows)
    assert not updates[0].skipped and not updates[2].skipped
    moved = [not torch.equal(adapted.bank.master[slot], before[slot]) for slot in range(4)]
    assert moved == [True, False, True, False]


def test_members_without_rows_or_advantages_are_untouched(adapted, make_rows):
    rows = [row if row.slot != 2 else row._replace(advantage=0.0) for row in make_rows(3, (0, 2))]
    adapted.bank.first_moment += 1.0
    before = adapted.bank.state()
    updates = off_policy(adapted).update(rows)
    assert list(updates) == [0, 2]
    assert not updates[0].skipped
    assert updates[2] == UpdateStats(tokens=sum(len(row.tokens) for row in rows if row.slot == 2), skipped=True)
    for slot in (1, 2, 3):
        assert all(torch.equal(tensor[slot], before[name][slot]) for name, tensor in adapted.bank.state().items())
    assert not torch.equal(adapted.bank.master[0], before["master"][0])
    assert off_policy(adapted).update([]) == {}


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_names_the_slot_and_changes_nothing(adapted, make_rows, poison):
    rows = [row if row.slot != 1 else row._replace(advantage=poison) for row in make_rows(5)]
    before = adapted.bank.state()
    with pytest.raises(PopuloraError, match="slot 1: expected a finite loss"):
        off_policy(adapted).update(rows)
    assert all(torch.equal(before[name], tensor) for name, tensor in adapted.bank.state().items())


@pytest.mark.parametrize("gap", [-104.0, 89.0])
def test_a_sampler_so_far_off_that_the_loss_overflows_is_named_as_the_cause(adapted, make_rows, gap):
    """The weight of a token is learner by sampler, so these gaps give 0 / 0 and infinity times 0."""
    rows = make_rows(5)
    tokens = array("f", [value - gap for value in rows[0].logprobs])
    learner = InProcessLearner(adapted, dataclasses.replace(CONFIG, old_logprobs="sampler"))
    with pytest.raises(AdapterEffectError, match=r"slot [0-9]: sampler and learner must agree"):
        learner.update([rows[0]._replace(logprobs=tokens, advantage=-1.0), *rows[1:]])


@pytest.mark.parametrize("weight_decay, warmup_steps", [(0.0, 0), (1e29, 0), (1e29, 5)])
def test_a_gradient_that_moves_no_weight_stops_the_run_also_of_trained_adapters(adapted, make_rows, weight_decay, warmup_steps):
    off_policy(adapted).update(make_rows(8))
    tiny = dataclasses.replace(CONFIG, learning_rate=1e-30, weight_decay=weight_decay, warmup_steps=warmup_steps)
    with pytest.raises(AdapterEffectError, match=r"slot 0: an update must change the adapter, but its gradient .* had no effect"):
        off_policy(adapted, tiny).update(make_rows(9))


def test_the_memory_of_an_update_or_a_check_is_free_for_an_engine_on_the_same_gpu(adapted, make_rows, monkeypatch):
    freed, learner, rows = [], off_policy(adapted), make_rows(0)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: freed.append(1))
    learner.update(rows)
    learner.logprobs({0: [Generation("", rows[0].prompt_tokens, rows[0].tokens, rows[0].logprobs, 0.0, True)]})
    assert len(freed) == 2


def test_a_row_over_the_token_budget_is_refused(adapted, make_rows):
    with pytest.raises(ConfigError, match=r"micro_batch_tokens is 5"):
        off_policy(adapted, dataclasses.replace(CONFIG, micro_batch_tokens=5)).update(make_rows(7))


def test_a_row_that_is_not_whole_is_refused(adapted):
    for row in (
        TrainRow(9, [1], [2], [-1.0], 1.0), TrainRow(0, [], [2], [-1.0], 1.0), TrainRow(0, [1], [2, 3], [-1.0], 1.0),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="a row needs"):
            off_policy(adapted).update([row])
