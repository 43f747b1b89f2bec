"""A small report, made without training, in a headless Chromium. What a page writes to the console or asks of others fails its test."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from browsed_steps import as_agent, hostile

from populora.core.config import Config, PopulationConfig
from populora.report.arms import arms_of
from populora.report.explorer import sample_problems
from populora.report.figure import Figure, MissingFigure, Study
from populora.report.figures import make_figures
from populora.report.page import page
from populora.report.run_data import RunData
from populora.runs.directory import new_run
from populora.runs.metrics_log import write_step

NAMES = ("chromium", "chromium-browser", "google-chrome")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run", "--disable-component-update"]
STEPS = 12


@dataclass
class Report:
    """The page of a population beside its baseline, and what it was made of."""

    path: Path
    url: str
    figures: list[Figure | MissingFigure]
    samples: dict[str, list[dict[str, Any]]]
    """The explorer's entries by the name of the run."""


@dataclass
class Visits:
    """Opens pages. ``noise`` is what they write to the console, and their requests to others."""

    browser: Any
    noise: list[str] = field(default_factory=list)

    def open(self, url: str, ready: bool = True, **options: Any) -> Any:
        return self.beside(self.browser.new_context(reduced_motion="reduce", **options), url, ready)

    def beside(self, context: Any, url: str, ready: bool = True) -> Any:
        tab, page_url = context.new_page(), url.partition("#")[0]
        tab.set_default_timeout(10_000)
        tab.on("console", lambda message: self.noise.append(f"{message.type}: {message.text}"))
        tab.on("pageerror", lambda error: self.noise.append(f"error: {error}"))
        tab.on("request", lambda request: self._asked(request.url, page_url))
        tab.goto(url)
        if ready:
            tab.wait_for_selector("html[data-ready]")
        return tab

    def _asked(self, url: str, page_url: str) -> None:
        of_the_page = url.partition("#")[0] == page_url or url.startswith(("data:", "blob:"))
        if not of_the_page and not (page_url.startswith("http://127.0.0.1") and url.startswith(page_url)):
            self.noise.append(f"request: {url}")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright: make test-browser")
    executable = os.environ.get("POPULORA_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if not executable:
        pytest.skip(f"needs a Chromium: one of {', '.join(NAMES)} on the path, or POPULORA_CHROMIUM=FILE")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture
def visits(chromium: Any) -> Iterator[Visits]:
    yield (visits := Visits(chromium))
    for context in chromium.contexts:
        context.close()
    assert visits.noise == []


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory, make_record: Callable[..., Any]) -> Report:
    """A report of 2T+2S and the single agent, with hostile text in programs, messages, proposals and answers."""
    folder = tmp_path_factory.mktemp("report")
    sizes = {"population": PopulationConfig(2, 2), "agent": PopulationConfig(single_agent=True)}
    for name, population in sizes.items():
        with new_run(folder / name, replace(Config(), steps=STEPS, population=population), {"sandbox": "full"}):
            for step in range(1, STEPS + 1):
                record = hostile(make_record(step))
                write_step(folder / name, as_agent(record) if population.single_agent else record)
    study = Study(arms_of([folder / "population"], [folder / "agent"]))
    figures = make_figures(study)
    path = folder / "report.html"
    path.write_text(page(study, figures), encoding="utf-8")
    return Report(path, path.as_uri(), figures, {name: sample_problems(RunData(folder / name, name), 10**6)["entries"] for name in sizes})


@pytest.fixture
def tab(visits: Visits, report: Report) -> Any:
    """The page with the population in its explorer."""
    page = visits.open(report.url)
    page.select_option("[name=run]", label="population")
    return page
