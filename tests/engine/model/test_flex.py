"""FlexAttention's plan: what it lets each token see, the same model outputs and gradients as the rectangles of SDPA, one compilation."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.attention.flex_attention as torch_flex
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import random_qwen2, randomise

from populora.core.errors import BaseModelError
from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.model.flex import BLOCK, attend_in_blocks, flex_plan, kernel
from populora.engine.model.packing import Packed, PromptGroup, flex_packed, pack, sdpa_packed

sizes = st.integers(0, 150)
lengths = st.lists(st.lists(sizes, min_size=1, max_size=4).map(lambda group: [group[0] + 1, *group[1:]]), min_size=1, max_size=4)
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


def truth(groups: list[list[int]]) -> torch.Tensor:
    """[N, N]: who sees whom, by the group and the part (0: prompt) of each token."""
    tokens = torch.tensor([(group, part) for group, sizes in enumerate(groups) for part, size in enumerate(sizes) for _ in range(size)])
    group, part = tokens.unbind(1)
    return ((group[:, None] == group) & ((part == 0) | (part[:, None] == part))).tril()


def seen(plan) -> torch.Tensor:
    """The same, out of the attention itself: without scores, a token's output is the mean of the values that it sees."""
    size = len(plan.start)
    zeros, values = torch.zeros(size, 1, 16), torch.eye(size)[:, None]
    return plan.attend(0, zeros, zeros, values, 1.0)[:, 0] > 0


@pytest.mark.slow
@given(lengths)
@settings(max_examples=15, deadline=None)
def test_each_token_sees_its_prompt_and_its_own_response_up_to_itself(groups):
    expected = truth(groups)
    visible = seen(flex_plan(groups, "cpu"))
    assert torch.equal(visible[: len(expected), : len(expected)], expected)
    assert not visible[: len(expected), len(expected) :].any()
    assert torch.equal(visible[len(expected) :].nonzero()[:, 1], torch.arange(len(expected), len(visible)))


@given(lengths)
@settings(max_examples=30, deadline=None)
def test_the_blocks_are_those_in_which_something_is_seen(groups):
    plan = flex_plan(groups, "cpu")
    expected = torch.eye(len(plan.start), dtype=torch.bool)
    tokens = sum(map(sum, groups))
    expected[:tokens, :tokens] = truth(groups)
    pairs = expected.unflatten(0, (-1, BLOCK)).unflatten(2, (-1, BLOCK)).sum((1, 3))
    full, some = pairs == BLOCK**2, (pairs > 0) & (pairs < BLOCK**2)
    listed = zip(plan.blocks[::2], plan.blocks[1::2], (some, full, some.T, full.T), strict=True)
    for counts, lists, wanted in listed:
        assert counts.dtype == lists.dtype == torch.int32 and lists.is_contiguous()
        for row, (count, blocks) in enumerate(zip(counts[0, 0], lists[0, 0], strict=True)):
            assert blocks[:count].tolist() == wanted[row].nonzero()[:, 0].tolist()


def adapted_model(checkpointing="none", size: int = 16, dtype: torch.dtype = torch.float32, device: str = "cpu") -> AdaptedModel:
    base: Any = random_qwen2(vocab_size=64, hidden_size=4 * size, max_position_embeddings=512)
    return randomise(AdaptedModel(base.to(device, dtype), ("q_proj", "k_proj", "v_proj", "o_proj"), 3, 4, 8.0, checkpointing))


def groups() -> list[PromptGroup]:
    """A prompt with one response, one with two, one with three of which one has a single token."""
    draw = torch.Generator().manual_seed(1)
    wanted = [(40, 30), (25, 60, 31), (70, 20, 1, 33)]
    made = ((torch.randint(2, 64, (size,), generator=draw).tolist() for size in sizes) for sizes in wanted)
    return [PromptGroup(slot, prompt, tuple(responses)) for slot, (prompt, *responses) in enumerate(made)]


def packs(device: str = "cpu") -> tuple[Packed, Packed]:
    """The same pack under SDPA's plan and FlexAttention's."""
    packed = pack(groups(), device)
    return tuple(replace(packed, plan=make(groups(), device, False)) for make in (sdpa_packed, flex_packed))  # type: ignore[return-value]


