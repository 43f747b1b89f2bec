"""populora: populations of LoRA adapters that co-evolve by self-play (PopuLoRA).

Train a population, read its run, breed adapters, judge programs. The functions import what they need when they are called, so that
importing populora costs nothing.

>>> import populora
>>> run = populora.train(populora.load_config("tiny", steps=1), "runs/first", verbose=False)
>>> run.members
['T0', 'T1', 'S0', 'S1']
>>> run.metrics.num_rows, "student/solve_rate" in run.metrics.column_names
(1, True)
>>> populora.load_run("runs/first").ratings.column_names[:5]
['step', 'member', 'role', 'slot', 'mu']
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from populora.adapters.adapter import Adapter
    from populora.core.config import Config
    from populora.core.types import Lineage
    from populora.report.figure import Figure
    from populora.runs.display import PlainDisplay
    from populora.runs.reader import RunDirectory, load_run
    from populora.sandbox.protocol import Limits
    from populora.tasks.checks import Verifier

__all__ = [
    "Adapter", "Config", "Limits", "Lineage", "RunDirectory", "Verifier", "breed", "figures", "load_adapter", "load_config", "load_run",
    "resume", "save_adapter", "train",
]  # fmt: skip

_LAZY = {
    "Adapter": "populora.adapters.adapter", "Config": "populora.core.config", "Limits": "populora.sandbox.protocol",
    "Lineage": "populora.core.types",
    "RunDirectory": "populora.runs.reader", "Verifier": "populora.tasks.checks", "load_run": "populora.runs.reader",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from populora.core.installed import versions

        return versions(["populora"])["populora"]
    if name not in _LAZY:
        raise AttributeError(f"module 'populora' has no attribute '{name}': it has {', '.join(__all__)}")
    return getattr(import_module(_LAZY[name]), name)


def load_config(name: str | Path = "tiny", **changes: Any) -> Config:
    """Read the settings of a preset or of a TOML file, and change some of them.

    Args:
        name: A preset or a file.
        changes: Settings with other values, those of a table as a mapping.

    Raises `ConfigError` for what is neither preset nor file, for an unknown setting and for a value of the wrong type.

    Examples:
        >>> populora.load_config("tiny_4t4s").population.teachers
        4
        >>> config = populora.load_config("tiny", steps=1, population={"teachers": 3})
        >>> config.steps, config.population.teachers, config.population.students
        (1, 3, 2)
    """
    from populora.core.config_file import changed, load_config
    from populora.core.presets import settings_file

    return changed(load_config(settings_file(str(name))), changes)


def train(config: Config | str | Path = "tiny", out: str | Path | None = None, verbose: bool = True) -> RunDirectory:
    """Train a population, or the single-agent baseline, to the last step of ``config``. Returns the run directory.

    Args:
        config: Settings, the name of a preset, or a TOML file.
        out: The run directory, which must not exist or be empty. By default ``runs/`` and the preset's name, numbered if that exists.
        verbose: Print a line for each step, and the closing summary.

    Raises `PopuloraError` before anything is written if the settings cannot work here. After an interrupt `resume` continues the run.
    """
    from populora.core.config import Config
    from populora.runs.directory import RUNS, reserved_folder
    from populora.runs.reader import RunDirectory
    from populora.training.loop import train

    settings, name = (config, "run") if isinstance(config, Config) else (load_config(config), Path(config).stem)
    with reserved_folder(RUNS, name) if out is None else nullcontext(Path(out)) as folder:
        train(settings, folder, _display(folder, settings, verbose))
    return RunDirectory(folder)


def resume(folder: str | Path, verbose: bool = True, steps: int | None = None) -> RunDirectory:
    """Continue a run from its newest checkpoint to its last step, or to ``steps``, which can only be more. Returns the run directory.

    Raises `PopuloraError` if ``folder`` is no run, is in use, or if its base, prompts or sandbox have changed.
    """
    from populora.runs.directory import with_more_steps
    from populora.runs.reader import load_run
    from populora.training.loop import resume

    run = load_run(folder)
    resume(run.folder, _display(run.folder, with_more_steps(run.config, steps), verbose), steps=steps)
    return load_run(folder)


def _display(folder: Path, config: Config, verbose: bool) -> PlainDisplay:
    from populora.core.output import OutputConsole
    from populora.runs.display import PlainDisplay

    return PlainDisplay(folder, config.steps, lambda: False, OutputConsole(quiet=not verbose))


def breed(
    parents: Sequence[Adapter | str | Path],
    operator: str,
    seed: int = 0,
    refactor: str = "",
    allow_other_base: bool = False,
    out: str | Path | None = None,
    **strength: float | str,
) -> tuple[Adapter, Lineage]:
    """Breed a child of adapters by a weight-space operator (paper, section 3.3; docs/operators.md).

    Args:
        parents: Adapters, or PEFT folders: one for a mutation, two for a crossover, two or more for ``"soup"``. They stay as they are.
        operator: Name or alias, such as ``"m1"`` or ``"x1"``.
        seed: The operator's random draws depend on it alone.
        refactor: How the child's singular values are split between its factors: ``"revive"`` (default) or ``"balanced"`` (paper).
        allow_other_base: Accept folders whose settings name different bases: two names of the same weights.
        out: A new folder for the child, in PEFT's format, if its parents are folders. Its ``lineage.json`` is the record, and names them
            relative to it: `populora replay OUT` breeds the child again.
        strength: The operator's own parameters, such as ``epsilon=0.1``.

    Returns the child and its record. Raises `ConfigError` for an unknown operator or a strength out of range, `AdapterError` for parents
    that do not fit together and for an ``out`` that is not empty. Warns if the operator mixes factors that share no basis.

    Examples:
        >>> child, lineage = populora.breed(["runs/first/adapters/T0", "runs/first/adapters/T1"], "x1", seed=3)
        >>> lineage.operator, len(child.modules) > 0
        ('x1', True)
        >>> mutant, _ = populora.breed(["runs/first/adapters/S0"], "m1", out="mutant")
        >>> round(mutant.cosine(populora.load_adapter("runs/first/adapters/S0")), 1)
        1.0
    """
    from populora.adapters.adapter import Adapter
    from populora.adapters.operators import get_operator
    from populora.adapters.operators.breeding import basis_warning, breed, breed_folders
    from populora.adapters.peft_format import read_folder
    from populora.adapters.peft_settings import check_agreement
    from populora.core.errors import ConfigError
    from populora.core.types import Lineage

    if isinstance(parents, str | Path) or not all(isinstance(parent, Adapter | str | Path) for parent in parents):
        raise ConfigError(f"parents: expected a list of adapters or PEFT folders, got {parents!r}")
    chosen = get_operator(operator)
    chosen.check_refactor(refactor)
    paths = [Path(parent) for parent in parents if isinstance(parent, str | Path)]
    plan = Lineage("child", 1, 0, chosen.name, stream=("breed",), strength=dict(strength), refactor=refactor, seed=seed)
    if out is None:
        folders = {path: read_folder(path) for path in paths}
        check_agreement(paths, [folders[path].settings for path in paths], allow_other_base)
        adapters = [parent if isinstance(parent, Adapter) else folders[Path(parent)].adapter for parent in parents]
        names = [f"parent {index}" if isinstance(parent, Adapter) else str(parent) for index, parent in enumerate(parents, start=1)]
        child, lineage = breed(adapters, plan, names, operator=chosen)
    elif len(paths) == len(parents):
        child, lineage = breed_folders(paths, plan, Path(out), allow_other_base, chosen)
    else:
        raise ConfigError("out: the child's record names its parents, so they must be PEFT folders; got adapters")
    if warning := basis_warning(lineage):
        warnings.warn(warning, stacklevel=2)
    return child, lineage


def figures(*runs: str | Path | RunDirectory) -> dict[str, Figure]:
    """Return the figures of `populora report` for one or more runs by name, those that can be made.

    A figure has ``title``, ``definition`` (the caption), ``rows`` (its numbers as records), ``csv()``, and ``draw()``, which returns a
    figure of matplotlib. Runs of equal settings but for the seed are one arm. Raises `ConfigError` without runs, and
    `RunDirectoryError` for a folder that is no run.

    Examples:
        >>> figures = populora.figures("runs/first")
        >>> "lineage" in figures, figures["dynamics"].title
        (True, 'Training dynamics')
    """
    from populora.core.errors import ConfigError
    from populora.report.arms import arms_of, newest_evaluations
    from populora.report.figure import Figure, Study
    from populora.report.figures import make_figures
    from populora.runs.reader import RunDirectory

    if not runs:
        raise ConfigError("figures: expected one run or more, got none")
    folders = [run.folder if isinstance(run, RunDirectory) else Path(run) for run in runs]
    study = Study(arms_of(folders), newest_evaluations(folders))
    return {figure.name: figure for figure in make_figures(study) if isinstance(figure, Figure)}


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
