"""The registry of benchmarks: the paper's ten (section 5.1), CRUXEval, Spider and BIRD, and the tiny base's suite (``benchmarks.toml``)."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal, get_args

from populora.core.errors import ConfigError, did_you_mean

Group = Literal["code", "math", "cruxeval", "sql", "tiny", "tiny_sql"]
Grading = Literal["code", "mathematics", "cruxeval", "livecodebench", "execution", "selfplay"]
GROUPS: tuple[Group, ...] = get_args(Group)


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One benchmark: its column in the paper's downstream table (``title``), its data and its grader."""

    name: str
    title: str
    group: Group
    grading: Grading
    items: int
    """0 for a folder of the user's with any number of them."""
    id_field: str
    """Field of an item's name; items without it are named by their line number, from 0."""
    template: str
    max_tokens: int
    """Longest response, as in AZR's evaluation; 0 means the run's limit."""
    primary: str
    """The extraction mode (`Grade.modes`) that the score counts."""
    file: str
    sha256: str = ""
    """Empty where the user's data cannot be pinned."""
    domain: str = ""
    """Of a file with problems of several domains, the one whose items count."""
    source: str = ""
    """Source of the file: ``owner/repository@commit:path`` of a public Git repository."""


_TABLES = tomllib.loads((files("populora.evals") / "benchmarks.toml").read_text("utf-8"))
_ALIASES = {alias: name for name, table in _TABLES.items() for alias in table.pop("aliases", ())}
BENCHMARKS = {name: Benchmark(name=name, **table) for name, table in _TABLES.items()}
"""By name, in the order of the paper's table."""

FIELDS: dict[Grading, tuple[str, ...]] = {
    "code": ("task_id", "prompt", "entry_point", "canonical_solution", "base_input", "plus_input", "atol"),
    "cruxeval": ("code", "input", "output"),
    "selfplay": ("id", "task", "program", "shown"),
}
"""Fields that an item must have to be graded. The other graders report their missing fields."""


def find_benchmark(name: str) -> Benchmark:
    """Find the benchmark by any usual spelling of its name (``HumanEval+``, ``cruxeval-o``). Raises `ConfigError`."""
    plain = name.lower().replace("-", "_").replace("+", "_plus")
    plain = _ALIASES.get(plain, plain)
    if plain not in BENCHMARKS:
        raise ConfigError(f"unknown benchmark '{name}': expected one of {', '.join(BENCHMARKS)}.{did_you_mean(plain, BENCHMARKS, n=2)}")
    return BENCHMARKS[plain]


def suite(names: Sequence[str]) -> list[Benchmark]:
    """Select benchmarks by groups (``code``, ``math``, …) and names, in the table's order. Raises `ConfigError`."""
    selected: set[str] = set()
    for name in names:
        try:
            selected |= {item.name for item in BENCHMARKS.values() if item.group == name} or {find_benchmark(name).name}
        except ConfigError as error:
            raise ConfigError(f"{error} Groups of them are {', '.join(GROUPS)}.") from error
    return [item for item in BENCHMARKS.values() if item.name in selected]
