"""The folder of an evaluation.

evaluation.json                  settings, models with the SHA-256 of their adapters, benchmarks with their data, skipped, environments
adapters/MODEL/                  copies of the adapters, so that their run may train on
generations/BENCHMARK/MODEL.jsonl
verdicts/BENCHMARK/MODEL.jsonl, .json
downstream.md, .tex, .csv

``settings`` is everything that completions depend on. More models and benchmarks may be added to a folder later; a setting that differs
is refused, since one table would mix two kinds of completions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from populora.core.errors import ConfigError
from populora.core.files import PART, disk_errors, json_bytes, read_json, remove_folder, write_file, write_folder
from populora.evals.benchmarks import benchmark
from populora.evals.records import EvalModel, read_grades
from populora.evals.scores import Evaluation, score_grades
from populora.runs.directory import LOCK

EVALUATION, ADAPTERS = "evaluation.json", "adapters"
PEFT_FILES = ("adapter_config.json", "adapter_model.safetensors")


def check_folder(out: Path) -> None:
    """Raise `ConfigError` unless ``out`` is new, empty, or an evaluation."""
    with disk_errors(out, "read"):
        names = sorted(path.name for path in out.iterdir()) if out.is_dir() else []
    foreign = [name for name in names if name != LOCK and not name.endswith(PART)]
    if foreign and EVALUATION not in names:
        raise ConfigError(f"'{out}' is not empty (it has '{foreign[0]}') and is not an evaluation: choose an empty folder with --out")


def update_evaluation(out: Path, settings: Mapping[str, Any], **facts: Any) -> None:
    """Add settings to the evaluation in ``out`` and replace its other ``facts``.

    Raises `ConfigError` for a setting that differs from the recorded one; nothing is written then.
    """
    values = read_json(out / EVALUATION) if (out / EVALUATION).exists() else {}
    known = values.get("settings", {"models": {}, "benchmarks": {}})
    merged = {**values, "settings": _merge(out, known, settings), **facts}
    if merged != values:
        write_file(out / EVALUATION, json_bytes(merged))


def _merge(out: Path, known: Mapping[str, Any], values: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    merged = dict(known)
    for name, value in values.items():
        if isinstance(value, dict) and isinstance(known.get(name), dict):
            merged[name] = _merge(out, known[name], value, f"{path}{name}.")
        elif name in known and known[name] != value:
            raise ConfigError(
                f"'{out}' has an evaluation with {path}{name} {known[name]!r}, and this one has {value!r}: use the same settings, or "
                "choose another folder with --out"
            )
        else:
            merged[name] = value
    return merged


def snapshot_adapters(models: Sequence[EvalModel], out: Path, run_id: str = "") -> tuple[EvalModel, ...]:
    """Copy the adapters into ``out``, unless they are there, and return the models with the copies.

    A member of the run ``run_id`` that was copied before is used as it is, since the run may have trained on. Raises `ConfigError` for
    another adapter or run under a known name, and for members of different steps.
    """
    known: dict[str, Any] = read_settings(out)["models"]
    steps = {model.step if model.name not in known else known[model.name].get("step") for model in models if model.step is not None}
    if len(steps) > 1:
        raise ConfigError(
            f"'{out}' has members at step {min(steps)} of the run, which is at step {max(steps)} now: evaluate the members that it has, "
            "or all of them into a new folder (--out)"
        )
    return tuple(_snapshot(model, out, run_id, known.get(model.name)) for model in models)


def _snapshot(model: EvalModel, out: Path, run_id: str, known: Mapping[str, Any] | None) -> EvalModel:
    copy = out / ADAPTERS / model.name
    settings: dict[str, Any] = {"role": model.role}
    if model.adapter is None:
        update_evaluation(out, {"models": {model.name: settings}})
        return model
    settings |= {} if model.step is None else {"run": run_id}
    if model.step is None or known is None:
        with disk_errors(model.adapter, "read"):
            files = {name: (model.adapter / name).read_bytes() for name in PEFT_FILES}
        settings |= {"sha256": hashlib.sha256(b"".join(files.values())).hexdigest()}
        settings |= {} if model.step is None else {"step": model.step}
        if known is None:
            if copy.exists():  # left by a kill before the settings were recorded
                remove_folder(copy)
            write_folder(copy, files)
    update_evaluation(out, {"models": {model.name: settings}})
    return replace(model, adapter=copy, step=known["step"] if known and "step" in known else model.step)


def read_settings(folder: Path) -> dict[str, Any]:
    """The settings of the evaluation in ``folder``. Raises `ConfigError` where there is none."""
    return read_description(folder)["settings"]


def read_description(folder: Path) -> dict[str, Any]:
    """The content of ``evaluation.json``. Raises `ConfigError` where there is none, or it does not describe an evaluation."""
    if not (folder / EVALUATION).is_file():
        raise ConfigError(f"'{folder}' is not an evaluation: expected '{EVALUATION}' in it, which `populora evaluate` writes")
    values = read_json(folder / EVALUATION)
    try:
        models, benchmarks = values["settings"]["models"], values["settings"]["benchmarks"]
        valid = all("role" in one for one in models.values()) and all("items" in one for one in benchmarks.values())
    except (KeyError, TypeError, AttributeError):
        valid = False
    if not valid:
        raise ConfigError(f"'{folder / EVALUATION}' does not describe an evaluation: remove it, and evaluate again")
    return values


def read_models(folder: Path) -> list[EvalModel]:
    """The models of the evaluation in ``folder``. Raises as `read_description`."""
    return [EvalModel(name, one["role"], None, one.get("step")) for name, one in read_settings(folder)["models"].items()]


def read_evaluation(folder: Path, name: str = "") -> Evaluation:
    """The scores of the evaluation in ``folder``; ungraded benchmarks have scores of 0 graded items.

    Raises `ConfigError` as `read_description`, and `RunDirectoryError` for verdicts that cannot be read.
    """
    description, models = read_description(folder), read_models(folder)
    sizes = {benchmark(one).name: facts["items"] for one, facts in description["settings"]["benchmarks"].items()}
    scores = [
        score_grades(model.name, one, read_grades(verdict_file(folder, one, model.name)).values(), items)
        for model in models
        for one, items in sizes.items()
    ]
    return Evaluation(name or folder.resolve().name, tuple(models), tuple(scores), description.get("skipped", {}))


def completions_file(folder: Path, benchmark: str, model: str) -> Path:
    """The path of a model's completions on a benchmark."""
    return folder / "generations" / benchmark / f"{model}.jsonl"


def verdict_file(folder: Path, benchmark: str, model: str) -> Path:
    """The path of a model's verdicts on a benchmark."""
    return folder / "verdicts" / benchmark / f"{model}.jsonl"
