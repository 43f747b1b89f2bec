"""The folder of an evaluation.

evaluation.json                  settings, models with the SHA-256 of their adapters, benchmarks with their data, skipped, environments
adapters/MODEL/                  copies of the adapters, so that their run may train on
generations/BENCHMARK/MODEL.jsonl
verdicts/BENCHMARK/MODEL.jsonl, .json
downstream.md, .tex, .csv

``settings`` is everything that completions depend on. More models and benchmarks may be added to a folder later. A setting that differs
is refused, since one table would mix two kinds of completions; between the folders of one table it is a note.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from populora.core.config_file import flatten
from populora.core.errors import ConfigError, RunDirectoryError
from populora.core.files import PART, digest, disk_errors, json_bytes, read_json, remove_folder, write_file, write_folder
from populora.evals.benchmarks import BENCHMARKS
from populora.evals.eval_records import EvalModel, Evaluation, Grade, read_records, score_grades
from populora.runs.directory import LOCK

EVALUATION, ADAPTERS = "evaluation.json", "adapters"
PEFT_FILES = ("adapter_config.json", "adapter_model.safetensors")


def check_folder(out: Path, step: int | None = None) -> None:
    """Raise `ConfigError` unless ``out`` is new, empty, or an evaluation, of a run's members at ``step`` if there is one."""
    with disk_errors(out, "read"):
        names = sorted(path.name for path in out.iterdir()) if out.is_dir() else []
    foreign = [name for name in names if name != LOCK and not name.endswith(PART)]
    if foreign and EVALUATION not in names:
        raise ConfigError(f"'{out}' is not empty (it has '{foreign[0]}') and is not an evaluation: choose an empty folder with --out")
    if step is not None and EVALUATION in names:
        for model in read_models(out):
            if model.step not in (None, step):
                raise ConfigError(f"'{out}' has {model.name} at step {model.step}, and --step is {step}: choose another folder with --out")


def update_evaluation(out: Path, settings: Mapping[str, Any], **facts: Any) -> None:
    """Add settings to the evaluation in ``out`` and replace its other ``facts``. Raises `ConfigError` for a setting that differs."""
    empty = {"settings": {"models": {}, "benchmarks": {}}}
    recorded = read_description(out) if (out / EVALUATION).exists() else empty
    merged = _merge(out, recorded["settings"], settings)
    write_file(out / EVALUATION, json_bytes({**recorded, "settings": merged, **facts}))


