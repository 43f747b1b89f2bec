"""Which runs belong together: an arm is all runs of equal settings, whatever their seeds and the machines they ran on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from populora.core.config_file import flatten
from populora.core.errors import ConfigError
from populora.report.loading import RunData
from populora.runs.style import printable

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Of the arms that are no baseline (Okabe and Ito: told apart with any colour vision)."""
INK = "#1b1b1c"
"""Of the baseline, as in the paper, and of all words and axes."""
_HOW_IT_RAN = (
    "seed", "steps", "threads", "track", "checkpoint_every", "keep_checkpoints", "cluster.", "engine.", "base.path", "base.device",
    "learner.micro_batch_tokens", "learner.activation_checkpointing", "sandbox.workers",
)  # fmt: skip
"""Settings in which the runs of an arm may differ; that the base is the same says its fingerprint."""


@dataclass(frozen=True)
class Arm:
    """Runs of equal settings but for the seed. A baseline is drawn in black."""

    label: str
    runs: tuple[RunData, ...]
    colour: str
    baseline: bool = False

    @property
    def seeds(self) -> list[Any]:
        """The seeds of its runs."""
        return [run.settings.get("seed", "?") for run in self.runs]

    @property
    def single_agent(self) -> bool:
        """Whether one adapter proposes and solves."""
        return _single_agent(self.runs[0])

    @property
    def adapters(self) -> int:
        """Adapters that one run trains; 0 where the settings do not say it."""
        return 1 if self.single_agent else sum(self.runs[0].setting(f"population.{role}", 0) for role in ("teachers", "students"))


def arms_of(folders: Sequence[Path], baselines: Sequence[Path] = ()) -> tuple[Arm, ...]:
    """The arms of some runs, baselines first; a run of the single agent is a baseline without being named as one.

    Raises `ConfigError` for a run that is given twice, `RunDirectoryError` for a folder that is no run.
    """
    given = [folder.resolve() for folder in (*folders, *baselines)]
    if twice := sorted({str(folder) for folder in given if given.count(folder) > 1}):
        raise ConfigError(f"expected each run once, got {', '.join(twice)} more than once")
    groups: dict[str, list[RunData]] = {}
    named = {folder.resolve() for folder in baselines}
    for folder, name in zip((*baselines, *folders), _names((*baselines, *folders)), strict=True):
        run = RunData(folder, name)
        groups.setdefault(_identity(run), []).append(run)
    several = any(not _single_agent(runs[0]) for runs in groups.values())
    is_baseline = [any(run.folder.resolve() in named for run in runs) or (several and _single_agent(runs[0])) for runs in groups.values()]
    labels, colours = _labels(list(groups.values())), iter(PALETTE * (1 + len(groups) // len(PALETTE)))
    arms = [
        # Figures of one run show the first: one that has something to show.
        Arm(label, tuple(sorted(runs, key=lambda run: not run.recorded)), INK if baseline else next(colours), baseline)
        for label, runs, baseline in zip(labels, groups.values(), is_baseline, strict=True)
    ]
    return tuple(sorted(arms, key=lambda arm: not arm.baseline))


def _names(folders: Sequence[Path]) -> list[str]:
    """The folders' own names, and where two have the same, as many of the folders above as tell them apart."""
    parts = [tuple(map(printable, folder.resolve().parts)) for folder in folders]
    names = [own[-1] for own in parts]
    for length in range(2, max(map(len, parts), default=0) + 1):
        names = [name if names.count(name) == 1 else "/".join(own[-length:]) for name, own in zip(names, parts, strict=True)]
    return names


def _single_agent(run: RunData) -> bool:
    return run.setting("population.single_agent", False) is True


def _identity(run: RunData) -> str:
    if not run.settings:
        return str(run.folder)  # nobody knows what it is equal to
    return repr(sorted(_what_it_was(run).items()))


def _what_it_was(run: RunData) -> dict[str, Any]:
    same = {name: value for name, value in flatten(run.settings).items() if not name.startswith(_HOW_IT_RAN)}
    return {**same, "base": str(run.facts.get("base_sha256", run.setting("base.path", "")))[:12]}


def _labels(groups: Sequence[Sequence[RunData]]) -> list[str]:
    """Sizes such as ``4T+4S``; where two arms have the same, with the settings in which they differ."""
    sizes = [_size(runs[0]) for runs in groups]
    labels: list[str] = []
    for size, runs in zip(sizes, groups, strict=True):
        alike = [_what_it_was(other[0]) for other, theirs in zip(groups, sizes, strict=True) if theirs == size]
        own = _what_it_was(runs[0])
        apart = [name for name in own if any(other.get(name) != own[name] for other in alike)]
        labels.append(size + (f" ({', '.join(f'{name} {own[name]}' for name in apart[:2])})" if apart else ""))
    return [label if labels.count(label) == 1 else f"{label} [{runs[0].name}]" for label, runs in zip(labels, groups, strict=True)]


def _size(run: RunData) -> str:
    if _single_agent(run):
        return "baseline (1 agent)"
    teachers, students = (run.setting(f"population.{role}", 0) for role in ("teachers", "students"))
    return f"{teachers}T+{students}S" if teachers and students else run.name
