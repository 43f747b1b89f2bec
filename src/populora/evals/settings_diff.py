"""Report the settings in which compared evaluations differ: base, limits, templates, data, graders. Differences are notes, not errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from populora.core.config_file import flatten
from populora.core.files import read_json
from populora.evals.benchmarks import BENCHMARKS
from populora.evals.folder import read_settings, verdict_file
from populora.evals.records import EvalModel

_LONGEST = 80
"""Characters of a value that are shown."""
Settings = dict[str, dict[str, list[str]]]
"""Values of each setting by benchmark (empty: of all); several where the models of one evaluation differ."""


def settings_of(folder: Path, models: Sequence[EvalModel], benchmarks: Iterable[str]) -> Settings:
    """Read the settings of these models on these benchmarks. Raises `RunDirectoryError` for a file that is not JSON."""
    generation = read_settings(folder)
    common = {name: value for name, value in generation.items() if name not in ("models", "benchmarks")}
    settings: Settings = {"": {name: [str(value)] for name, value in flatten(common, " ").items()}}
    for name in benchmarks:
        own = dict(generation["benchmarks"].get(name, {}))
        if "left_out" in own:
            own["left_out"] = f"{len(own['left_out'])} items"
        settings[name] = {setting: [str(value)] for setting, value in flatten(own, " ").items()}
        for model in models:
            summary = verdict_file(folder, name, model.name).with_suffix(".json")
            for setting, value in flatten({"graders'": read_json(summary).get("facts", {})}, " ").items() if summary.is_file() else ():
                values = settings[name].setdefault(setting, [])
                values += [str(value)] if str(value) not in values else []
    return settings


def settings_diff(evaluations: Mapping[str, Settings]) -> list[str]:
    """A note for each setting that has more than one value among the evaluations that have the benchmark."""
    notes: dict[str, list[str]] = {}
    for benchmark in ("", *BENCHMARKS):
        having = {name: settings[benchmark] for name, settings in evaluations.items() if settings.get(benchmark)}
        for setting in dict.fromkeys(one for settings in having.values() for one in settings):
            values = {name: settings.get(setting, ["not recorded"]) for name, settings in having.items()}
            if len({value for own in values.values() for value in own}) > 1:
                texts = {
                    name: " and ".join(value[:_LONGEST] + "…" * (len(value) > _LONGEST) for value in own) for name, own in values.items()
                }
                described = "; ".join(f"{text} ({name})" if name else text for name, text in texts.items())
                notes.setdefault(f"Different settings: {setting} is {described}", []).append(benchmark)
    titles = {note: ", ".join(BENCHMARKS[one].title for one in benchmarks if one) for note, benchmarks in notes.items()}
    return [f"{note}, on {where}." if where else f"{note}." for note, where in titles.items()]
