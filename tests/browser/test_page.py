"""The page in a browser: ready at once, members, numbers, colours, narrow screens, paper, without JavaScript, and for everybody."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from populora.report.figure import Absent, Figure

pytestmark = pytest.mark.browser
NARROW = {"width": 390, "height": 844}


def colour(tab, value: str) -> tuple[int, ...]:
    """A colour of the style sheet as red, green and blue in use."""
    script = "value => { const one = document.body.appendChild(document.createElement('i')); one.style.color = value; const used = getComputedStyle(one).color; one.remove(); return used; }"
    return tuple(map(int, re.findall(r"\d+", tab.evaluate(script, value))[:3]))


def contrast(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    """WCAG 2.2's contrast ratio."""

    def luminance(rgb: tuple[int, ...]) -> float:
        shares = [value / 255 for value in rgb]
        linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
        return sum(weight * share for weight, share in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_ready_within_two_seconds(visits, report):
    tab = visits.open(report.url, ready=False)
    tab.wait_for_selector("html[data-ready]")
    assert tab.evaluate("performance.now()") < 2000


def test_every_figure_stands_in_the_page_or_says_why_not(visits, report):
    tab = visits.open(report.url)
    names = [one.name for one in report.figures]
    assert tab.eval_on_selector_all("figure", "all => all.map(one => one.id)") == sorted(
        names, key=lambda name: not next(one for one in report.figures if one.name == name).paper
    )
    for one in report.figures:
        assert tab.locator(f"#{one.name} svg").count() == isinstance(one, Figure)
        assert ("Not here" in tab.inner_text(f"#{one.name}")) == isinstance(one, Absent)
        assert tab.locator(f'nav a[href="#{one.name}"]').inner_text() == one.title
    assert sum(isinstance(one, Figure) for one in report.figures) > 12


def test_a_member_is_picked_out_in_every_figure_and_let_go(visits, report):
    tab = visits.open(report.url)
    button = tab.get_by_role("button", name="S0", exact=True)
    shown = "all => all.map(one => [one.dataset.mark, one.closest('figure').id, Number(getComputedStyle(one).opacity)])"
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    marks = tab.eval_on_selector_all("[data-mark]", shown)
    assert all((opacity == 1) == (name == "S0") for name, _, opacity in marks)
    assert len({figure for name, figure, _ in marks if name == "S0"}) >= 3
    tab.get_by_role("button", name="T1", exact=True).click()
    assert button.get_attribute("aria-pressed") == "false"
    tab.get_by_role("button", name="T1", exact=True).click()
    assert {opacity for *_, opacity in tab.eval_on_selector_all("[data-mark]", shown)} == {1}


def test_numbers_are_downloaded_as_they_are(visits, report):
    tab = visits.open(report.url)
    for one in (one for one in report.figures if isinstance(one, Figure)):
        with tab.expect_download() as download:
            tab.click(f'[data-csv="{one.name}"]')
        assert download.value.suggested_filename == f"{one.name}.csv"
        assert Path(download.value.path()).read_bytes().decode() == one.csv()


def test_colours_are_the_systems_until_the_reader_chooses(visits, report):
    tab = visits.open(report.url, color_scheme="dark")
    dark = colour(tab, "var(--paper)")
    tab.emulate_media(color_scheme="light")
    light = colour(tab, "var(--paper)")
    assert light == (255, 255, 255) and sum(dark) < 120
    button, seen = tab.locator("#theme"), []
    for _ in range(3):
        button.click()
        seen.append((button.inner_text(), colour(tab, "var(--paper)")))
        assert button.inner_text().split()[1] in button.get_attribute("aria-label")
    assert seen == [("○ light", light), ("● dark", dark), ("◐ auto", light)]
    button.click()
    button.click()
    tab.reload()
    tab.wait_for_selector("html[data-ready]")
    assert button.inner_text() == "● dark" and colour(tab, "var(--paper)") == dark
    curve = tab.locator("#dynamics svg path[style*='--c1']").first
    assert "rgb({}, {}, {})".format(*colour(tab, "var(--c1)")) in curve.evaluate(
        "one => getComputedStyle(one).stroke + getComputedStyle(one).fill"
    )


def test_a_narrow_screen_does_not_scroll_sideways(visits, report):
    tab = visits.open(f"{report.url}#p=population/7-1", viewport=NARROW)
    assert tab.evaluate("document.documentElement.scrollWidth") == NARROW["width"]
    assert tab.locator("#contents").get_attribute("open") is None
    tab.click("#contents summary")
    assert tab.locator('nav a[href="#lineage"]').is_visible()
    assert tab.evaluate("document.documentElement.scrollWidth") == NARROW["width"]
    tab.click("#list a >> nth=3")
    tab.wait_for_function(
        "{ const { top } = document.querySelector('#problem').getBoundingClientRect(); top >= 0 && top < innerHeight / 2 }"
    )


def test_on_paper_there_are_figures_in_light_colours(visits, report):
    tab = visits.open(report.url, color_scheme="dark", viewport={"width": 718, "height": 1000})  # A4 within its margins
    tab.click("#theme")
    tab.click("#theme")
    tab.emulate_media(media="print")
    assert colour(tab, "var(--paper)") == (255, 255, 255) and sum(colour(tab, "var(--ink)")) < 120
    for hidden in ("#explorer", "nav", "#theme", ".members", "[data-csv=dynamics]"):
        assert not tab.locator(hidden).is_visible()
    widths = tab.eval_on_selector_all(".drawing svg", "all => all.map(one => one.getBoundingClientRect().right)")
    assert max(widths) <= 718, "nothing is cut off"
    assert tab.pdf(format="A4").startswith(b"%PDF")


def test_without_javascript_there_are_the_figures(visits, report):
    tab = visits.open(report.url, ready=False, java_script_enabled=False, color_scheme="dark")
    assert tab.locator("#dynamics svg").is_visible() and tab.locator("#lineage figcaption").is_visible()
    assert tab.get_by_text("The explorer needs JavaScript").is_visible()
    for hidden in ("#theme", "#filters", "#found", ".members"):
        assert not tab.locator(hidden).is_visible()


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
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:], strict=False))
    tab.goto(report.url)
    tab.reload()
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.className") == "skip"
    tab.keyboard.press("Enter")
    assert tab.evaluate("location.hash") == "#main"


TEXTS = """() => [...document.querySelectorAll("body *")].filter((one) => !one.closest("svg, script, option, noscript") && one.checkVisibility()
    && [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim())).map((one) => {
  const under = (of) => { const { backgroundColor } = getComputedStyle(of); return backgroundColor === "rgba(0, 0, 0, 0)" ? under(of.parentElement) : backgroundColor; };
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
