"""What is evaluated: the members of a run, adapters in PEFT folders, or a base alone. Nothing is written and no lock is taken, so a run
may go on meanwhile; `populora.evals.pinning` keeps what its members were.

A name with one slash is that of a base on the hub, unless the folder before the slash exists here: then it is a path with a mistake.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from populora.adapters.peft_settings import CONFIG_FILE, read_settings
from populora.core.config import BaseConfig, ClusterConfig, Config, SelfplayConfig
from populora.core.errors import AdapterError, ConfigError, RunDirectoryError, did_you_mean
from populora.core.files import disk_errors
from populora.engine.model.loading import TINY, base_folder
from populora.runs.checkpoint import checkpoint_steps
from populora.runs.directory import CONFIG, FACTS, read_config
from populora.training.population import initial_population

ADAPTERS = "adapters"
ALL, BASE = "all", "base"
TINY_LIMITS = SelfplayConfig(max_prompt_tokens=256, max_response_tokens=224)
"""Of the tiny base outside a run, as in the settings that ship for it."""
_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w.-]+)?")


@dataclass(frozen=True)
class Source:
    """One column of an evaluation. ``name`` is that of its files."""

    name: str
    role: str
    """`populora.core.types.Role` of a member, else ``adapter``, ``base`` or ``endpoint``."""
    adapter: Path | None = None
    """Its PEFT folder; none for a bare base. A member of a run is taken out of a checkpoint instead (`populora.evals.members`)."""
    run: Path | None = None
    """The run that it is a member of."""


@dataclass(frozen=True)
class Sources:
    """Sources of one base, and the settings that they are sampled with: those of their run, or the defaults for the base."""

    config: Config
    each: tuple[Source, ...]
    runs: tuple[Path, ...] = ()
    """Those that are named, whose base this must be."""
    unfit: Mapping[str, str] = field(default_factory=dict)
    """Adapters that cannot be evaluated beside these, by name, with the reason: the others are evaluated all the same."""


def find_sources(whats: Sequence[str], members: str = ALL, base: str = "") -> Sources:
    """Runs, adapter folders and bases (``tiny``, a folder, a hub name) by name or path. ``members`` are those of a run: ``all``, or names
    such as ``T0,S1``; ``base`` is its bare base. ``base`` is what to take instead of the base that a run or an adapter names.

    All are of the base of the run, else of the base that is named itself, else of the first adapter. Raises `ConfigError`,
    `RunDirectoryError` or `AdapterError` for what is none of these, for unknown members, for different bases, and where none is fit.
    """
    if not whats:
        raise ConfigError("nothing to evaluate: name a run, an adapter's folder, or a base")
    runs = [what for what in whats if _is_run(Path(what))]
    if members != ALL and not runs:
        raise ConfigError(f"members are '{members}', but {', '.join(map(repr, whats))} is no run: leave them out, or name a run")
    found, unfit = _all_found(whats, members, base)
    leader, leading = min(found, key=lambda pair: (pair[0] not in runs, _is_adapter(pair[0])))
    each: list[Source] = []
    for what, one in found:
        if one.config.base.path == leading.config.base.path:
            each += one.each
            continue
        reason = (
            f"'{what}' is of '{one.config.base.path}' and '{leader}' of '{leading.config.base.path}': evaluate them apart, or say with "
            "--base which weights these names both mean"
        )
        if not _is_adapter(what):
            raise AdapterError(f"expected sources of one base, but {reason}")
        unfit[one.each[0].name] = reason
    if twice := [name for name, count in Counter(source.name for source in each).items() if count > 1]:
        raise ConfigError(f"two of the sources are called '{twice[0]}', and so would be their files: evaluate them into different folders")
    return Sources(leading.config, tuple(each), tuple(Path(run) for run in runs), unfit)


def _all_found(whats: Sequence[str], members: str, base: str) -> tuple[list[tuple[str, Sources]], dict[str, str]]:
    """What is named, and why adapters are not fit. Raises `AdapterError` where that is all."""
    found, unfit = [], {}
    for what in whats:
        try:
            found.append((what, _found(what, members, base)))
        except AdapterError as error:
            unfit[Path(what).resolve().name] = str(error)
    if not found:
        raise AdapterError("; ".join(unfit.values()))
    return found, unfit


def _is_run(folder: Path) -> bool:
    return (folder / FACTS).is_file() and (folder / CONFIG).is_file()


def _is_adapter(what: str) -> bool:
    return (Path(what) / CONFIG_FILE).is_file()


def _found(what: str, members: str, base: str) -> Sources:
    folder = Path(what)
    if _is_run(folder):
        return _of_run(folder, members, base)
    if _is_adapter(what):
        return Sources(_settings(base or _base_of(folder)), (Source(folder.resolve().name, "adapter", folder),))
    if what == TINY or (folder / CONFIG).is_file() or (not folder.exists() and _HUB_NAME.fullmatch(what) and not _below_a_folder(folder)):
        if base and not _same_base(what, base):
            raise ConfigError(f"'{what}' is a base itself: leave out --base '{base}', or name an adapter or a run")
        return Sources(_settings(base or what), (Source(BASE, BASE),))
    missing = f"has none of {FACTS}, {CONFIG_FILE} and {CONFIG}" if folder.is_dir() else f"is no folder{_beside(folder)}"
    raise ConfigError(f"'{what}': expected a run, a PEFT adapter, or a base ('{TINY}', a folder or a hub name); it {missing}")


def _below_a_folder(path: Path) -> bool:
    """Whether it is a path and no name on the hub: what comes before its last part is a folder here."""
    return path.parent != Path() and path.parent.is_dir()


def _beside(missing: Path) -> str:
    """What the folder where it should be has of a similar name."""
    above = missing.parent
    with disk_errors(above, "read"):
        names = [path.name for path in above.iterdir()] if above.is_dir() else []
    hint = did_you_mean(str(missing), [str(above / name) for name in names], n=2)
    return f".{hint}" if hint else ""


def _same_base(what: str, base: str) -> bool:
    return what == base or (TINY not in (what, base) and Path(what).exists() and Path(what).resolve() == Path(base).resolve())


def _of_run(folder: Path, members: str, base: str) -> Sources:
    """In one process, however many the run has."""
    config = replace(read_config(folder), cluster=ClusterConfig())
    roles = {member.id: member.role.value for member in initial_population(config).members}
    asked = [name.strip() for name in members.split(",")]
    names = [name for one in asked for name in (roles if one == ALL else (one,))]
    for name in names:
        if name not in roles and name != BASE:
            raise ConfigError(f"'{folder}' has no member '{name}': expected '{ALL}', or some of {', '.join(roles)} and '{BASE}'")
    if not checkpoint_steps(folder):
        raise RunDirectoryError(
            f"'{folder}' has no checkpoint, and members of a run are evaluated as they are in one: wait until it has begun its first "
            f"step, or name the folders of its adapters ('{folder / ADAPTERS / names[0]}')"
        )
    each = [Source(name, roles[name], folder / ADAPTERS / name, folder) if name != BASE else Source(BASE, BASE) for name in names]
    return Sources(replace(config, base=replace(config.base, path=base)) if base else config, tuple(each))


def _base_of(adapter: Path) -> str:
    """The base that an adapter's settings name: ``tiny`` also where they have the folder of the package, as `populora export` writes it."""
    named = read_settings(adapter).get("base_model_name_or_path")
    if not isinstance(named, str) or not named:
        raise AdapterError(f"'{adapter / CONFIG_FILE}' names no base (base_model_name_or_path): say with --base which one it is for")
    return TINY if Path(named) == base_folder(BaseConfig(path=TINY)) else named


def _settings(base: str) -> Config:
    if base == TINY:
        return Config(base=BaseConfig(path=TINY, prompts="compact"), selfplay=TINY_LIMITS)
    return Config(base=BaseConfig(path=base, prompts="azr"))
