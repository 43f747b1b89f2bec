"""The tokenizer gives the same ids whichever class loads it, and loses no text."""

import pytest
from experiments.tiny_base.corpus import draw_shard
from experiments.tiny_base.mixtures import REASONING
from experiments.tiny_base.tokenizer import WHOLE, build_tokenizer, save_tokenizer, vocabulary_size
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, Qwen2Config, Qwen2Tokenizer

TOKENIZER = build_tokenizer()


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(folder)
    Qwen2Config(vocab_size=vocabulary_size(TOKENIZER)).save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


@given(st.text())
def test_any_text_survives(text):
    assert TOKENIZER.decode(TOKENIZER(text)["input_ids"]) == text


def test_automatic_loading_gives_the_same_ids(loaded):
    assert isinstance(loaded, Qwen2Tokenizer), "transformers no longer picks its own class: the detour may have become needless"
    for document in draw_shard(0, 0, 100, REASONING):
        text = document.prompt + document.response
        ids = TOKENIZER(text)["input_ids"]
        assert loaded(text)["input_ids"] == ids and loaded.decode(ids) == text
    assert (loaded.eos_token_id, loaded.pad_token_id) == (TOKENIZER.eos_token_id, TOKENIZER.pad_token_id)


@pytest.mark.parametrize("token", WHOLE)
def test_listed_strings_are_single_tokens(token):
    assert len(TOKENIZER(token)["input_ids"]) == 1


def test_letters_stay_single_and_integers_of_the_domain_are_one_token():
    assert len(TOKENIZER("[12, -7, 'bade']")["input_ids"]) == len(["[", "12", ", ", "-7", ", ", "'", "b", "a", "d", "e", "'", "]"])
    assert len(TOKENIZER("[31, -47]")["input_ids"]) == len(["[", "3", "1", ", ", "-4", "7", "]"])
