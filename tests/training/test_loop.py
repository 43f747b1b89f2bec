"""What the loop does beside the steps: prompts that need no tokeniser, and garbage collection."""

import gc
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from experiments.tiny_base.tokenizer import build_tokenizer
from hypothesis import given
from hypothesis import strategies as st
from small_run import SMALL

from populora.core.config import EvaluationConfig
from populora.core.errors import ConfigError
from populora.training.evaluation import check_held_out
from populora.training.loop import COLLECT_AFTER, build_run, prompt_fits, without_long_lived
from populora.training.seed_buffer import fill_buffer
from populora.training.step import selfplay_step

TOKENIZER = build_tokenizer()


class Counting:
    """A tokenizer that notes what it is asked for. With ``wide`` it writes so many tokens for every character, and two around them."""

    def __init__(self, wide: int = 0) -> None:
        self.wide, self.asked = wide, []

    def __call__(self, text: str) -> dict[str, list[int]]:
        self.asked.append(text)
        return {"input_ids": [0] * (2 + self.wide * len(text))} if self.wide else TOKENIZER(text)


@given(st.text(max_size=40) | st.text("abc <>/=\n01", max_size=40), st.integers(1, 40))
def test_a_prompt_fits_if_it_has_few_enough_tokens(text, limit):
    assert prompt_fits(TOKENIZER, limit)(text) == (len(TOKENIZER(text)["input_ids"]) <= limit)


@pytest.mark.parametrize(("wide", "length", "tokenised"), [(0, 30, 0), (0, 31, 1), (1, 28, 0), (1, 29, 1), (3, 9, 0), (3, 10, 1)])
def test_only_a_prompt_that_may_be_too_long_is_tokenised(wide, length, tokenised):
    tokenizer = Counting(wide)
    fits = prompt_fits(tokenizer, 30)
    tokenizer.asked.clear()
    fits("<" * length)
    assert len(tokenizer.asked) == tokenised
    fits("é")
    assert len(tokenizer.asked) == tokenised + 1


def test_long_lived_objects_are_left_out_of_garbage_collection_until_the_end_also_that_by_an_error():
    def fail() -> None:
        with without_long_lived():
            frozen.append(gc.get_freeze_count())
            assert gc.get_threshold()[0] == COLLECT_AFTER
            raise ValueError("the end")

    frozen, thresholds = [], gc.get_threshold()
    with pytest.raises(ValueError, match="the end"):
        fail()
    assert frozen[0] > 0 and gc.get_freeze_count() == 0 and gc.get_threshold() == thresholds


def test_held_out_prompts_that_do_not_fit_are_refused_before_the_run():
    run = SimpleNamespace(held_out=["1", "2", "3"], solve_prompt=str, fits=lambda prompt: prompt != "2", config=SMALL)
    with pytest.raises(ConfigError, match="prompts of 1 held-out problems are longer than"):
        check_held_out(run)


@pytest.mark.slow
def test_what_a_step_leaves_to_garbage_collection_has_no_large_tensors():
    """So it matters little for memory how seldom that is."""
    with build_run(replace(SMALL, evaluation=EvaluationConfig(every=0))) as run:
        fill_buffer(run)
        selfplay_step(run)
        gc.collect()
        gc.disable()
        try:
            selfplay_step(run)
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            tensors = [left for left in gc.garbage if isinstance(left, torch.Tensor)]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    assert sum(tensor.nbytes for tensor in tensors) < 100_000


def test_what_a_calling_program_froze_stays_frozen_and_a_collection_that_is_off_stays_off():
    thresholds = gc.get_threshold()
    gc.freeze()
    try:
        gc.set_threshold(0)
        with without_long_lived():
            assert gc.get_threshold()[0] == 0
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
