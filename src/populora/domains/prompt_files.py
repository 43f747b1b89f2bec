"""The prompt files of a domain, ``prompts/azr.toml`` and ``prompts/compact.toml``: read them, and check that they show what they must.

`populora.tasks.render` fills them.
"""

import tomllib
from importlib.resources import files
from typing import Any

from populora.core.errors import ConfigError
from populora.domains.declaration import Domain

SETS = ("azr", "compact")
SETTINGS = {"name": str, "version": int, "references": int, "inputs_wanted": int, "stop": str}
SHOWN = {
    "reference": {"i": ("program",), "o": ("program",)},
    "propose": {"i": ("references",), "o": ("references",), "f": ("program",)},
    "solve": {"i": ("program", "output"), "o": ("program", "inputs"), "f": ("message", "pairs")},
    "pair": {"f": ("inputs", "output")},
}
"""The tables of a prompt set by kind of task, and what each template has to show."""


def prompt_sets(domain: Domain) -> list[str]:
    """List the names of the sets that a domain has."""
    return [name for name in SETS if files(domain.package).joinpath("prompts", f"{name}.toml").is_file()]


def read_prompts(domain: Domain, name: str) -> dict[str, Any]:
    """Read a prompt set. Raises `ConfigError` if the domain has none of that name, or if a part of it is missing."""
    file = files(domain.package).joinpath("prompts", f"{name}.toml")
    if not file.is_file():
        raise ConfigError(f"base.prompts is '{name}', but the domain '{domain.name}' has no prompts/{name}.toml in '{domain.package}'")
    try:
        prompts = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"prompts/{name}.toml in '{domain.package}': {error}") from error
    if faults := _faults(domain, prompts):
        raise ConfigError(f"prompts/{name}.toml in '{domain.package}': {faults[0]}")
    return prompts


def _faults(domain: Domain, prompts: dict[str, Any]) -> list[str]:
    expected = {**SETTINGS, **dict.fromkeys(SHOWN, dict)}
    faults = [f"unknown '{key}'" for key in prompts if key not in expected]
    faults += [f"expected '{key}' ({kind.__name__})" for key, kind in expected.items() if not isinstance(prompts.get(key), kind)]
    for table, task in () if faults else ((table, task) for table in SHOWN for task in domain.task_types):
        text = prompts[table].get(task, "")
        lacking = [part for part in SHOWN[table].get(task.kind, ()) if not isinstance(text, str) or f"{{{part}}}" not in text]
        faults += [f"expected {{{part}}} in '{task}' of [{table}]" for part in lacking]
    return faults
