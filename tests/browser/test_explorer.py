"""The explorer of the page, clicked and typed through: the problem's view, links and keys."""

import json
from dataclasses import replace

import pytest
from reading import opened, title, until

from populora.core.config import Config
from populora.core.types import Example
from populora.report.arms import arms_of
from populora.report.figure import Study
from populora.report.page import page
from populora.runs.directory import new_run
from populora.runs.metrics_log import write_step

pytestmark = pytest.mark.browser


def entry_of(report, entry: str = "7-2") -> dict:
    return next(sample for sample in report.samples["population"] if sample["id"] == entry)


def test_a_problem_is_shown_whole(tab, report):
    opened(tab, "7-2")
    assert title(tab) == "T0, step 7: code_f, asks for the program"
    text, entry = tab.inner_text("#problem"), entry_of(report)
    for part in (entry["program"], "f(3) → 6", "f(2) → 4   (hidden from the student)", "doubles", "solved never · reward of T0: 0.00"):
        assert part in text
    for part in (
        "AST depth 9 · cyclomatic 9 · lines of code 90 · variables 9 · rho 0.00",
        "✗ S0 ×2: wrong_value",
        "reward -0.50, not trained on",
    ):
        assert part in text
    assert tab.locator("#problem pre").last.inner_text() == "proposal 2"
    assert "Everything of T0 in this step: populora show" in text and "--step 7 --teacher T0 --limit 0" in text
    opened(tab, "7-0")
    assert "✓ S0: correct" in tab.inner_text("#problem") and "✗ S0: format" in tab.inner_text("#problem")


def test_problems_of_two_domains_are_shown_in_their_own_words(visits, tmp_path, make_mixed_record):
    record = make_mixed_record(1)
    hostile = replace(record.proposals[1].problem, shown=(Example("t(a)\n'$&{inputs}'", "'$1'"),))
    proposals = (record.proposals[0], record.proposals[1]._replace(problem=hostile), *record.proposals[2:])
    attempts = tuple(a._replace(problem=hostile) if a.problem.id == "1-1" else a for a in record.attempts)
    with new_run(tmp_path / "mixed", replace(Config(), steps=1, domains=("python", "sql")), {"sandbox": "full"}):
        write_step(tmp_path / "mixed", make_mixed_record(1, proposals=proposals, attempts=attempts))
    (tmp_path / "page.html").write_text(page(Study(arms_of([tmp_path / "mixed"])), []), encoding="utf-8")
    tab = visits.open((tmp_path / "page.html").as_uri() + "#p=mixed/1-1")
    assert title(tab) == "T0, step 1: sql_o, asks for the output"
    assert "joins 1 · nesting 2 · clauses 3 · columns 4 · rho 1.00" in tab.inner_text("#problem")
    assert "t(a)\n'$&{inputs}'\n→\n'$1'" in tab.locator("#problem pre").all_text_contents()
    tab.goto(tab.url.partition("#")[0] + "#p=mixed/1-0")
    until(tab, "document.querySelector('#problem h3').textContent.includes('code_o')")
    assert "f(3) → 6" in tab.inner_text("#problem") and "lines of code 2" in tab.inner_text("#problem")


def test_hostile_text_is_text(tab, report):
    opened(tab, "7-1")
    entry = entry_of(report, "7-1")
    assert "</script>" in entry["program"] and "\\u202e" in entry["program"]
    assert tab.locator("#problem pre").all_text_contents()[0] == entry["program"]
    assert tab.locator("#problem pre").last.text_content() == entry["text"]
    assert tab.locator("#problem pre *").count() == 0 and tab.locator("main img").count() == 0
    assert tab.title().startswith("populora: ") and "\u202e" not in tab.content()


def test_a_link_opens_its_problem_in_a_new_window(visits, report, tab):
    opened(tab, "7-2")
    assert tab.evaluate("location.hash") == "#p=population/7-2"
    other = visits.beside(tab.context, tab.url)
    assert title(other) == title(tab) and other.locator('#list a[aria-current="true"]').count() == 1
    assert other.locator("[name=run] option:checked").inner_text() == "population"
    assert other.evaluate("document.activeElement.id") == "problem"


@pytest.mark.parametrize("link", ["#p=population/nothing", "#p=gone/7-2", "#p=%/%", "#p=population"])
def test_a_link_to_what_the_sample_lacks_says_so(visits, report, link):
    tab = visits.open(report.url + link)
    assert "not in this page's sample" in tab.inner_text("#problem")
    tab.click("#list a >> nth=0")
    tab.wait_for_selector("#problem h3")


def test_j_and_k_go_through_what_was_found(tab):
    tab.select_option("[name=author]", "T1")
    tab.locator("#problem").focus()
    titles = []
    for key in "jjjk":
        tab.keyboard.press(key)
        until(tab, f"location.hash !== {json.dumps(titles[-1] if titles else '')}")
        titles.append(tab.evaluate("location.hash"))
    assert len(set(titles[:3])) == 3 and titles[3] == titles[1]
    tab.keyboard.press("k")
    tab.keyboard.press("k")  # the first one stays
    until(tab, f"location.hash === {json.dumps(titles[0])}")
    tab.fill("[name=text]", "")
    tab.type("[name=text]", "jk")
    assert tab.input_value("[name=text]") == "jk" and tab.evaluate("location.hash") == titles[0], "letters that are typed are text"


def test_the_keyboard_alone_opens_a_problem(tab):
    tab.focus("#filters button[type=reset]")
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement === document.querySelector('#list a')")
    for key in ("ArrowDown", "ArrowDown", "ArrowUp", "Enter"):
        tab.keyboard.press(key)
    tab.wait_for_selector("#problem h3")
    second = tab.locator("#list a >> nth=1")
    until(tab, "document.activeElement.id === 'problem'")
    assert second.get_attribute("aria-current") == "true"
    assert tab.locator("#problem").get_attribute("aria-label") == title(tab)
    tab.keyboard.press("Shift+Tab")
    assert tab.evaluate("document.activeElement === document.querySelector('#list a[aria-current]')")
    tab.keyboard.press("Enter")  # it is open already: the reader goes there again
    until(tab, "document.activeElement.id === 'problem'")
