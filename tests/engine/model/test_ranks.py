"""Adapters of ranks 4, 8 and 32 in one bank, against each of them alone in PEFT."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from small_models import random_qwen2

from populora.adapters.adapter import Adapter
from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.model.packing import PromptGroup, pack
from populora.engine.model.segments import SegmentMap

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
RANKS = (4, 8, 32)
ALPHAS = (4.0, 24.0, 64.0)


def random_adapter(modules: dict[str, tuple[int, int]], rank: int, alpha: float) -> Adapter:
    draw = torch.Generator().manual_seed(rank)
    factors = {
        name: (torch.randn(rank, inner, generator=draw) / inner**0.5, torch.randn(outer, rank, generator=draw) / rank**0.5 / 4)
        for name, (inner, outer) in modules.items()
    }
    return Adapter(factors, rank, alpha)


@pytest.fixture
def adapted() -> AdaptedModel:
    made = AdaptedModel(random_qwen2(), TARGETS, len(RANKS), max(RANKS), 64.0)
    for slot, (rank, alpha) in enumerate(zip(RANKS, ALPHAS, strict=True)):
        made.bank.load(slot, random_adapter(made.bank.modules, rank, alpha))
    return made


def in_peft(adapter: Adapter):
    config = LoraConfig(r=adapter.rank, lora_alpha=adapter.alpha, target_modules=list(TARGETS), lora_dropout=0.0, bias="none")
    model = get_peft_model(random_qwen2(), config).eval()
    for name, (a, b) in adapter.modules.items():
        layer = model.base_model.model.get_submodule(name)
        layer.lora_A["default"].weight.data.copy_(a)
        layer.lora_B["default"].weight.data.copy_(b)
    return model


def rows(slot: int) -> list[list[int]]:
    draw = torch.Generator().manual_seed(slot)
    return [torch.randint(2, 96, (20 + 3 * slot + row,), generator=draw).tolist() for row in range(2)]


def test_logprobs_and_gradients_of_each_rank_equal_pefts_and_its_padding_gets_none(adapted):
    groups = [PromptGroup(slot, row[:8], (row[8:],)) for slot in range(len(RANKS)) for row in rows(slot)]
    logprobs, _ = adapted.logprobs(pack(groups))
    logprobs.sum().backward()
    gradients = adapted.bank.by_module(adapted.bank.gradient)
    done = 0
    for slot, rank in enumerate(RANKS):
        model = in_peft(adapted.bank.adapter(slot))
        for row in rows(slot):
            log_p = model(torch.tensor([row])).logits[0, 7:-1].log_softmax(-1)
            expected = log_p.gather(1, torch.tensor(row[8:])[:, None])[:, 0]
            expected.sum().backward()
            torch.testing.assert_close(logprobs[done : done + len(row) - 8], expected, rtol=0, atol=1e-5)
            done += len(row) - 8
        ours, theirs = [], []
        for name, (a, b) in gradients.items():
            layer = model.base_model.model.get_submodule(name)
            ours += [a[slot, :rank].flatten(), b[slot, :, :rank].flatten()]
            theirs += [getattr(layer, f"lora_{letter}")["default"].weight.grad.flatten() for letter in "AB"]
            assert not a[slot, rank:].any() and not b[slot, :, rank:].any()
        assert float((torch.cat(ours) - torch.cat(theirs)).norm() / torch.cat(theirs).norm()) < 3e-6


@torch.no_grad()
def test_scales_of_other_members_are_noticed(adapted):
    """The negative control: with the alphas of two members exchanged, the log-probabilities are far apart."""
    group = [PromptGroup(0, rows(0)[0][:8], (rows(0)[0][8:],))]
    right = adapted.logprobs(pack(group))[0]
    adapted.bank.alphas[0] = ALPHAS[1]
    assert float((adapted.logprobs(pack(group))[0] - right).abs().max()) > 1e-2


def test_ranks_of_one_run_have_one_scale_and_alphas_are_not_rounded():
    bank = AdaptedModel(random_qwen2(), TARGETS, 3, 48, 10.1).bank
    bank.initialise(0, (48, 20, 7))
    assert bank.adapter(0).alpha == 10.1
    assert bank.scale(SegmentMap.build([0, 1, 2], [2, 2, 2])) == pytest.approx(10.1 / 48)
