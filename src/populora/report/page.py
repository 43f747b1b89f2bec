"""Write the report as one HTML file that needs no network. Figures are SVG; their numbers and the explorer's sample are compressed.

The template escapes what models wrote, and the script sets it as text. The content policy names the script by its hash, so no other runs.
"""

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

import jinja2
import markupsafe

import populora
from populora.report.drawing import members_of
from populora.report.explorer import MAX_ANSWERS, sample_problems
from populora.report.figure import Figure, MissingFigure, Study
from populora.report.many_members import too_many
from populora.report.rendering import CSS_VARIABLES, svg
from populora.report.run_data import RunData
from populora.runs.highlights import highlights, lost_domains
from populora.runs.style import plural
from populora.sandbox.runner import PYTHON

SAMPLE_BUDGET = 16_000_000  # characters of model text in the explorer, over all runs
MOST_ROWS = 100_000  # of a figure's numbers; more would make a page that is slow to open


def page(study: Study, figures: Sequence[Figure | MissingFigure], live_version: str = "") -> str:
    """Return the page. ``live_version`` is its version if a server rebuilds it during training."""
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("populora.report"), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    templates.filters |= {"code": _mark_code, "svg": svg}
    script = _template_text("page.js")
    runs = [run for arm in sorted(study.arms, key=lambda arm: arm.baseline) for run in arm.runs]  # the explorer opens on the first
    samples = [sample_problems(run, SAMPLE_BUDGET // len(runs)) for run in runs]
    blobs = [(f"explorer-{index}", _compress(json.dumps(sample))) for index, sample in enumerate(samples)]
    blobs += [
        (f"csv-{figure.name}", _compress(figure.csv()))
        for figure in figures
        if isinstance(figure, Figure) and len(figure.rows) <= MOST_ROWS
    ]
    whole = [figure for figure in figures if not figure.domain]
    of_paper, beyond = ([figure for figure in whole if bool(figure.paper) == paper] for paper in (True, False))
    of_domains = [(f"The domain {domain}", [figure for figure in figures if figure.domain == domain]) for domain in study.domains]
    return templates.get_template("page.html.jinja").render(
        title=" and ".join(dict.fromkeys(arm.label for arm in study.arms)),
        lead=_lead(study, runs),
        highlights=_highlights(study),
        style=_template_text("page.css"),
        script=script,
        script_sha256=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        live_version=live_version,
        groups=[("The paper's figures", of_paper), ("Beyond the paper", beyond), *(group for group in of_domains if group[1])],
        arms=study.arms,
        colours=CSS_VARIABLES,
        most_rows=MOST_ROWS,
        members=_singly_drawn(study.main.runs[0]) if study.main else [],
        sample_size=_sample_size(samples),
        blobs=blobs,
        footer=f"Made by populora {populora.__version__} on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, from the files of the run alone.",
    )


def _lead(study: Study, runs: Sequence[RunData]) -> str:
    last = max(run.metrics.last_step for run in runs)
    domains = "" if study.domains == (PYTHON,) else f", {plural(len(study.domains), 'domain')}: {', '.join(study.domains)}"
    return f"{plural(len(runs), 'run')} in {plural(len(study.arms), 'arm')}, up to step {last}{domains}"


def _singly_drawn(run: RunData) -> list[str]:
    members = members_of(run.metrics)
    return [] if too_many(members) else members


def _highlights(study: Study) -> list[str]:
    """Return the sentences of the closing summary about the first run of the main arm, and of all runs what no domain may hide."""
    runs = [run for arm in study.arms for run in arm.runs]
    main = study.main.runs[0] if study.main else None
    sentences: list[str] = []
    for run in sorted(runs, key=lambda run: run is not main):
        log, domains = run.metric_lines, run.config.domains
        said = highlights(log, run.config.evaluation.problems_per_type, domains) if run is main else lost_domains(log, domains)
        sentences += [f"{run.name}: {sentence}" if len(runs) > 1 else sentence for sentence in said]
    return sentences


def _sample_size(samples: Sequence[dict[str, Any]]) -> str:
    parts = [
        f"{sample['run']}: {len(sample['entries']):,} of {sample['proposals']:,} proposals ({sample['valid']:,} valid), "
        f"each with up to {MAX_ANSWERS} different ones of the run's {sample['answers']:,} answers to problems of the same step"
        for sample in samples
    ]
    text = f"This page holds a sample, spread evenly over steps, teachers and types. {'; '.join(parts)}."
    return f"{text} `populora show RUN --step N --limit 0` prints everything of a step."


def _mark_code(text: str) -> markupsafe.Markup:
    """Escape a text of ours, and mark what is between backticks as code."""
    return markupsafe.Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(markupsafe.escape(text))))  # noqa: S704 escaped before


def _compress(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode("utf-8", "backslashreplace"), 6, mtime=0)).decode()


def _template_text(name: str) -> str:
    return (files("populora.report") / "templates" / name).read_text("utf-8")