def _merge(out: Path, recorded: Mapping[str, Any], values: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    merged = dict(recorded)
    for name, value in values.items():
        if isinstance(value, dict) and isinstance(recorded.get(name), dict):
            merged[name] = _merge(out, recorded[name], value, f"{path}{name}.")
        elif merged.setdefault(name, value) != value:
            raise ConfigError(
                f"'{out}' has an evaluation with {path}{name} {recorded[name]!r}, and this one has {value!r}: use the same settings, or "
                "choose another folder with --out"
            )
    return merged


def snapshot_adapters(models: Sequence[EvalModel], out: Path, run_id: str = "") -> tuple[EvalModel, ...]:
    """Copy the adapters into ``out``, but for members that it has, whose run may have trained on. Raises `ConfigError` for others."""
    recorded = read_description(out)["settings"]["models"]
    steps = {recorded[model.name].get("step") if model.name in recorded else model.step for model in models if model.step is not None}
    steps.discard(None)  # of an adapter of that name, which is no member: it is refused below
    if len(steps) > 1:
        fault = f"'{out}' has members at step {min(steps)} of the run, which is at step {max(steps)} now"
        raise ConfigError(f"{fault}: evaluate the members that it has, or all of them into a new folder (--out)")
    return tuple(_snapshot(model, out, run_id, recorded.get(model.name)) for model in models)


def _snapshot(model: EvalModel, out: Path, run_id: str, recorded: Mapping[str, Any] | None) -> EvalModel:
    settings: dict[str, Any] = {"role": model.role}
    copy = out / ADAPTERS / model.name if model.adapter else None
    if model.step is not None:
        settings |= {"run": run_id, "step": recorded.get("step") if recorded else model.step}
    if model.adapter and copy and not (recorded and model.step is not None):
        with disk_errors(model.adapter, "read"):
            files = {name: (model.adapter / name).read_bytes() for name in PEFT_FILES}
        settings["sha256"] = digest(b"".join(files.values()))
        if recorded is None:
            if copy.exists():  # left by a kill before the settings were recorded
                remove_folder(copy)
            write_folder(copy, files)
    update_evaluation(out, {"models": {model.name: settings}})
    return replace(model, adapter=copy, step=settings.get("step"))


def read_description(folder: Path) -> dict[str, Any]:
    """Read ``evaluation.json``. Raises `ConfigError` where there is none, and `RunDirectoryError` for an incomplete one."""
    file = folder / EVALUATION
    if not file.is_file():
        raise ConfigError(f"'{folder}' is not an evaluation: expected '{EVALUATION}' in it, which `populora evaluate` writes")
    description = read_json(file)
    match description:
        case {"settings": {"models": dict(models), "benchmarks": dict(benchmarks)}} if all(
            isinstance(model, dict) and "role" in model for model in models.values()
        ) and all(name in BENCHMARKS and isinstance(facts, dict) and "items" in facts for name, facts in benchmarks.items()):
            return description
    raise RunDirectoryError(
        f"'{file}' is incomplete: expected settings with the role of each model and the number of items of each benchmark. Restore it "
        "from a backup, or repeat its `populora evaluate` command with another --out."
    )


def read_models(folder: Path) -> list[EvalModel]:
    """Read the models of the evaluation in ``folder``. Raises as `read_description`."""
    models = read_description(folder)["settings"]["models"]
    return [EvalModel(name, model["role"], None, model.get("step")) for name, model in models.items()]


def read_evaluation(folder: Path, name: str = "") -> Evaluation:
    """Read the scores of the evaluation in ``folder``; ungraded benchmarks have 0 graded items. Raises as `read_description`."""
    description, models = read_description(folder), read_models(folder)
    scores = [
        score_grades(model.name, benchmark, read_records(verdict_file(folder, benchmark, model.name), Grade).values(), facts["items"])
        for model in models
        for benchmark, facts in description["settings"]["benchmarks"].items()
    ]
    return Evaluation(name or folder.resolve().name, tuple(models), tuple(scores), description.get("skipped", {}))


Settings = dict[tuple[str, str], list[str]]
"""The values of each setting by benchmark (empty: of all) and name; several where the models of one evaluation differ."""


def settings_of(folder: Path, models: Sequence[EvalModel], benchmarks: Iterable[str]) -> Settings:
    """Read the settings of these models on these benchmarks, the graders' included. Raises `RunDirectoryError` for a damaged file."""
    recorded = read_description(folder)["settings"]
    parts = [("", {name: value for name, value in recorded.items() if name not in ("models", "benchmarks")})]
    for benchmark in (name for name in benchmarks if name in recorded["benchmarks"]):
        facts = recorded["benchmarks"][benchmark]
        parts.append((benchmark, {**facts, "left_out": f"{len(facts.get('left_out', ()))} items"}))
        files = [verdict_file(folder, benchmark, model.name).with_suffix(".json") for model in models]
        parts += [(benchmark, {"graders'": read_json(file).get("facts", {})}) for file in files if file.is_file()]
    settings: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for benchmark, facts in parts:
        for name, value in flatten(facts, " ").items():
            settings[benchmark, name] += [str(value)] if str(value) not in settings[benchmark, name] else []
    return settings


def settings_diff(evaluations: Mapping[str, Settings]) -> list[str]:
    """Write a note for each setting that has more than one value among the evaluations that have the benchmark."""
    notes: defaultdict[str, list[str]] = defaultdict(list)
    for benchmark, setting in dict.fromkeys(key for settings in evaluations.values() for key in settings):
        having = {name: settings for name, settings in evaluations.items() if any(recorded == benchmark for recorded, _ in settings)}
        values = {name: settings.get((benchmark, setting), ["not recorded"]) for name, settings in having.items()}
        if len(set(chain(*values.values()))) > 1:
            texts = [" and ".join(map(_cut, recorded)) + (f" ({name})" if name else "") for name, recorded in values.items()]
            notes[f"Different settings: {setting} is {'; '.join(texts)}"] += [BENCHMARKS[benchmark].title] if benchmark else []
    return [f"{note}, on {', '.join(titles)}." if titles else f"{note}." for note, titles in notes.items()]


def _cut(value: str) -> str:
    return value if len(value) <= 80 else f"{value[:80]}…"


def completions_file(folder: Path, benchmark: str, model: str) -> Path:
    """Return the path of a model's completions on a benchmark."""
    return folder / "generations" / benchmark / f"{model}.jsonl"


def verdict_file(folder: Path, benchmark: str, model: str) -> Path:
    """Return the path of a model's verdicts on a benchmark."""
    return folder / "verdicts" / benchmark / f"{model}.jsonl"
