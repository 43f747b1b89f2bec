"""The page for everybody: names and the order of headings."""

import re
from itertools import pairwise

import pytest
from reading import until

from populora.report.figure import Figure

pytestmark = pytest.mark.browser


def test_every_control_and_image_has_a_name(visits, report):
    tab = visits.open(f"{report.url}#p=population/7-1")
    tree = tab.locator("body").aria_snapshot()
    nameless = r"^\s*- '?(?:button|link|combobox|searchbox|textbox|img|group|navigation|article|list)(?: \[.*\])?:?$"
    assert not re.findall(nameless, re.sub(r"- list(?:item)?:", "", tree), re.MULTILINE)
    names = ('navigation "Contents"', 'combobox "Teacher"', 'searchbox "Text"', 'img "Training dynamics"', 'list "Problems found"')
    assert all(name in tree for name in (*names, 'button "T0"'))
    assert tree.count("- status") == 1 and "- main" in tree
    for figure in (figure for figure in report.figures if isinstance(figure, Figure)):
        drawing = tab.locator(f"#{figure.name} .drawing")
        assert drawing.get_attribute("role") == "img" and drawing.get_attribute("aria-label") == figure.title
        described = tab.inner_text(f"#{drawing.get_attribute('aria-describedby')}")
        assert " ".join(described.split()) == " ".join(figure.definition.replace("`", "").split())


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
