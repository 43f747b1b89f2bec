"""The explorer of the page, clicked and typed through: filters, the problem's view, links, keys, and a list of thousands."""

from __future__ import annotations

import base64
import gzip
import json
from urllib.parse import quote

import pytest

pytestmark = pytest.mark.browser


def found(tab) -> int:
    return int(tab.inner_text("#found").split()[0].replace(",", ""))


def title(tab) -> str:
    return tab.inner_text("#problem h3")


def entry_of(report, entry: str = "7-2") -> dict:
    return next(one for one in report.samples["population"] if one["id"] == entry)


def answer_word(answer: dict) -> str:
    return "void" if answer["void"] else "correct" if answer["correct"] else answer["reason"]


@pytest.fixture
def tab(visits, report):
    page = visits.open(report.url)
    page.select_option("[name=run]", label="population")
    return page


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
    tab.wait_for_function("document.querySelector('#filters').elements.author.value === ''")
    assert tab.input_value(f"[name={name}]") == ""


def test_text_is_found_in_programs_proposals_and_answers_in_any_case(tab, report):
    for wanted in ("ONERROR=", "while true", "Think</Think>", "x * 2"):
        tab.fill("[name=text]", wanted)
        texts = [
            [one.get("program", ""), one["text"], *(answer["text"] for answer in one.get("answers", ()))]
            for one in report.samples["population"]
        ]
        assert found(tab) == sum(any(wanted.lower() in text.lower() for text in own) for own in texts) > 0, wanted


def test_filters_combine_and_an_impossible_combination_says_zero(tab):
    tab.select_option("[name=step]", "3")
    tab.select_option("[name=author]", "T1")
    assert found(tab) == 2
    tab.select_option("[name=task]", "code_f")
    assert found(tab) == 0 and tab.locator("#list a").count() == 0
    assert tab.inner_text("#found").startswith("0 proposals of the 72")
    tab.click("#filters button[type=reset]")
    tab.wait_for_function("document.querySelectorAll('#list a').length === 72")


def test_student_and_answer_mean_the_same_answer(tab, report):
    tab.select_option("[name=student]", "S1")
    tab.select_option("[name=answer]", "void")
    assert found(tab) == 12
    tab.select_option("[name=answer]", "wrong_value")
    assert found(tab) == 0, "those are S0's"


def test_the_other_run_has_its_own_choices(tab, report):
    tab.select_option("[name=author]", "T1")
    tab.select_option("[name=run]", label="agent")
    assert found(tab) == 72 and tab.locator("[name=author] option").all_inner_texts() == ["all", "A0"]


def test_a_problem_is_shown_whole(tab, report):
    tab.click('#list a[href$="/7-2"]')
    assert title(tab) == "T0, step 7: code_f, asks for the function"
    text, entry = tab.inner_text("#problem"), entry_of(report)
    for part in (entry["program"], "f(3) → 6", "f(2) → 4   (hidden from the student)", "doubles", "solved never · reward of T0: 0.00"):
        assert part in text
    for part in (
        "AST depth 9",
        "cyclomatic 9",
        "90 lines",
        "9 variables",
        "rho 0.00",
        "✗ S0 ×2: wrong_value",
        "reward -0.50, not trained on",
    ):
        assert part in text
    assert tab.locator("#problem pre").last.inner_text() == "proposal 2" and "populora show" in text and "--step 7 --teacher T0" in text
    tab.click('#list a[href$="/7-0"]')
    assert "✓ S0: correct" in tab.inner_text("#problem") and "✗ S0: format" in tab.inner_text("#problem")


def test_a_rejected_proposal_shows_what_was_written_and_why_not(tab):
    tab.select_option("[name=verdict]", "rejected: out_of_resources")
    tab.click("#list a >> nth=0")
    assert "rejected: out_of_resources" in tab.inner_text("#problem") and "while True" in tab.inner_text("#problem")


def test_hostile_text_is_text(tab, report):
    tab.click('#list a[href$="/7-1"]')
    entry = entry_of(report, "7-1")
    assert "</script>" in entry["program"] and "\\u202e" in entry["program"]
    assert tab.locator("#problem pre").all_text_contents()[0] == entry["program"]
    assert tab.locator("#problem pre").last.text_content() == entry["text"]
    assert tab.locator("#problem pre *").count() == 0 and tab.locator("main img").count() == 0
    assert tab.title().startswith("populora: ") and "\u202e" not in tab.content()


