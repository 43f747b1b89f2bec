"""The settings files that ship with populora, by name: `populora train tiny_4t4s`. In the repository `configs/` shows the same files.

A preset's first line describes it. The lines that begin with ``# Hardware:`` and ``# Time:`` state its requirements and duration.
"""

from dataclasses import dataclass
from pathlib import Path

from populora.core.errors import ConfigError, did_you_mean

FOLDER = Path(__file__).parent
DEFAULT = "tiny"
"""The preset of `populora train` without a name."""
RETENTION = "retention"
"""The default preset of `populora retention`, and the prefix of all its presets. The others are for runs."""


@dataclass(frozen=True)
class Preset:
    """A settings file that ships, described by its first lines."""

    name: str
    summary: str
    hardware: str
    time: str


def preset_names(retention: bool = False) -> list[str]:
    """Return the names of the presets for runs, or of those for ``populora retention``: the tiny ones first, those for GPUs last."""
    names = [path.stem for path in FOLDER.glob("*.toml") if path.stem.startswith(RETENTION) == retention]
    return sorted(names, key=lambda name: ("CPU" not in read_preset(name).hardware, not name.startswith(DEFAULT), name))


def read_preset(name: str) -> Preset:
    """Read the first lines of a preset."""
    lines = [line.removeprefix("# ") for line in (FOLDER / f"{name}.toml").read_text().splitlines() if line.startswith("# ")]
    hardware, time = (
        next(line.removeprefix(label).strip().rstrip(".") for line in lines if line.startswith(label)) for label in ("Hardware:", "Time:")
    )
    return Preset(name, lines[0], hardware, time)


def settings_file(name: str, retention: bool = False) -> Path:
    """Return the file of a preset, or the path that the user gave. A preset's name takes precedence; ``./tiny`` is a file.

    Raises `ConfigError`, with the nearest presets, if there is neither.
    """
    names = preset_names(retention)
    if name in names:
        return FOLDER / f"{name}.toml"
    if Path(name).is_file():
        return Path(name)
    if name in preset_names(not retention):
        command = "train" if retention else "retention"
        raise ConfigError(f"'{name}' is a preset of another command: `populora {command} {name}`")
    meant = did_you_mean(Path(name).stem, names, n=3, cutoff=0.5) or f" The presets are {', '.join(names)}."
    problem = "is a folder" if Path(name).is_dir() else "is neither a settings file nor a preset"
    raise ConfigError(f"'{name}' {problem}.{meant} `populora {'retention' if retention else 'train'} --list` explains them.")
