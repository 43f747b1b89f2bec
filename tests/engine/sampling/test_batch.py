"""How prompts are split into forwards."""

from array import array
from unittest.mock import Mock, patch

from hypothesis import given
from hypothesis import strategies as st

from populora.core.types import Request
from populora.engine.sampling import batch
from populora.engine.sampling.batch import ActiveRequest


@given(st.lists(st.integers(1, 120), max_size=60))
def test_prompts_of_a_forward_fit_the_limit_as_rectangles(lengths):
    """On CUDA a chunk's keys and values are kept in rectangles, as wide as its longest prompt."""
    requests = [
        ActiveRequest(Request("", number % 3, 1, (f"{number}",)), array("i", [0] * length), Mock())
        for number, length in enumerate(sorted(lengths))
    ]
    with patch.object(batch, "PREFILL_TOKENS", 100):
        chunks = batch._chunks(requests)
    assert sorted(len(active.prompt) for chunk in chunks for active in chunk) == sorted(lengths)
    for chunk in chunks:
        assert len(chunk) == 1 or len(chunk) * max(len(active.prompt) for active in chunk) <= 100
        assert [active.request.slot for active in chunk] == sorted(active.request.slot for active in chunk)
