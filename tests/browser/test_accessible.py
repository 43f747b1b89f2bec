"""The page for everybody: names, order of headings, contrast."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from reading import colour, contrast, until

from populora.report.figure import Figure

pytestmark = pytest.mark.browser


def test_every_control_and_image_has_a_name(visits, report):
    tab = visits.open(f"{report.url}#p=population/7-1")
    tree = tab.locator("body").aria_snapshot()
    assert not re.findall(
        r"^\s*- '?(?:button|link|combobox|searchbox|textbox|img|group|navigation|article|list)(?: \[.*\])?:?$",
        re.sub(r"- list(?:item)?:", "", tree),
        re.MULTILINE,
    )
    for part in (
        'navigation "Contents"',
        'combobox "Teacher"',
        'searchbox "Text"',
        'img "Training dynamics"',
        'list "Problems found"',
        'button "T0"',
    ):
        assert part in tree
    assert tree.count("- status") == 1 and "- main" in tree
    for one in (one for one in report.figures if isinstance(one, Figure)):
        drawing = tab.locator(f"#{one.name} .drawing")
        assert drawing.get_attribute("role") == "img" and drawing.get_attribute("aria-label") == one.title
        described = tab.inner_text(f"#{drawing.get_attribute('aria-describedby')}")
        assert " ".join(described.split()) == " ".join(one.definition.replace("`", "").split())


def test_headings_are_in_order_and_the_first_stop_skips_the_contents(visits, report):
    tab = visits.open(f"{report.url}#p=population/7-1")
    levels = tab.eval_on_selector_all("h1, h2, h3, h4", "all => all.map(one => Number(one.tagName[1]))")
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    tab.goto(report.url)
    tab.reload()
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.className") == "skip"
    tab.keyboard.press("Enter")
    until(tab, "location.hash === '#main'")


TEXTS = """() => [...document.querySelectorAll("body *")]
  .filter((one) => !one.closest("svg, script, option") && one.checkVisibility())
  .filter((one) => [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
  .map((one) => {
    const ground = (of) => getComputedStyle(of).backgroundColor;
    const under = (of) => (ground(of) === "rgba(0, 0, 0, 0)" ? under(of.parentElement) : ground(of));
    return [one.outerHTML.slice(0, 60), getComputedStyle(one).color, under(one)];
  })"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out(visits, report, scheme):
    tab = visits.open(f"{report.url}#p=population/7-0", color_scheme=scheme)
    for text in ("ink", "soft", "accent", "good", "bad"):
        for ground in ("paper", "panel"):
            assert contrast(colour(tab, f"var(--{text})"), colour(tab, f"var(--{ground})")) >= 4.5, (text, ground)
    for line in ("c1", "c2", "c3", "c4", "c5", "c6", "pale"):
        assert contrast(colour(tab, f"var(--{line})"), colour(tab, "var(--paper)")) >= 2.5, line
    tab.get_by_role("button", name="S0", exact=True).click()
    tab.mouse.move(0, 0)
    texts = tab.evaluate(TEXTS)
    numbers = [(what, [tuple(map(int, re.findall(r"\d+", one)[:3])) for one in colours]) for what, *colours in texts]
    assert len(numbers) > 100
    assert [what for what, (text, ground) in numbers if contrast(text, ground) < 4.5] == []
