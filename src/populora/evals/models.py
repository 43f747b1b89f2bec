"""The models to evaluate: members of a run, adapters in PEFT folders, or a base model. Nothing is written; a run may go on meanwhile."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from populora.adapters.peft_settings import CONFIG_FILE, read_settings
from populora.core.config import EMBEDDED, BaseConfig, ClusterConfig, Config, SelfplayConfig
from populora.core.errors import AdapterError, ConfigError
from populora.core.files import read_json
from populora.engine.model.loading import base_folder
from populora.evals.eval_records import EvalModel
from populora.runs.checkpoint import saved_members
from populora.runs.directory import CONFIG, FACTS, read_config

ALL, BASE = "all", "base"
TINY_LIMITS = SelfplayConfig(max_prompt_tokens=256, max_response_tokens=224)
"""Limits of the tiny base outside a run, as in its presets."""
_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w.-]+)?")


@dataclass(frozen=True)
class EvalModels:
    """Models of one base model, and the settings to sample them with: those of their run, or the defaults for the base model."""

    config: Config
    models: tuple[EvalModel, ...]
    run: Path | None = None
    step: int | None = None
    """The step of the run's checkpoint from which its members are taken."""

    @property
    def run_id(self) -> str:
        """The hash of the settings that the run began with, wherever its folder is; empty without a run."""
        return str(read_json(self.run / FACTS)["config_sha256"]) if self.run else ""

    @property
    def base_sha256(self) -> str:
        """The fingerprint of the base model that the run was trained on, empty without a run or in another precision."""
        if self.run is None or self.config.base.dtype != read_config(self.run).base.dtype:
            return ""
        return str(read_json(self.run / FACTS).get("base_sha256", ""))


def find_models(names: Sequence[str], members: str = ALL, base: str = "", step: int | None = None) -> EvalModels:
    """Find members of a run, adapters and base models by name or path. Raises `ConfigError`, `RunDirectoryError`, `AdapterError`.

    The argument ``base`` replaces the base model that a run or an adapter names. Members are those of the run's checkpoint of ``step``, or
    of its newest.
    """
    if not names:
        raise ConfigError("nothing to evaluate: name a run, an adapter's folder, or a base")
    runs = [name for name in names if _is_run(Path(name))]
    if len(runs) > 1:
        raise ConfigError(f"expected one run, got {', '.join(runs)}: evaluate each by itself; `populora evaluate compare` takes several")
    for given, choice in ((members != ALL, f"members are '{members}'"), (step is not None, f"the step is {step}")):
        if given and not runs:
            raise ConfigError(f"{choice}, but {', '.join(map(repr, names))} is no run: leave it out, or name a run")
    groups = [_find(name, members, base, step) for name in names]
    first = min(groups, key=lambda group: (group.run is None, any(model.adapter for model in group.models)))
    for name, group in zip(names, groups, strict=True):
        if group.config.base.path != first.config.base.path:
            raise AdapterError(
                f"expected models of one base, but '{name}' has '{group.config.base.path}' instead of '{first.config.base.path}': evaluate "
                "them into different folders, or give with --base the weights that both names mean"
            )
    models = tuple(model for group in groups for model in group.models)
    if repeated := [name for name, count in Counter(model.name for model in models).items() if count > 1]:
        raise ConfigError(
            f"two of the models are called '{repeated[0]}', and so would be their files: evaluate them into different folders"
        )
    return replace(first, models=models)


def _is_run(folder: Path) -> bool:
    return (folder / FACTS).is_file() and (folder / CONFIG).is_file()


def _find(name: str, members: str, base: str, step: int | None) -> EvalModels:
    folder = Path(name)
    if _is_run(folder):
        return _find_members(folder, members, base, step)
    if (folder / CONFIG_FILE).is_file():
        return EvalModels(_default_config(base or _base_of(folder)), (EvalModel(folder.resolve().name, "adapter", folder),))
    mistyped = folder.parent != Path() and folder.parent.is_dir()  # a path, not a name on the hub
    if name in EMBEDDED or (folder / CONFIG).is_file() or (not folder.exists() and _HUB_NAME.fullmatch(name) and not mistyped):
        if base not in ("", name):
            raise ConfigError(f"'{name}' is a base itself: leave out --base '{base}', or name an adapter or a run")
        return EvalModels(_default_config(name), (EvalModel(BASE, BASE),))
    missing = f"has none of {FACTS}, {CONFIG_FILE} and {CONFIG}" if folder.is_dir() else "is no folder"
    raise ConfigError(f"'{name}': expected a run, a PEFT adapter, or a base ({', '.join(EMBEDDED)}, a folder or a hub name); it {missing}")


def _find_members(run: Path, members: str, base: str, step: int | None) -> EvalModels:
    """Find members as they are in the checkpoint, sampled in one process even if the run has several."""
    config = replace(read_config(run), cluster=ClusterConfig())
    saved = saved_members(run, step)
    models = {name: EvalModel(name, role, saved.adapters / name, saved.step) for name, role in saved.roles.items()}  # type: ignore[arg-type]
    models[BASE] = EvalModel(BASE, BASE)
    names = [name for part in members.split(",") for name in (saved.roles if part.strip() == ALL else (part.strip(),))]
    if unknown := [name for name in names if name not in models]:
        raise ConfigError(f"'{run}' has no member '{unknown[0]}': expected '{ALL}', or some of {', '.join(saved.roles)} and '{BASE}'")
    return EvalModels(
        replace(config, base=replace(config.base, path=base or config.base.path)), tuple(models[name] for name in names), run, saved.step
    )


def _base_of(adapter: Path) -> str:
    """Read the base model that an adapter's settings name. For the package's own folders that is the name of the base."""
    path = read_settings(adapter).get("base_model_name_or_path")
    if not isinstance(path, str) or not path:
        raise AdapterError(f"'{adapter / CONFIG_FILE}' names no base (base_model_name_or_path): say with --base which one it is for")
    if Path(path).is_absolute() and not Path(path).is_dir():
        name = next((name for name, folder in EMBEDDED.items() if Path(path).name == folder), "FOLDER")
        raise AdapterError(f"'{adapter / CONFIG_FILE}' names the base '{path}', which is not on this machine: give it by --base {name}")
    return next((name for name in EMBEDDED if Path(path) == base_folder(BaseConfig(path=name))), path)


def _default_config(base: str) -> Config:
    if base in EMBEDDED:
        return Config(base=BaseConfig(path=base, prompts="compact"), selfplay=TINY_LIMITS)
    return Config(base=BaseConfig(path=base, prompts="azr"))