def test_a_link_opens_its_problem_in_a_new_window(visits, report, tab):
    tab.click('#list a[href$="/7-2"]')
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
    assert tab.locator("#problem h3").count() == 1


def test_j_and_k_go_through_what_was_found(tab):
    tab.select_option("[name=author]", "T1")
    tab.locator("#problem").focus()
    titles = []
    for key in "jjjk":
        tab.keyboard.press(key)
        tab.wait_for_function("previous => location.hash !== previous", arg=titles[-1] if titles else "")
        titles.append(tab.evaluate("location.hash"))
    assert len(set(titles[:3])) == 3 and titles[3] == titles[1]
    tab.keyboard.press("k")
    tab.keyboard.press("k")  # the first one stays
    tab.wait_for_function("first => location.hash === first", arg=titles[0])
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
    assert second.get_attribute("aria-current") == "true" and tab.evaluate("document.activeElement.id") == "problem"
    assert tab.locator("#problem").get_attribute("aria-label") == title(tab)
    tab.keyboard.press("Shift+Tab")
    assert tab.evaluate("document.activeElement === document.querySelector('#list a[aria-current]')")
    tab.keyboard.press("Enter")  # it is open already: the reader goes there again
    assert tab.evaluate("document.activeElement.id") == "problem"


@pytest.fixture
def long(report, tmp_path):
    """The page with 3,000 entries in its first run."""
    samples = list(report.samples.values())[0]
    entries = [{**samples[index % 72], "id": f"n{index}", "step": 1 + index // 100} for index in range(3000)]
    sample = {"run": "long", "folder": "runs/long", "entries": entries, "proposals": 3000, "valid": 2000, "answers": 9}
    text, opening = report.path.read_text("utf-8"), 'id="blob-explorer-0">'
    start = text.index(opening) + len(opening)
    packed = base64.b64encode(gzip.compress(json.dumps(sample).encode())).decode()
    path = tmp_path / "long.html"
    path.write_text(text[:start] + packed + text[text.index("<", start) :], encoding="utf-8")
    return path.as_uri()


def test_a_long_list_is_shown_in_stretches(visits, long):
    tab = visits.open(long)
    assert found(tab) == 3000 and tab.locator("#list a").count() == 200
    tab.click("text=2800 more")
    assert tab.locator("#list a").count() == 400 and tab.evaluate("document.activeElement.hash") == "#p=long/n200"
    tab.fill("[name=text]", "no such text")
    tab.fill("[name=text]", "")
    assert tab.locator("#list a").count() == 200, "a new search begins at the top"


def test_j_goes_on_beyond_the_stretch_that_is_shown(visits, long):
    tab = visits.open(f"{long}#p=long/n198")
    for number in (199, 200, 201):
        tab.keyboard.press("j")
        tab.wait_for_function("hash => location.hash === hash", arg=f"#p=long/n{number}")
        assert tab.locator('#list a[aria-current="true"]').get_attribute("href") == f"#p=long/n{number}"
        assert tab.locator('#list a[aria-current="true"]').is_visible()


def test_a_link_far_down_shows_its_neighbours(visits, long):
    tab = visits.open(f"{long}#p={quote('long')}/n2500")
    current = tab.locator('#list a[aria-current="true"]')
    assert current.get_attribute("href") == "#p=long/n2500" and tab.locator("#list a").count() == 200
    listed, link = tab.locator("#list").bounding_box(), current.bounding_box()
    assert listed["y"] <= link["y"] and link["y"] + link["height"] <= listed["y"] + listed["height"], "scrolled to"
    tab.click("text=2400 before")
    assert tab.locator("#list a").count() == 400 and tab.evaluate("document.activeElement.hash") == "#p=long/n2399"


def test_the_open_problem_stays_while_filters_change(visits, long):
    tab = visits.open(f"{long}#p=long/n2500")
    before = title(tab)
    tab.select_option("[name=step]", "1")
    assert found(tab) == 100 and title(tab) == before
    tab.click("#filters button[type=reset]")
    tab.wait_for_function("document.querySelectorAll('#list a').length === 200")
    assert title(tab) == before and tab.url.endswith("n2500")
