"""populora: populations of LoRA adapters that co-evolve by self-play (PopuLoRA).

Train a population, read its run, breed adapters, judge programs. The functions import what they need when they are called, so that
importing populora costs nothing.

>>> import populora
>>> from dataclasses import replace
>>> run = populora.train(replace(populora.load_config("tiny"), steps=1), "runs/first", verbose=False)
>>> run.members
['S0', 'S1', 'T0', 'T1']
>>> run.metrics.num_rows, "student/solve_rate" in run.metrics.column_names
(1, True)
>>> populora.load_run("runs/first").ratings.column_names[:5]
['step', 'member', 'role', 'slot', 'mu']
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from populora.adapters.adapter import Adapter
    from populora.core.config import Config
    from populora.core.types import Lineage
    from populora.runs.display import PlainDisplay
    from populora.runs.reader import RunDirectory, load_run
    from populora.sandbox.protocol import Limits
    from populora.tasks.checks import Verifier

__all__ = [
    "Adapter", "Config", "Limits", "Lineage", "RunDirectory", "Verifier", "breed", "load_adapter", "load_config", "load_run", "resume",
    "save_adapter", "train",
]  # fmt: skip

_LAZY = {
    "Adapter": "populora.adapters.adapter", "Config": "populora.core.config", "Limits": "populora.sandbox.protocol",
    "Lineage": "populora.core.types",
    "RunDirectory": "populora.runs.reader", "Verifier": "populora.tasks.checks", "load_run": "populora.runs.reader",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'populora' has no attribute '{name}': it has {', '.join(__all__)}")
    return getattr(import_module(_LAZY[name]), name)


def load_config(name: str | Path = "tiny") -> Config:
    """Read the settings of a preset or of a TOML file. Raises `ConfigError` for what is neither, or has an unknown setting.

    Examples:
        >>> populora.load_config("tiny_4t4s").population.teachers
        4
    """
    from populora.core.config_file import load_config
    from populora.core.presets import settings_file

    return load_config(settings_file(str(name)))


def train(config: Config | str | Path = "tiny", out: str | Path | None = None, verbose: bool = True) -> RunDirectory:
    """Train a population, or the single-agent baseline, to the last step of ``config``. Returns the run directory.

    Args:
        config: Settings, the name of a preset, or a TOML file.
        out: The run directory, which must not exist or be empty. By default ``runs/`` and the preset's name, numbered if that exists.
        verbose: Print a line for each step, and the closing summary.

    Raises `PopuloraError` before anything is written if the settings cannot work here. After an interrupt `resume` continues the run.
    """
    from populora.core.config import Config
    from populora.runs.directory import RUNS, free_folder
    from populora.runs.reader import RunDirectory
    from populora.training.loop import train

    settings, name = (config, "run") if isinstance(config, Config) else (load_config(config), Path(config).stem)
    folder = Path(out) if out is not None else free_folder(RUNS, name)
    train(settings, folder, _display(folder, settings, verbose))
    return RunDirectory(folder)


def resume(folder: str | Path, verbose: bool = True) -> RunDirectory:
    """Continue a run from its newest checkpoint to its last step. Returns the run directory.

    Raises `PopuloraError` if ``folder`` is no run, is in use, or if its base, prompts or sandbox have changed.
    """
    from populora.runs.reader import load_run
    from populora.training.loop import resume

    run = load_run(folder)
    resume(run.folder, _display(run.folder, run.config, verbose))
    return run


def _display(folder: Path, config: Config, verbose: bool) -> PlainDisplay:
    from rich.console import Console

    from populora.runs.display import PlainDisplay

    return PlainDisplay(folder, config.steps, lambda: False, Console(highlight=False, quiet=not verbose))


def breed(
    parents: Sequence[Adapter | str | Path],
    operator: str,
    seed: int = 0,
    refactor: str = "",
    allow_other_base: bool = False,
    **strength: float | str,
) -> tuple[Adapter, Lineage]:
    """Breed a child of one or two adapters by a weight-space operator (paper, section 3.3; docs/operators.md).

    Args:
        parents: Adapters, or PEFT folders. They stay as they are.
        operator: Name or alias, such as ``"m1"`` or ``"x1"``.
        seed: The operator's random draws depend on it alone.
        refactor: How the child's singular values are split between its factors: ``"revive"`` (default) or ``"balanced"`` (paper).
        allow_other_base: Accept folders whose settings name different bases: two names of the same weights.
        strength: The operator's own parameters, such as ``epsilon=0.1``.

    Returns the child and its record, with which it can be bred again. Raises `ConfigError` for an unknown operator or a strength out
    of range, `AdapterError` for parents that do not fit together. Warns if the operator mixes factors that share no basis.

    Examples:
        >>> child, lineage = populora.breed(["runs/first/adapters/T0", "runs/first/adapters/T1"], "x1", seed=3)
        >>> lineage.operator, len(child.modules) > 0
        ('x1', True)
    """
    from populora.adapters.adapter import Adapter
    from populora.adapters.operators import get_operator
    from populora.adapters.operators.breeding import basis_warning, breed
    from populora.adapters.peft_format import read_folder
    from populora.adapters.peft_settings import check_agreement
    from populora.core.errors import ConfigError
    from populora.core.types import Lineage

    if isinstance(parents, str | Path) or not all(isinstance(parent, Adapter | str | Path) for parent in parents):
        raise ConfigError(f"parents: expected a list of adapters or PEFT folders, got {parents!r}")
    chosen = get_operator(operator)
    chosen.check_refactor(refactor)
    paths = [Path(parent) for parent in parents if isinstance(parent, str | Path)]
    folders = {path: read_folder(path) for path in paths}
    check_agreement(paths, [folders[path].settings for path in paths], allow_other_base)
    adapters = [parent if isinstance(parent, Adapter) else folders[Path(parent)].adapter for parent in parents]
    names = [f"parent {index}" if isinstance(parent, Adapter) else str(parent) for index, parent in enumerate(parents, start=1)]
    plan = Lineage("child", 1, 0, chosen.name, stream=("breed",), strength=dict(strength), refactor=refactor, seed=seed)
    child, lineage = breed(adapters, plan, names, operator=chosen)
    if warning := basis_warning(lineage):
        warnings.warn(warning, stacklevel=2)
    return child, lineage


def load_adapter(folder: str | Path) -> Adapter:
    """Read a PEFT LoRA folder. Raises `AdapterError` with the reason if it is not plain LoRA, or not whole and finite."""
    from populora.adapters.peft_format import load_adapter

    return load_adapter(Path(folder))


def save_adapter(adapter: Adapter, folder: str | Path, like: str | Path) -> None:
    """Write an adapter as a PEFT folder, with the settings of the PEFT folder ``like``: for a child, one of its parents.

    Raises `AdapterError` if ``folder`` exists and is not empty, or if ``like`` has another rank, alpha, modules or shapes.

    Examples:
        >>> child, _ = populora.breed(["runs/first/adapters/S0"], "m1", seed=3)
        >>> populora.save_adapter(child, "child", like="runs/first/adapters/T0")
        >>> populora.load_adapter("child").fingerprint() == child.fingerprint()
        True
    """
    from populora.adapters.operators.breeding import check_fit
    from populora.adapters.peft_format import read_folder, save_folder
    from populora.adapters.peft_settings import CONFIG_FILE

    model = read_folder(Path(like))
    check_fit("the adapter", adapter, model.adapter, f"'{like}'")
    save_folder(adapter, Path(folder), {CONFIG_FILE: model.text})
