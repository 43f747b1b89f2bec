"""Pieces of a step: every row once, within the budget, prompts whole, the same whoever computes them; and gradients add up over them."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from populora.core.config import LearnerConfig
from populora.core.errors import PopuloraError
from populora.engine.learning.batching import TrainRow, micro_batches
from populora.engine.learning.learner import InProcessLearner
from populora.engine.learning.work_splitting import MAX_SHARE, MIN_PROMPTS, split_work


def row(slot: int, prompt: int, number: int, tokens: int) -> TrainRow:
    return TrainRow(slot, [number] * prompt, [1] * tokens, [0.0] * tokens, 1.0)


def forward_tokens(rows):
    return sum(group.prompt_group.tokens for batch in micro_batches(rows, 10**9) for group in batch)


steps = st.lists(st.builds(row, st.integers(0, 4), st.integers(1, 9), st.integers(1, 3), st.integers(1, 200)), min_size=1, max_size=80)


@example([row(0, 1, 1, 38), row(0, 1, 1, 1), row(0, 1, 1, 9)], 250, 5, 1)
@given(steps, st.sampled_from([250, 1000]), st.integers(5, 9), st.integers(1, 64))
def test_every_row_is_in_one_piece_of_its_slot_within_the_budget(rows, budget, slots, parts):
    pieces = split_work(rows, budget, slots, parts)
    assert sorted(index for items in pieces.values() for piece in items for index in piece.rows) == list(range(len(rows)))
    for slot, items in pieces.items():
        for piece in items:
            members = [rows[index] for index in piece.rows]
            assert list(piece.rows) == sorted(piece.rows) and {member.slot for member in members} == {slot}
            assert piece.tokens == forward_tokens(members) <= budget


@given(steps, st.integers(5, 9), st.integers(1, 64))
def test_pieces_are_small_unless_they_are_one_prompt_or_one_row(rows, slots, parts):
    mean = forward_tokens(rows) / slots
    for items in split_work(rows, 10**6, slots, parts).values():
        for piece in items:
            members = [rows[index] for index in piece.rows]
            prompt = len(members[0].prompt_tokens)
            if piece.tokens > math.ceil(mean / parts):
                assert len({tuple(member.prompt_tokens) for member in members}) == 1
                assert len(members) == 1 or piece.tokens <= max(math.ceil(mean / MAX_SHARE), MIN_PROMPTS * prompt)


def test_responses_stay_with_their_prompt_in_a_step_of_usual_size():
    rows = [row(slot, 50, prompt, 100) for slot in range(2) for prompt in range(1, 40) for _ in range(8)]
    pieces = split_work(rows, 16384, 2)
    owners = Counter((slot, tuple(rows[piece.rows[0]].prompt_tokens)) for slot, items in pieces.items() for piece in items)
    assert set(owners.values()) == {1} and {len(piece.rows) for items in pieces.values() for piece in items} <= {8, 16}


def test_gradients_of_pieces_add_up_to_those_of_the_step(adapted, make_rows):
    rows = make_rows(4)
    learner = InProcessLearner(adapted, LearnerConfig(micro_batch_tokens=64), agreement=math.inf)
    tokens = Counter[int]()
    for each in rows:
        tokens[each.slot] += len(each.tokens)

    def gradient(chosen):
        adapted.bank.gradient.zero_()
        learner.accumulate(micro_batches(chosen, 64), tokens)
        return adapted.bank.gradient.clone()

    pieces = [piece for items in split_work(rows, 64, 4).values() for piece in items]
    assert len(pieces) > 8
    ranks = [sorted(index for piece in pieces[rank::3] for index in piece.rows) for rank in range(3)]
    parts = [gradient([rows[index] for index in chosen]) for chosen in ranks]
    torch.testing.assert_close(sum(parts), gradient(rows), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("rows, slots, parts", [([], 0, 4), ([], 2, 0), ([row(0, 0, 1, 5)], 2, 4)])
def test_nothing_to_cut_is_refused(rows, slots, parts):
    with pytest.raises(PopuloraError, match="at least one slot, one part and a prompt in each row"):
        split_work(rows, 64, slots, parts)
