"""The page in a browser: figures or why there are none, members, numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from populora.report.figure import Absent, Figure

pytestmark = pytest.mark.browser


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
    shown = [one for one in report.figures if isinstance(one, Figure)]
    for start in range(0, len(shown), 8):  # of one tab Chromium takes ten, then it asks its user
        tab = visits.open(report.url)
        for one in shown[start : start + 8]:
            with tab.expect_download() as download:
                tab.click(f'[data-csv="{one.name}"]')
            assert download.value.suggested_filename == f"{one.name}.csv"
            assert Path(download.value.path()).read_bytes().decode() == one.csv()
