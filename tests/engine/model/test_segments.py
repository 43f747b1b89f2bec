"""Routes and the backends of the segments' products."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from populora.engine.model.segments import BACKENDS, SegmentMap, _choose, outer, product

INNER, OUTER, SLOTS = 8, 12, 5
segments = st.lists(st.tuples(st.integers(-1, SLOTS - 1), st.integers(1, 6)), min_size=1, max_size=8).map(sorted)


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def backends_for(route: SegmentMap) -> list[str]:
    return ["auto", *(name for name in BACKENDS if name != "bmm" or len(set(route.counts)) == 1)]


@given(segments)
@settings(max_examples=30, deadline=None)
def test_every_backend_sends_each_token_through_its_slot(parts):
    slots, lengths = [slot for slot, _ in parts], [length for _, length in parts]
    route = SegmentMap.build(slots, lengths)
    per_token = [slot for slot, length in parts for _ in range(length) if slot >= 0]
    assert (route.tokens, route.bare) == (sum(lengths), sum(lengths) - len(per_token))
    if not per_token:
        assert route.counts == ()
        return
    x, y = draw(len(per_token), INNER), draw(len(per_token), OUTER, seed=1)
    w, start = draw(SLOTS, INNER, OUTER), draw(SLOTS, INNER, OUTER, seed=2)
    expected = torch.stack([row @ w[slot] for row, slot in zip(x, per_token, strict=True)])
    sums = start.clone()
    for left, right, slot in zip(x, y, per_token, strict=True):
        sums[slot] += torch.outer(left, right)
    for backend in backends_for(route):
        torch.testing.assert_close(product(x, w[route.slots], route, None, 1.0, backend), expected, rtol=1e-5, atol=1e-5)
        added = y.clone()
        assert product(x, w[route.slots], route, added, 1.0, backend) is added
        torch.testing.assert_close(added, y + expected, rtol=1e-5, atol=1e-5)
        gradient = start.clone()
        outer(x, y, route, gradient[route.slots], backend)
        torch.testing.assert_close(gradient, sums, rtol=1e-5, atol=1e-5)


def test_unsorted_segments_are_refused():
    with pytest.raises(ValueError, match="sorted by slot"):
        SegmentMap.build([1, 0], [3, 3])


def test_operands_that_grouped_products_cannot_take_go_through_the_loop():
    x, w = draw(3, 5), draw(2, 5, 7)
    route = SegmentMap.build([0, 1], [1, 2])
    with pytest.raises(RuntimeError):
        product(x, w, route, None, 1.0, "grouped")
    torch.testing.assert_close(product(x, w, route), torch.cat((x[:1] @ w[0], x[1:] @ w[1])), rtol=1e-5, atol=1e-5)


def test_operands_that_begin_between_two_aligned_places_go_through_the_loop():
    whole = torch.zeros(3, 24)
    weights = torch.zeros(2, 8, 8)
    route = SegmentMap.build([0, 1], [1, 2])
    assert _choose(whole[:, 8:16], weights, route, None) == "grouped"
    assert _choose(whole[:, 2:10], weights, route, None) == "loop"


@pytest.mark.gpu
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-4), (torch.bfloat16, 0.02)])
@pytest.mark.parametrize("lengths", [(70, 1, 200, 33), (64, 64, 64, 64)])
def test_on_cuda_every_backend_computes_the_same_at_rank_32(dtype, tolerance, lengths):
    """Slot 2 lies between others and has no tokens."""
    route = SegmentMap.build([0, 1, 3, 4], lengths, "cuda")
    x, y, w, start = (draw(*shape).to("cuda", dtype) for shape in ((sum(lengths), 896), (sum(lengths), 32), (5, 896, 32), (5, 896, 32)))
    assert _choose(x, w, route, None) == _choose(x, y, route, start) == "grouped"
    expected, sums = product(x.double(), w.double(), route, None, 1.0, "loop"), start.double()
    outer(x.double(), y.double(), route, sums, "loop")
    for backend in ("auto", "loop", "grouped"):
        gradient = start.clone()
        outer(x, y, route, gradient, backend)
        for result, wanted in ((product(x, w, route, None, 1.0, backend), expected), (gradient, sums)):
            assert (result.double() - wanted).norm() < tolerance * wanted.norm()
        assert torch.equal(gradient[2], start[2])
