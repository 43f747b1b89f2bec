"""How to call this populora, and how to install what it lacks, in words that can be pasted into the user's shell.

A checkout or a virtual environment that is not active has its `populora` in a folder that the shell does not search. Messages are
written with plain ``populora``; the command line puts the right path into them before it prints them.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

NAME = "populora"
_QUOTED_COMMAND = re.compile(rf"`{NAME}(?= )")


def program() -> str:
    """``populora`` where the shell would find this environment's script under that name, else the path of the script."""
    called = Path(sys.argv[0])  # a user's own scripts are not beside Python
    script = called if called.name == NAME else Path(sys.executable).parent / NAME
    searched = shutil.which(NAME)
    if not script.is_file() or (searched and Path(searched).resolve() == script.resolve()):
        return NAME
    return _short(script)


def command(*words: object) -> str:
    """A command of populora, such as ``command("report", folder)``, quoted for a shell."""
    return " ".join([program(), *(shlex.quote(str(word)) for word in words)])


def pasteable(text: str) -> str:
    """A message with each `` `populora …` `` in it written so that it works in this shell."""
    return _QUOTED_COMMAND.sub(lambda _: f"`{program()}", text)


def install_extra(extra: str) -> str:
    """The command that installs what an extra of populora needs into this environment: ``… -m pip install 'ray>=2.60'``.

    It names the libraries, not ``populora[extra]``: that would look populora itself up in a package index.
    """
    marker = re.compile(rf"""extra == ["']{re.escape(extra)}["']""")
    try:
        requirements = [line.partition(";")[0].strip() for line in requires(NAME) or () if marker.search(line)]
    except PackageNotFoundError:  # its source is on the path, but it is not installed
        requirements = [f"{NAME}[{extra}]"]
    return pip_install(*requirements)


def pip_install(*words: str) -> str:
    """The command that installs these requirements into this environment."""
    return " ".join([_short(Path(sys.executable)), "-m pip install", *map(shlex.quote, words)])


def _short(path: Path) -> str:
    """Relative to the working folder where the path lies in it."""
    here = Path(os.path.abspath(os.curdir))  # not resolved: an environment's python is a link to another one
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))
