"""The page in light and dark, on a narrow screen, on paper, and without JavaScript."""

import pytest
from reading import colour, until

pytestmark = pytest.mark.browser
NARROW = {"width": 390, "height": 844}


def test_colours_are_the_systems(visits, report):
    tab = visits.open(report.url, color_scheme="dark")
    assert sum(colour(tab, "--paper")) < 120
    tab.emulate_media(color_scheme="light")
    assert colour(tab, "--paper") == (255, 255, 255)
    curve = tab.locator("#dynamics svg path[style*='stroke: var(--c1)']").first
    assert curve.evaluate("one => getComputedStyle(one).stroke") == f"rgb{colour(tab, '--c1')}"


def test_a_narrow_screen_does_not_scroll_sideways(visits, report):
    tab = visits.open(f"{report.url}#p=population/7-1", viewport=NARROW)
    assert tab.evaluate("document.documentElement.scrollWidth") == NARROW["width"]
    assert tab.locator("#contents").get_attribute("open") is None
    tab.click("#contents summary")
    assert tab.locator('nav a[href="#lineage"]').is_visible()
    assert tab.evaluate("document.documentElement.scrollWidth") == NARROW["width"]
    tab.click('#list a[href$="/7-2"]')
    top = "document.querySelector('#problem').getBoundingClientRect().top"
    until(tab, f"{top} >= 0 && {top} < innerHeight / 2")


def test_on_paper_there_are_figures_in_light_colours(visits, report):
    tab = visits.open(report.url, color_scheme="dark", viewport={"width": 718, "height": 1000})  # A4 within its margins
    tab.emulate_media(media="print")
    assert colour(tab, "--paper") == (255, 255, 255) and sum(colour(tab, "--ink")) < 120
    for hidden in ("#explorer", "nav", ".members", "[data-csv=dynamics]"):
        assert not tab.locator(hidden).is_visible()
    widths = tab.eval_on_selector_all(".drawing svg", "all => all.map(one => one.getBoundingClientRect().right)")
    assert max(widths) <= 718, "nothing is cut off"
    assert tab.pdf(format="A4").startswith(b"%PDF")


def test_without_javascript_there_are_the_figures(visits, report):
    tab = visits.open(report.url, ready=False, java_script_enabled=False, color_scheme="dark")
    assert tab.locator("#dynamics svg").is_visible() and tab.locator("#lineage figcaption").is_visible()
    assert tab.get_by_text("The explorer needs JavaScript").is_visible()
    for hidden in ("#filters", "#found", ".members"):
        assert not tab.locator(hidden).is_visible()
