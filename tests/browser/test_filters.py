"""The explorer's filters: each finds what the page's sample holds, alone and combined."""

from __future__ import annotations

import json

import pytest
from reading import answer_word, found, until

pytestmark = pytest.mark.browser


FILTERS = [
    ("step", "7", lambda one: one["step"] == 7),
    ("author", "T1", lambda one: one["author"] == "T1"),
    ("task", "code_f", lambda one: one["task"] == "code_f"),
    ("verdict", "solved never", lambda one: one["verdict"] == "solved never"),
    ("verdict", "rejected: format", lambda one: one["verdict"] == "rejected: format"),
    ("student", "S1", lambda one: any(answer["student"] == "S1" for answer in one.get("answers", ()))),
    ("answer", "wrong_value", lambda one: any(answer_word(answer) == "wrong_value" for answer in one.get("answers", ()))),
]


@pytest.mark.parametrize(("name", "value", "fits"), FILTERS, ids=[f"{name}={value}" for name, value, _ in FILTERS])
def test_a_filter_finds_what_the_sample_holds(tab, report, name, value, fits):
    entries = report.samples["population"]
    assert found(tab) == len(entries) == tab.locator("#list a").count() == 72
    tab.select_option(f"[name={name}]", value)
    assert found(tab) == tab.locator("#list a").count() == sum(map(fits, entries)) > 0
    tab.click("#filters button[type=reset]")
    until(tab, "document.querySelector('#filters').elements.author.value === ''")
    assert tab.input_value(f"[name={name}]") == ""


def test_text_is_found_in_programs_proposals_and_answers_in_any_case(tab, report):
    for wanted in ("ONERROR=", "while true", "Think</Think>", "x * 2"):
        tab.fill("[name=text]", wanted)
        texts = [json.dumps([one.get("program", ""), one["text"], one.get("answers")]).lower() for one in report.samples["population"]]
        assert found(tab) == sum(wanted.lower() in text for text in texts) > 0, wanted
