"""Which items a base is rendered: those that its context holds; the others are named."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from experiments.tiny_base.tokenizer import build_tokenizer

from populora.core.config import SelfplayConfig
from populora.core.errors import ConfigError
from populora.evals.benchmarks import BENCHMARKS
from populora.evals.eval_task import EvalTask, render_prompts, render_prompts_for_api, response_limit
from populora.evals.models import TINY_LIMITS
from populora.evals.records import Item
from populora.tasks.render import load_prompts

COMPACT = load_prompts("compact")


def test_items_that_do_not_fit_are_not_rendered_but_named(crux):
    long = Item("long", crux[0].fields | {"code": "def f(x):\n    return " + "x + " * 200 + "x"})
    rendered = render_prompts(EvalTask(BENCHMARKS["cruxeval_output"], [*crux, long]), build_tokenizer(), 512, TINY_LIMITS, COMPACT)
    assert list(rendered.prompts) == [item.id for item in crux]
    assert rendered.max_tokens == 224 and 0 < rendered.longest_prompt < 50
    assert list(rendered.left_out) == ["long"] and rendered.left_out["long"].endswith("for the response exceed the context of 512")


def test_the_last_item_that_fits_fills_the_context(crux):
    task = EvalTask(BENCHMARKS["cruxeval_output"], crux[:1], max_tokens=20)
    length = render_prompts(task, build_tokenizer(), 512, TINY_LIMITS, COMPACT).longest_prompt
    assert not render_prompts(task, build_tokenizer(), length + 20, TINY_LIMITS, COMPACT).left_out
    assert render_prompts(task, build_tokenizer(), length + 19, TINY_LIMITS, COMPACT).left_out


def test_an_item_with_characters_that_the_tokenizer_does_not_know_is_named(crux):
    class Simple:
        unk_token_id, unk_token = 0, "<unk>"

        def __call__(self, text, add_special_tokens=True):
            return {"input_ids": [int(character.isascii()) for character in text]}

    odd = Item("odd", crux[0].fields | {"input": "'é'"})
    rendered = render_prompts(EvalTask(BENCHMARKS["cruxeval_output"], [crux[0], odd]), Simple(), 512, TINY_LIMITS, COMPACT)
    assert rendered.left_out == {"odd": "unknown_characters"}


def test_a_token_for_the_unknown_that_also_begins_texts_leaves_nothing_out(crux, begins_texts):
    begins_texts.unk_token = begins_texts.bos_token
    begun = Item("begun", crux[0].fields | {"input": "'<pad>'"})
    rendered = render_prompts(EvalTask(BENCHMARKS["cruxeval_output"], [crux[0], begun]), begins_texts, 512, TINY_LIMITS, COMPACT)
    assert list(rendered.prompts) == ["made_0", "begun"] and begins_texts(rendered.prompts["made_0"])["input_ids"][0] == 0


def test_a_response_may_be_as_long_as_in_azrs_evaluation_unless_the_context_is_too_small():
    task, tiny = EvalTask(BENCHMARKS["math500"], ()), EvalTask(BENCHMARKS["tiny"], ())
    assert response_limit(task, SelfplayConfig(), 32768, 700) == 16000
    assert response_limit(task, TINY_LIMITS, 512, 100) == 224
    assert response_limit(task, SelfplayConfig(), 4096, 700) == 3396
    assert response_limit(tiny, TINY_LIMITS, 512, 100) == 224
    assert response_limit(EvalTask(BENCHMARKS["math500"], (), max_tokens=100), TINY_LIMITS, 512, 500) == 100
    with pytest.raises(ConfigError, match="math500: max_tokens is 512, and the base's context of 512 tokens"):
        response_limit(EvalTask(BENCHMARKS["math500"], (), max_tokens=512), TINY_LIMITS, 512, 100)


def test_a_limit_makes_room_for_the_longest_prompt_down_to_half_of_the_context():
    task = EvalTask(BENCHMARKS["livecodebench"], ())
    for longest, limit in ((96, 8096), (97, 8095), (700, 7492), (4096, 4096), (6000, 4096)):
        assert response_limit(task, SelfplayConfig(), 8192, longest) == limit


def test_a_lowered_limit_is_said_and_does_not_depend_on_how_many_items_are_rendered(crux):
    long = Item("long", crux[0].fields | {"code": "def f(x):\n    return " + "x + " * 60 + "x"})
    task = EvalTask(replace(BENCHMARKS["cruxeval_output"], max_tokens=600), [*crux, long])
    rendered = render_prompts(task, build_tokenizer(), 612, TINY_LIMITS, COMPACT)
    assert len(rendered.prompts) == 4 and rendered.max_tokens == 612 - rendered.longest_prompt < 600 == rendered.lowered_from
    assert rendered.settings()["lowered_from"] == 600
    first = render_prompts(replace(task, limit=2), build_tokenizer(), 612, TINY_LIMITS, COMPACT)
    assert list(first.prompts) == ["made_0", "made_1"] and first.max_tokens == rendered.max_tokens
    assert list(render_prompts_for_api(replace(task, limit=1), 100, COMPACT).prompts) == ["made_0"]
    roomy = render_prompts(task, build_tokenizer(), 2048, TINY_LIMITS, COMPACT)
    assert roomy.max_tokens == 600 and not roomy.lowered_from and "lowered_from" not in roomy.settings()


def test_where_no_context_is_known_every_item_is_rendered(crux):
    rendered = render_prompts_for_api(EvalTask(BENCHMARKS["tiny"], []), 100, COMPACT)
    assert rendered.max_tokens == 100 and not rendered.prompts
    assert render_prompts_for_api(EvalTask(BENCHMARKS["cruxeval_input"], crux), 100, COMPACT).max_tokens == 8096


@pytest.mark.parametrize("benchmark", ["cruxeval_input", "cruxeval_output"])
def test_the_tiny_base_holds_all_of_cruxeval(benchmark, benchmark_data):
    lines = (benchmark_data / "cruxeval.jsonl").read_text().splitlines()
    items = [Item(fields["id"], fields) for fields in map(json.loads, lines)]
    tokenizer = build_tokenizer()
    rendered = render_prompts(EvalTask(BENCHMARKS[benchmark], items), tokenizer, 512, TINY_LIMITS, COMPACT)
    assert len(rendered.prompts) == 800 and not rendered.left_out
    for prompt in rendered.prompts.values():
        assert tokenizer.decode(tokenizer(prompt)["input_ids"], clean_up_tokenization_spaces=False) == prompt
