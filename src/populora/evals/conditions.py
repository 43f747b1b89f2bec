"""What evaluations were generated and graded with, and where they differ: what stands side by side need not be of one kind.

Other bases, limits, templates, merged adapters, weights of another type, data or graders are all possible, so a difference is a note and no
error. Values are those of ``generation.json`` and of the facts beside the verdicts. Copies of adapters, and where sources are from, are
what evaluations are meant to differ in: they are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from populora.core.config_file import flatten
from populora.core.files import read_json
from populora.evals.benchmarks import BENCHMARKS
from populora.evals.folder import read_generation
from populora.evals.results import Source, verdict_file

NOT_RECORDED = "not recorded"
_SHOWN = 80
_OF_ALL = ("base", "backend", "merged")
Settings = dict[str, dict[str, list[str]]]
"""By benchmark (empty: all of them) and setting: its values, several where sources differ."""


def conditions(folder: Path, sources: Sequence[Source], benchmarks: Iterable[str]) -> Settings:
    """Of these sources on these benchmarks. Raises `RunDirectoryError` for a file that is no JSON."""
    generation = read_generation(folder)
    found: Settings = {"": {}}
    _add(found[""], {name: generation[name] for name in _OF_ALL if name in generation})
    for name in benchmarks:
        asked = dict(generation.get("benchmarks", {}).get(name, {}))
        if "left_out" in asked:
            asked["left_out"] = f"{len(asked['left_out'])} items"
        found[name] = {}
        _add(found[name], asked)
        for source in sources:
            summary = verdict_file(folder, name, source.name).with_suffix(".json")
            if summary.is_file():
                facts = read_json(summary).get("facts", {})
                _add(found[name], {"graders'": {one: value for one, value in facts.items() if one != "benchmark"}})
    return found


def differences(named: Mapping[str, Settings]) -> list[str]:
    """A note for each setting that has more than one value among the evaluations that have the benchmark, in words."""
    grouped: dict[str, list[str]] = {}
    for benchmark in ("", *BENCHMARKS):
        having = {name: settings[benchmark] for name, settings in named.items() if settings.get(benchmark)}
        for setting in dict.fromkeys(one for settings in having.values() for one in settings):
            values = {name: tuple(settings.get(setting, [NOT_RECORDED])) for name, settings in having.items()}
            if len({value for each in values.values() for value in each}) > 1:
                grouped.setdefault(f"{setting} is {_told(values)}", []).append(benchmark)
    return [f"Not made alike: {what}{_where(benchmarks)}." for what, benchmarks in grouped.items()]


def _add(known: dict[str, list[str]], values: Mapping[str, Any]) -> None:
    for setting, value in flatten(values, " ").items():
        if str(value) not in known.setdefault(setting, []):
            known[setting].append(str(value))


def _told(values: Mapping[str, Sequence[str]]) -> str:
    """``A: 16000; B: 512``, or the values alone where there is one evaluation."""
    each = {name: " and ".join(_shown(value) for value in own) for name, own in values.items()}
    return "; ".join(f"{value} ({name})" if name else value for name, value in each.items())


def _shown(value: str) -> str:
    return value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"


def _where(benchmarks: Sequence[str]) -> str:
    titles = [BENCHMARKS[one].title for one in benchmarks if one]
    return f", on {', '.join(titles)}" if titles else ""
