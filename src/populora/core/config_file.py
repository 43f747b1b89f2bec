"""Read settings from TOML files and plain values. Unknown names are errors that suggest the nearest known ones."""

import dataclasses
import difflib
import json
import math
import sys
import tomllib
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from populora.core.config import Config
from populora.core.errors import ConfigError


def field_names(kind: type = Config, prefix: str = "") -> list[str]:
    """Return the dotted names of all leaf settings, in order of declaration."""
    names: list[str] = []
    for item in dataclasses.fields(kind):
        inner = typing.get_type_hints(kind)[item.name]
        nested = isinstance(inner, type) and dataclasses.is_dataclass(inner)
        names += field_names(inner, f"{prefix}{item.name}.") if nested else [prefix + item.name]
    return names


def from_mapping(values: dict[str, Any], kind: type = Config, prefix: str = "", names: Sequence[str] = ()) -> Any:
    """Build settings from nested plain values (TOML or JSON). Raises `ConfigError` for unknown names and wrong types.

    ``names`` are the dotted names that an error may suggest, by default those of ``kind``.
    """
    hints, names = typing.get_type_hints(kind), names or field_names(kind)
    settings = {}
    for name, value in values.items():
        if name not in hints:
            raise ConfigError(unknown_setting(prefix + name, names))
        if dataclasses.is_dataclass(hints[name]):
            if not isinstance(value, dict):
                raise ConfigError(f"setting '{prefix}{name}': expected a table of settings, got {value!r}")
            settings[name] = from_mapping(value, hints[name], f"{prefix}{name}.", names)
        else:
            settings[name] = _typed(value, hints[name], prefix + name)
    return kind(**settings)


DROPOUT = "unknown setting 'lora.dropout': with dropout the learner would train another policy than the one that sampled. Leave it out."


def unknown_setting(name: str, names: Sequence[str]) -> str:
    """Return the error text for a setting that is not among ``names``, with the nearest of them."""
    if name == "lora.dropout":
        return DROPOUT
    by_leaf = {setting.rsplit(".", 1)[-1]: setting for setting in names}
    matches = difflib.get_close_matches(name, names, n=2, cutoff=0.6)
    matches += [by_leaf[leaf] for leaf in difflib.get_close_matches(name.rsplit(".", 1)[-1], by_leaf, n=2, cutoff=0.7)]
    hint = f" Did you mean {' or '.join(repr(item) for item in dict.fromkeys(matches))}?" if matches else ""
    return f"unknown setting '{name}'.{hint} `populora train --help` lists the settings of a run."


def _typed(value: Any, kind: Any, name: str) -> Any:
    origin = typing.get_origin(kind)
    if origin is Literal:
        if value not in typing.get_args(kind):
            raise ConfigError(f"setting '{name}': expected one of {', '.join(map(repr, typing.get_args(kind)))}, got {value!r}")
        return value
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"setting '{name}': expected a list, got {value!r}")
        inner = typing.get_args(kind)
        kinds = [inner[0]] * len(value) if inner[-1] is Ellipsis else list(inner)
        if len(kinds) != len(value):
            raise ConfigError(f"setting '{name}': expected {len(kinds)} values, got {len(value)}")
        return tuple(_typed(item, part, name) for item, part in zip(value, kinds, strict=True))
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value) if abs(value) <= sys.float_info.max else math.inf  # `check` reports it by name
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ConfigError(f"setting '{name}': expected {kind.__name__}, got {value!r} ({type(value).__name__})")
    return value


def load_config(path: Path, kind: type = Config) -> Any:
    """Read settings, of a run or of another ``kind``, from a TOML file. Raises `ConfigError`."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the configuration '{path}': {error.strerror}. `populora init` writes one to start from.") from error
    try:
        return from_mapping(tomllib.loads(content.decode()), kind)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"'{path}' is not valid TOML: {error}") from error


def to_mapping(config: Any) -> dict[str, Any]:
    """Convert settings to nested plain values for JSON, which `from_mapping` reads back."""
    return dataclasses.asdict(config)


def changed(config: Config, changes: Mapping[str, Any]) -> Config:
    """Return the settings with some of them changed; those of a table are a mapping. Raises `ConfigError` as `from_mapping`."""
    values = to_mapping(config)
    for name, value in changes.items():
        table = isinstance(value, Mapping) and isinstance(values.get(name), dict)
        values[name] = values[name] | dict(value) if table else value
    return from_mapping(values)


def to_toml(config: Any) -> str:
    """Write all settings as TOML, which `load_config` reads back. JSON's texts, numbers and lists are TOML's as well."""
    nested = to_mapping(config)
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in nested.items() if not isinstance(value, Mapping)]
    for table, values in nested.items():
        if isinstance(values, Mapping):
            lines += ["", f"[{table}]", *(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in values.items())]
    return "\n".join(lines) + "\n"


def flatten(values: Mapping[str, Any], separator: str = ".", prefix: str = "") -> dict[str, Any]:
    """Return nested mappings as one, with keys such as ``evolution.every``."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= flatten(value, separator, f"{prefix}{name}{separator}") if isinstance(value, Mapping) else {prefix + name: value}
    return flat
