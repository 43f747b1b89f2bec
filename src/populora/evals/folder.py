"""An evaluation's folder: ``evaluation.json`` says who is evaluated on what; completions, verdicts and tables stand beside it.

evaluation.json            sources with their roles, benchmarks with their data, what was left out and why, versions and machine
generation.json            what completions depend on (`populora.evals.generation_file`)
refused.json               items that an endpoint refused (`populora.evals.remarks`)
generations/BENCHMARK/SOURCE.jsonl   verdicts/BENCHMARK/SOURCE.jsonl, .json   downstream.md, .tex, .csv
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from populora.core.errors import ConfigError
from populora.core.files import json_bytes, read_json, write_file
from populora.evals.benchmarks import BENCHMARKS, benchmark
from populora.evals.results import Evaluation, Source, read_evaluation

DESCRIPTION, GENERATION = "evaluation.json", "generation.json"


@dataclass(frozen=True)
class Data:
    """Where a benchmark's items are, and how many there are."""

    path: str
    sha256: str
    items: int


@dataclass(frozen=True)
class Description:
    """What an evaluation is of."""

    name: str
    sources: tuple[Source, ...]
    benchmarks: Mapping[str, Data]
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Benchmarks and sources that could not be evaluated, with the reason."""
    facts: Sequence[Mapping[str, Any]] = ()
    """Versions and machine that completions were made with: each set of them that one of the calls had."""


def write_description(folder: Path, new: Description) -> Description:
    """Write what an evaluation is of, beside what the folder was an evaluation of before; returns both. Raises `RunDirectoryError`."""
    whole = new
    if (folder / DESCRIPTION).exists():
        old = read_description(folder)
        sources = {source.name: source for source in (*old.sources, *new.sources)}
        both = {**old.benchmarks, **new.benchmarks}
        benchmarks = {name: both[name] for name in BENCHMARKS if name in both}
        now = {*new.benchmarks, *(source.name for source in new.sources)}
        skipped = {name: reason for name, reason in old.skipped.items() if name not in now}
        facts = [*old.facts, *(one for one in new.facts if one not in old.facts)]
        whole = Description(new.name, tuple(sources.values()), benchmarks, {**skipped, **new.skipped}, facts)
    write_file(folder / DESCRIPTION, json_bytes(asdict(whole)))
    return whole


def read_description(folder: Path) -> Description:
    """What the evaluation in ``folder`` is of. Raises `ConfigError` where there is none."""
    if not (folder / DESCRIPTION).is_file():
        raise ConfigError(f"'{folder}' is no evaluation: expected '{DESCRIPTION}' in it, which `populora evaluate` writes")
    values = read_json(folder / DESCRIPTION)
    try:
        sources = tuple(Source(**one) for one in values["sources"])
        benchmarks = {benchmark(name).name: Data(**one) for name, one in values["benchmarks"].items()}
        facts = [dict(one) for one in values.get("facts", ())]
        return Description(**{**values, "sources": sources, "benchmarks": benchmarks, "facts": facts})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"'{folder / DESCRIPTION}' does not describe an evaluation ({type(error).__name__}: {error}): remove it, and give the command "
            "that began the evaluation again"
        ) from error


def evaluation_of(folder: Path, name: str = "") -> Evaluation:
    """The scores in a folder, what was skipped, and the steps of members. Raises `ConfigError` and `RunDirectoryError`."""
    found = read_description(folder)
    scores = read_evaluation(folder, name or found.name, found.sources, {one: data.items for one, data in found.benchmarks.items()})
    steps = {one: known["step"] for one, known in read_generation(folder).get("sources", {}).items() if "step" in known}
    return replace(scores, skipped=found.skipped, steps=steps)


def read_generation(folder: Path) -> dict[str, Any]:
    """What the completions in ``folder`` depend on (`populora.evals.generation_file` writes it); nothing where none were generated here."""
    return read_json(folder / GENERATION) if (folder / GENERATION).is_file() else {}
