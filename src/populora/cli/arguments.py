"""Command-line flags from frozen dataclasses (tyro), with its error messages as `ConfigError`."""

import io
from collections.abc import Sequence
from contextlib import redirect_stderr
from itertools import dropwhile, takewhile
from typing import Any, TypeVar

import tyro

from populora.core.config_file import field_names, load_config, unknown_setting
from populora.core.errors import ConfigError
from populora.core.presets import settings_file

Kind = TypeVar("Kind")
QUIET = tyro.conf.arg(help_behavior_hint="")
"""Mark an option whose text states its default: the help then adds none."""


def parse(kind: type[Kind], arguments: Sequence[str], command: str, default: Kind | None = None, program: str = "populora") -> Kind:
    """Read the arguments of ``<program> <command>`` into ``kind``, over the values of ``default``. Raises `ConfigError`.

    ``--help`` prints the help and exits with 0.
    """
    prog = f"{program} {command}"
    output = io.StringIO()
    try:
        with redirect_stderr(output):
            return tyro.cli(kind, args=list(arguments), prog=prog, default=tyro.MISSING_NONPROP if default is None else default)
    except SystemExit as error:
        if not error.code:
            raise
        raise ConfigError(f"{_plain(output.getvalue())} `{prog} --help` lists what is possible.") from error


def parse_settings(kind: type[Kind], arguments: Sequence[str], command: str) -> Kind:
    """Do the same as `parse` for a command with ``settings`` of a run, from the preset or file ``config``. Flags override its values."""
    flags = [name.removeprefix("settings.") for name in field_names(kind) if name != "config"]
    for argument in arguments:
        name = argument.removeprefix("--").split("=")[0].replace("-", "_")
        if argument.startswith("--") and name.removeprefix("no_").replace(".no_", ".") not in (*flags, "help"):
            raise ConfigError(unknown_setting(name, flags))
    first: Any = parse(kind, [argument for argument in arguments if argument not in ("-h", "--help")], command)  # help shows its values
    chosen: Any = kind
    return parse(kind, arguments, command, default=chosen(settings=load_config(settings_file(first.config))))


def _plain(framed: str) -> str:
    """Extract the message from tyro's frame, drawn in Unicode or ASCII: the text between its title and its next rule."""
    lines = [line.strip(" │") for line in framed.splitlines()[1:]]
    message = takewhile(_is_text, dropwhile(lambda line: not _is_text(line), lines))
    text = " ".join(message).removeprefix("Error parsing ").rstrip(".")
    text = text.replace("invalid literal for int() with base 10: ", "expected an integer, got ")
    return text.replace("could not convert string to float: ", "expected a number, got ") + "."


def _is_text(line: str) -> bool:
    return bool(set(line) - set("─-╰╯"))
