"""Group runs into arms: runs of equal settings, whatever their seeds and the machines they ran on."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from populora.core.config_file import flatten, to_mapping
from populora.core.errors import ConfigError
from populora.report.run_data import RunData
from populora.runs.directory import EVALUATIONS
from populora.runs.style import printable

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Colours of arms that are not baselines (Okabe and Ito, for any colour vision)."""
INK = "#1b1b1c"
"""Colour of the baseline, as in the paper, and of all text and axes."""
_HOW_IT_RAN = (
    "seed", "steps", "threads", "track", "checkpoint_every", "keep_checkpoints", "cluster.", "engine.", "base.path", "base.device",
    "learner.micro_batch_tokens", "learner.activation_checkpointing", "sandbox.workers", "selfplay.overlap", "evolution.keep_parents",
    "base.kernels", "evaluation.every",
)  # fmt: skip
"""Prefixes of settings in which runs of an arm may differ. Bases are compared by their fingerprint instead of their path."""
_OF_A_POPULATION = ("population.teachers", "population.students", "evolution.", "league.")
"""Those that a single agent does not use."""


@dataclass(frozen=True)
class Arm:
    """Runs of equal settings but for the seed."""

    label: str
    runs: tuple[RunData, ...]
    colour: str
    baseline: bool = False

    @property
    def seeds(self) -> list[int]:
        return [run.config.seed for run in self.runs]

    @property
    def single_agent(self) -> bool:
        return self.runs[0].config.population.single_agent

    @property
    def adapters(self) -> int:
        return self.runs[0].config.population.members


def newest_evaluations(runs: Sequence[Path]) -> tuple[Path, ...]:
    """Find the evaluation of each run's latest step in its folder, where there is one."""
    files = (max((run / EVALUATIONS).glob("step_*/evaluation.json"), default=None) for run in runs)
    return tuple(file.parent for file in files if file)


def arms_of(folders: Sequence[Path], baselines: Sequence[Path] = ()) -> tuple[Arm, ...]:
    """Group runs into arms, baselines first. Runs of the single agent are baselines if there is a population too.

    Raises `ConfigError` for a run that is named twice, `RunDirectoryError` for a folder that is not a run.
    """
    paths = [*baselines, *folders]
    resolved = [folder.resolve() for folder in paths]
    if repeated := sorted({str(folder) for folder in resolved if resolved.count(folder) > 1}):
        raise ConfigError(f"expected each run once, got {', '.join(repeated)} more than once")
    runs = [RunData(folder, name) for folder, name in zip(paths, unique_names(resolved), strict=True)]
    groups: dict[str, list[RunData]] = {}
    for run in runs:
        groups.setdefault(repr(_method_settings(run)), []).append(run)
    any_population = any(not run.config.population.single_agent for run in runs)
    labels, colours = _labels(list(groups.values())), cycle(PALETTE)
    arms: list[Arm] = []
    for label, group in zip(labels, groups.values(), strict=True):
        named = any(run in group for run in runs[: len(baselines)])
        baseline = named or (any_population and group[0].config.population.single_agent)
        recorded_first = sorted(group, key=lambda run: not run.recorded)  # figures of one run show the first
        arms.append(Arm(label, tuple(recorded_first), INK if baseline else next(colours), baseline))
    return tuple(sorted(arms, key=lambda arm: not arm.baseline))


def unique_names(folders: Sequence[Path]) -> list[str]:
    """Name folders by as many of their last parts as tell them apart."""
    parts = [tuple(map(printable, folder.parts)) for folder in folders]
    names = [path[-1] for path in parts]
    for length in range(2, max(map(len, parts), default=0) + 1):
        names = [name if names.count(name) == 1 else "/".join(path[-length:]) for name, path in zip(names, parts, strict=True)]
    return names


def _method_settings(run: RunData) -> dict[str, Any]:
    """Return the settings that make an arm, by dotted name."""
    unused = (*_HOW_IT_RAN, *_OF_A_POPULATION) if run.config.population.single_agent else _HOW_IT_RAN
    settings = {name: value for name, value in flatten(to_mapping(run.config)).items() if not name.startswith(unused)}
    return {**settings, "base": run.facts.get("base_sha256", run.config.base.path)[:12]}


def _labels(groups: Sequence[Sequence[RunData]]) -> list[str]:
    """Label arms by size, such as ``4T+4S``; arms of equal size also by the settings in which they differ, or by their first run."""
    sizes = [_size(group[0]) for group in groups]
    settings = [_method_settings(group[0]) for group in groups]
    labels: list[str] = []
    for size, values in zip(sizes, settings, strict=True):
        others = [other_values for other_values, other_size in zip(settings, sizes, strict=True) if other_size == size]
        differing = [
            f"{name} {_text(values[name])}" for name in values if any(other_values[name] != values[name] for other_values in others)
        ]
        labels.append(size + (f" ({', '.join(differing[:2])})" if differing else ""))
    return [label if labels.count(label) == 1 else f"{label} [{group[0].name}]" for label, group in zip(labels, groups, strict=True)]


def _text(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _size(run: RunData) -> str:
    population = run.config.population
    if population.single_agent:
        return "baseline (1 agent)"
    return f"{population.teachers}T+{population.students}S" + (" sharing adapters" if population.shared_adapters else "")
