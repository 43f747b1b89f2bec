"""Routes and the three backends of the low-rank product."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from populora.lora.routing import Route, lora_delta

INNER, OUTER, RANK, SLOTS = 8, 12, 4, 5
segments = st.lists(st.tuples(st.integers(-1, SLOTS - 1), st.integers(1, 6)), min_size=1, max_size=8).map(sorted)


def factors() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    flat = torch.randn(SLOTS, RANK * (INNER + OUTER), generator=generator).requires_grad_()
    return flat[:, : RANK * INNER].view(SLOTS, RANK, INNER), flat[:, RANK * INNER :].view(SLOTS, OUTER, RANK)


def token_by_token(x: torch.Tensor, slots: list[int], a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.stack([b[slot] @ (a[slot] @ row) for row, slot in zip(x, slots, strict=True)])


@given(segments)
@settings(max_examples=30, deadline=None)
def test_every_backend_sends_each_token_through_its_slot(parts):
    slots, lengths = [slot for slot, _ in parts], [length for _, length in parts]
    route = Route.of(slots, lengths)
    per_token = [slot for slot, length in parts for _ in range(length) if slot >= 0]
    assert (route.tokens, route.bare) == (sum(lengths), sum(lengths) - len(per_token))
    if not per_token:
        assert route.counts == ()
        return
    a, b = factors()
    x = torch.randn(len(per_token), INNER, generator=torch.Generator().manual_seed(1))
    upstream = torch.randn(len(per_token), OUTER, generator=torch.Generator().manual_seed(2))
    expected = token_by_token(x, per_token, a, b)
    gradients = torch.autograd.grad(expected, (a, b), upstream)
    backends = ["auto", "loop", "grouped"] + (["bmm"] if len(set(route.counts)) == 1 else [])
    for backend in backends:
        result = lora_delta(x, a, b, route, backend)
        torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)
        for ours, theirs in zip(torch.autograd.grad(result, (a, b), upstream), gradients, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_unsorted_segments_are_refused():
    with pytest.raises(ValueError, match="sorted by slot"):
        Route.of([1, 0], [3, 3])


def test_operands_that_grouped_products_cannot_take_go_through_the_loop():
    a, b = torch.randn(2, 3, 5), torch.randn(2, 7, 3)
    route = Route.of([0, 1], [1, 2])
    x = torch.randn(3, 5)
    torch.testing.assert_close(lora_delta(x, a, b, route), token_by_token(x, [0, 1, 1], a, b), rtol=1e-5, atol=1e-5)
