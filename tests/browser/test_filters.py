"""The explorer's filters: each finds what the page's sample holds, alone and combined."""

import json

import pytest
from reading import answer_word, count_found, until

pytestmark = pytest.mark.browser
FILTERS = [
    ("step", "7", lambda entry: entry["step"] == 7),
    ("author", "T1", lambda entry: entry["author"] == "T1"),
    ("task", "code_f", lambda entry: entry["task"] == "code_f"),
    ("verdict", "solved never", lambda entry: entry["verdict"] == "solved never"),
    ("verdict", "rejected: format", lambda entry: entry["verdict"] == "rejected: format"),
    ("student", "S1", lambda entry: any(answer["student"] == "S1" for answer in entry.get("answers", ()))),
    ("answer", "wrong_value", lambda entry: any(answer_word(answer) == "wrong_value" for answer in entry.get("answers", ()))),
]


@pytest.mark.parametrize(("name", "value", "fits"), FILTERS, ids=[f"{name}={value}" for name, value, _ in FILTERS])
def test_a_filter_finds_what_the_sample_holds(tab, report, name, value, fits):
    entries = report.samples["population"]
    assert count_found(tab) == len(entries) == tab.locator("#list a").count() == 72
    tab.select_option(f"[name={name}]", value)
    assert count_found(tab) == tab.locator("#list a").count() == sum(map(fits, entries)) > 0
    tab.click("#filters button[type=reset]")
    until(tab, "document.querySelector('#filters').elements.author.value === ''")
    assert tab.input_value(f"[name={name}]") == ""


def test_text_is_found_in_programs_proposals_and_answers_in_any_case(tab, report):
    entries = report.samples["population"]
    texts = [json.dumps([entry.get("program", ""), entry["text"], entry.get("answers")]).lower() for entry in entries]
    for wanted in ("ONERROR=", "while true", "Think</Think>", "x * 2"):
        tab.fill("[name=text]", wanted)
        assert count_found(tab) == sum(wanted.lower() in text for text in texts) > 0, wanted
