"""Named random streams: fixed for ever, apart for different names, never Python's own hash."""

from hypothesis import given
from hypothesis import strategies as st

from populora.core.rng import stream, stream_key


def test_a_stream_is_fixed_for_ever():
    assert stream_key(0, "propose", 1, "T0") == 199756725008591394310600957354621881696
    assert stream(0, "propose", 1, "T0").integers(0, 10**6, 3).tolist() == stream(0, "propose", 1, "T0").integers(0, 10**6, 3).tolist()


@given(
    st.lists(st.one_of(st.integers(0, 50), st.text(max_size=4)), max_size=4),
    st.lists(st.one_of(st.integers(0, 50), st.text(max_size=4)), max_size=4),
)
def test_different_names_give_different_keys(names, other):
    assert (stream_key(0, *names) == stream_key(0, *other)) == (names == other)


def test_a_number_and_its_text_are_different_names():
    assert stream_key(0, 1) != stream_key(0, "1")
    assert stream_key(1, "a") != stream_key(0, "a")
