"""The page in a browser: figures or why there are none, members, numbers."""

from pathlib import Path

import pytest

from populora.report.figure import Figure, MissingFigure

pytestmark = pytest.mark.browser


def test_every_figure_stands_in_the_page_or_says_why_not(visits, report):
    tab = visits.open(report.url)
    names = [figure.name for figure in report.figures]
    assert tab.eval_on_selector_all("figure", "all => all.map(one => one.id)") == sorted(
        names, key=lambda name: not next(figure for figure in report.figures if figure.name == name).paper
    )
    for figure in report.figures:
        assert tab.locator(f"#{figure.name} svg").count() == isinstance(figure, Figure)
        assert ("Not here" in tab.inner_text(f"#{figure.name}")) == isinstance(figure, MissingFigure)
        assert tab.locator(f'nav a[href="#{figure.name}"]').inner_text() == figure.title
    assert sum(isinstance(figure, Figure) for figure in report.figures) > 12


def test_a_member_is_picked_out_in_the_figures_that_have_it_and_let_go(visits, report):
    tab = visits.open(report.url)
    before = tab.inner_html("main")
    button = tab.get_by_role("button", name="S0", exact=True)
    script = "all => all.map(one => [one.dataset.mark, one.closest('figure').id, Number(getComputedStyle(one).opacity)])"
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    marks = tab.eval_on_selector_all("[data-mark]", script)
    having = {figure for name, figure, _ in marks if name == "S0"}
    assert {"trueskill", "lineage", "cross_evaluation"} <= having
    assert all((opacity == 1) == (name == "S0" or figure not in having) for name, figure, opacity in marks)
    widths = "all => all.map(one => [Boolean(one.closest('.chosen')), parseFloat(getComputedStyle(one).strokeWidth)])"
    lines = tab.eval_on_selector_all("#trueskill path[style*='stroke']", widths)
    assert min(width for chosen, width in lines if chosen) >= 1.5 * max(width for chosen, width in lines if not chosen)
    raised = "all => all.every(one => !one.nextElementSibling || one.nextElementSibling.matches('.chosen'))"
    assert tab.eval_on_selector_all("#trueskill .chosen", raised), "no other line lies over it"
    assert tab.locator("#lineage g:has(> .chosen):not(:has(> .chosen ~ g))").count() == 0, "births stand on their lines"
    tab.get_by_role("button", name="T1", exact=True).click()
    assert button.get_attribute("aria-pressed") == "false"
    marks = tab.eval_on_selector_all("[data-mark]", script)
    assert {opacity for _, figure, opacity in marks if figure == "cross_evaluation"} == {1}, "it shows students alone"
    assert {opacity for name, figure, opacity in marks if figure == "trueskill" and name != "T1"} == {0.12}
    tab.get_by_role("button", name="T1", exact=True).click()
    assert {opacity for *_, opacity in tab.eval_on_selector_all("[data-mark]", script)} == {1}
    assert tab.inner_html("main").replace(' class=""', "") == before, "everything is back at its place"


def test_numbers_are_downloaded_as_they_are(visits, report):
    figures = [figure for figure in report.figures if isinstance(figure, Figure)]
    for start in range(0, len(figures), 8):  # of one tab Chromium takes ten, then it asks its user
        tab = visits.open(report.url)
        for figure in figures[start : start + 8]:
            with tab.expect_download() as download:
                tab.click(f'[data-csv="{figure.name}"]')
            assert download.value.suggested_filename == f"{figure.name}.csv"
            assert Path(download.value.path()).read_bytes().decode() == figure.csv()
