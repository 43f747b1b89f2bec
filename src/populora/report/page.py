"""The report as one HTML file: no network, opens from the disk. Figures stand in it as SVG, their numbers and the explorer's sample packed.

Whatever a model wrote is escaped by the template or set as text by the script, which the content policy names by its hash: no other runs.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.resources import files
from typing import Any

import jinja2
import markupsafe
import numpy as np

from populora.report.arms import INK, PALETTE, Arm
from populora.report.curves import MEMBER
from populora.report.explorer import ANSWERS, explored
from populora.report.figure import Absent, Figure, Study
from populora.report.rendering import svg
from populora.runs.highlights import highlights

EXPLORED = 16_000_000
"""Characters of model text in the explorer, over all runs: packed about a sixth of it."""


def page(study: Study, figures: Sequence[Figure | Absent], follows: str = "") -> str:
    """The page. ``follows``: the version of a page that a server makes anew while the run goes on."""
    templates = jinja2.Environment(loader=jinja2.PackageLoader("populora.report"), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    templates.filters["coded"] = _coded
    script = _text("page.js")
    runs = [run for arm in sorted(study.arms, key=lambda arm: arm.baseline) for run in arm.runs]  # the explorer opens on the first
    samples = [explored(run, EXPLORED // len(runs)) for run in runs]
    blobs = [(f"explorer-{index}", _packed(json.dumps(sample))) for index, sample in enumerate(samples)]
    blobs += [(f"csv-{one.name}", _packed(one.csv())) for one in figures if isinstance(one, Figure)]
    paper = [_shown(one) for one in figures if one.paper]
    beyond = [_shown(one) for one in figures if not one.paper]
    return templates.get_template("page.html.jinja").render(
        title=" and ".join(dict.fromkeys(arm.label for arm in study.arms)),
        lead=_lead(study.arms),
        highlights=_highlights(study),
        style=_text("page.css"),
        script=script,
        script_sha256=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        follows=follows,
        groups=[("The paper's figures", paper), ("Beyond the paper", beyond)],
        runs=[_run(arm, index) for arm in study.arms for index in range(len(arm.runs))],
        members=_members(study),
        sampled=_sampled(samples),
        blobs=blobs,
        missing=[f"{run}: {note}" for run, note in study.missing],  # after everything was read
        footer=f"Made by populora {version('populora')} on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, from the files of the run alone.",
    )


def _shown(one: Figure | Absent) -> dict[str, Any]:
    if isinstance(one, Absent):
        return {"name": one.name, "title": one.title, "paper": one.paper, "absent": one.reason}
    return {
        "name": one.name, "title": one.title, "paper": one.paper, "absent": "", "svg": svg(one), "definition": one.definition,
        "source": one.source, "shown": one.shown, "tables": one.tables, "rows": f"{len(one.rows):,} row{'' if len(one.rows) == 1 else 's'}",
    }  # fmt: skip


def _run(arm: Arm, index: int) -> dict[str, Any]:
    run = arm.runs[index]
    done, asked = (int(run.metrics.steps[-1]) if len(run.metrics.steps) else 0), run.settings.get("steps", "?")
    versions = run.facts.get("versions")
    colours = {INK: "ink", **{colour: f"c{number}" for number, colour in enumerate(PALETTE, start=1)}}
    return {
        "arm": arm.label, "colour": colours[arm.colour], "name": run.name, "seed": arm.seeds[index],
        "steps": f"{done}" if done == asked else f"{done} of {asked}", "base": run.setting("base.path", "?"),
        "sandbox": run.facts.get("sandbox", "?"), "version": versions.get("populora", "?") if isinstance(versions, dict) else "?",
    }  # fmt: skip


def _lead(arms: Sequence[Arm]) -> str:
    runs = [run for arm in arms for run in arm.runs]
    steps = max((int(run.metrics.steps[-1]) for run in runs if len(run.metrics.steps)), default=0)
    return f"{len(runs)} {'run' if len(runs) == 1 else 'runs'} in {len(arms)} {'arm' if len(arms) == 1 else 'arms'}, up to step {steps}"


def _highlights(study: Study) -> list[str]:
    """What happened in the first run of the main arm, in the sentences of the run's closing summary."""
    run = study.main.runs[0] if study.main else None
    if run is None:
        return []
    log = [
        {"step": step} | {name: float(values[row]) for name, values in run.metrics.columns.items() if not np.isnan(values[row])}
        for row, step in enumerate(run.metrics.steps.tolist())
    ]
    prefix = f"{run.name}: " if sum(len(arm.runs) for arm in study.arms) > 1 else ""
    return [prefix + sentence for sentence in highlights(log, run.setting("evaluation.problems_per_type", 0))]


def _members(study: Study) -> list[str]:
    run = study.main.runs[0] if study.main else None
    found = [one for one in run.metrics.under("rating/mu") if MEMBER.fullmatch(one)] if run else []
    return sorted(found, key=lambda member: (member[0] == "S", int(member[1:])))


def _sampled(samples: Sequence[dict[str, Any]]) -> str:
    parts = [
        f"{sample['run']}: {len(sample['entries']):,} of {sample['proposals']:,} proposals ({sample['valid']:,} valid), "
        f"each with up to {ANSWERS} different ones of the run's {sample['answers']:,} answers"
        for sample in samples
    ]
    last = next((sample["entries"][-1] for sample in samples if sample["entries"]), None)
    chosen = f"--step {last['step']} --teacher {last['author']}" if last else "--step N"
    return (
        f"This page holds a sample, spread evenly over steps, teachers and types. {'; '.join(parts)}. "
        f"`populora show RUN {chosen}` reads everything of a step."
    )


def _coded(text: str) -> markupsafe.Markup:
    """Our own sentences: what stands between backticks as code."""
    return markupsafe.Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(markupsafe.escape(text))))  # noqa: S704 escaped before


def _packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode("utf-8", "backslashreplace"), 6, mtime=0)).decode()


def _text(name: str) -> str:
    return (files("populora.report") / "templates" / name).read_text("utf-8")
