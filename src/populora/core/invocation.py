"""Commands that users can paste into their shell: how to call this populora, and how to install its extras.

In a checkout, or a virtual environment that is not active, `populora` is not on the shell's path. Messages are written with plain
``populora``, and the command line replaces it with the right path before it prints them.
"""

import os
import re
import shlex
import shutil
import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

NAME, DISTRIBUTION = "populora", "populora-selfplay"
"""The names of the command and its package, and the one that pip knows: on PyPI `populora` is another project."""
_QUOTED_COMMAND = re.compile(rf"`{NAME}(?= )")


def program() -> str:
    """Return ``populora`` if the shell finds this environment's script under that name, else the path of the script."""
    called = Path(sys.argv[0])  # pip puts scripts of a user install elsewhere than Python
    script = called if called.name == NAME else Path(sys.executable).parent / NAME
    searched = shutil.which(NAME)
    if not script.is_file() or (searched and Path(searched).resolve() == script.resolve()):
        return NAME
    return _short(script)


def command(*words: object) -> str:
    """Return a command of populora, such as ``command("report", folder)``, quoted for a shell."""
    return " ".join([program(), *(shlex.quote(str(word)) for word in words)])


def pasteable(text: str) -> str:
    """Replace each `` `populora …` `` in a message by a command that works in this shell."""
    return _QUOTED_COMMAND.sub(lambda _: f"`{program()}", text)


def install_extra(extra: str) -> str:
    """Return the command that installs the requirements of an extra of populora: ``… -m pip install 'ray>=2.60'``.

    It lists the libraries, because ``populora-selfplay[extra]`` would look up populora itself in a package index.
    """
    marker = re.compile(rf"""extra == ["']{re.escape(extra)}["']""")
    try:
        requirements = [line.partition(";")[0].strip() for line in requires(DISTRIBUTION) or () if marker.search(line)]
    except PackageNotFoundError:  # populora is on the path, but not installed
        requirements = [f"{DISTRIBUTION}[{extra}]"]
    return pip_install(*requirements)


def pip_install(*words: str) -> str:
    """Return the command that installs these requirements into this environment."""
    return " ".join([_short(Path(sys.executable)), "-m pip install", *map(shlex.quote, words)])


def _short(path: Path) -> str:
    """Quote a path for a shell, relative to the working folder if it is inside."""
    working_folder = Path(os.path.abspath(os.curdir))  # not resolved: an environment's python is a link to another one
    return shlex.quote(str(path.relative_to(working_folder) if path.is_relative_to(working_folder) else path))
