"""``populora init PRESET [-o FILE]``: write a preset as a settings file of the user's own."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from populora.cli.arguments import QUIET, parse
from populora.core.errors import ConfigError
from populora.core.files import write_file
from populora.core.invocation import command
from populora.core.presets import DEFAULT, FOLDER, preset_names, settings_file


@dataclass(frozen=True)
class Init:
    """Write a preset as a TOML file, to change its settings there."""

    preset: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[PRESET]")] = DEFAULT
    """Such as `tiny_4t4s`; `populora train --list` and `populora retention --list` explain them."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FILE"), QUIET] = None
    """The file to write, which must not exist yet; by default the name of the preset with `.toml`, in this folder."""


def main(arguments: Sequence[str]) -> int:
    """Write the file and say how to use it; returns 0. Raises `PopuloraError`."""
    args = parse(Init, arguments, "init")
    retention = args.preset in preset_names(retention=True)
    source = settings_file(args.preset, retention)
    if source.parent != FOLDER:
        names = ", ".join([*preset_names(), *preset_names(retention=True)])
        raise ConfigError(f"expected the name of a preset, got the file '{args.preset}'. The presets are {names}.")
    out = args.out or Path(source.name)
    if out.exists():
        raise ConfigError(f"'{out}' exists already: choose another file (`-o FILE`)")
    write_file(out, source.read_bytes())
    sys.stdout.write(f"written to {out}; run it with `{command('retention' if retention else 'train', out)}`\n")
    return 0