def learned(adapted: AdaptedModel, packed: Packed) -> tuple[torch.Tensor, torch.Tensor]:
    adapted.bank.gradient.zero_()
    logprobs = adapted.logprobs(packed)[0]
    logprobs.sin().sum().backward()
    return logprobs.detach(), adapted.bank.gradient.clone()


@pytest.fixture
def backward_on_cpu(monkeypatch):
    """torch refuses a backward on the CPU because it has no kernel there; its operator without kernel has one."""
    monkeypatch.setattr(torch_flex, "_validate_device", lambda *tensors: None)


@pytest.mark.slow
@pytest.mark.usefixtures("backward_on_cpu")
@pytest.mark.parametrize("checkpointing", ["none", "layer"])
def test_a_model_has_the_same_outputs_and_gradients_as_with_sdpa(checkpointing):
    adapted = adapted_model(checkpointing)
    (logprobs, gradient), (flex_logprobs, flex_gradient) = (learned(adapted, packed) for packed in packs())
    torch.testing.assert_close(flex_logprobs, logprobs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(flex_gradient, gradient, rtol=1e-5, atol=1e-5)


def test_a_response_in_the_wrong_group_changes_the_outputs():
    adapted, (right, flex) = adapted_model(), packs()
    moved = flex_plan([[40], [29, 25], [59, 30], [70, 19, 0, 32]], "cpu")
    assert len(moved.start) == len(flex.plan.start)
    with torch.no_grad():
        difference = (adapted.logprobs(replace(right, plan=moved))[0] - adapted.logprobs(right)[0]).abs().max()
    assert difference > 1e-3


def test_prompts_are_kept_as_with_sdpa():
    adapted = adapted_model()
    prompts = [PromptGroup(group.slot, group.prompt) for group in groups()]
    packed = pack(prompts)
    plans = [make(prompts, "cpu", True) for make in (sdpa_packed, flex_packed)]
    with torch.inference_mode():
        for plan in plans:
            adapted.forward(packed.ids, packed.positions, packed.segments, plan)
    assert plans[0].kept.keys() == plans[1].kept.keys() == {0, 1}
    for layer, pair in plans[0].kept.items():
        torch.testing.assert_close(plans[1].kept[layer], pair, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("backward_on_cpu")
def test_new_lengths_need_no_new_compilation(compilations):
    attend = torch.compile(attend_in_blocks, fullgraph=True, backend=compilations)
    for tokens, segments in ((5, [5]), (300, [100, 150, 50]), (700, [300, 400]), (390, [90, 100, 100, 100])):
        plan = flex_plan([segments], "cpu")
        q, k, v = (torch.randn(len(plan.start) // BLOCK, BLOCK, heads, 16).requires_grad_() for heads in (4, 2, 2))
        mixed = attend(q, k, v, plan.start, plan.prompt_start, plan.prompt_end, plan.blocks, 0.25)
        mixed[:tokens].sum().backward()
        mask = torch.eye(len(plan.start), dtype=torch.bool)
        mask[:tokens, :tokens] = truth([segments])
        rows = [x.detach().flatten(0, 1).transpose(0, 1)[None] for x in (q, k, v)]
        expected = torch.nn.functional.scaled_dot_product_attention(*rows, attn_mask=mask, scale=0.25, enable_gqa=True)
        torch.testing.assert_close(mixed, expected[0].transpose(0, 1), rtol=1e-5, atol=1e-5)
    assert compilations.count == 2  # the first length, then any


def test_heads_too_small_for_the_kernel_are_refused():
    with pytest.raises(BaseModelError, match="at least 16 dimensions"):
        kernel(8)


@pytest.mark.gpu
@pytest.mark.parametrize("checkpointing, size", [("none", 16), ("none", 64), ("none", 96), ("layer", 64)])
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-4), (torch.bfloat16, 0.05)])
def test_the_kernel_has_the_same_outputs_and_gradients_as_sdpa(checkpointing, size, dtype, tolerance):
    torch._dynamo.reset()
    adapted = adapted_model(checkpointing, size, dtype, "cuda")
    assert type(pack(groups(), "cuda").plan) is type(packs("cuda")[1].plan)
    (logprobs, gradient), (flex_logprobs, flex_gradient) = (learned(adapted, packed) for packed in packs("cuda"))
    torch.testing.assert_close(flex_logprobs, logprobs, rtol=0, atol=tolerance)
    assert (flex_gradient - gradient).norm() < tolerance * gradient.norm()
