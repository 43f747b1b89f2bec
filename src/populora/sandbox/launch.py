"""How an isolated interpreter is started: a fresh process by command line, never a fork of the trainer, with an empty environment."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

_HERE = Path(__file__).resolve().parent


def command(arguments: list[str], hash_seed: int = 1, bubblewrap: str | None = None) -> tuple[list[str], dict[str, str]]:
    """Command line and environment that run ``boot.py`` with ``arguments``, inside namespaces if ``bubblewrap`` is its path.

    The interpreter is the one below any virtual environment, without site-packages; ``PYTHONHASHSEED`` is all it is told.
    """
    interpreter = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    python = [interpreter, "-P", "-s", "-S", "-B", "-X", "utf8", str(_HERE / "boot.py"), *arguments]
    if bubblewrap is None:
        return python, {"PYTHONHASHSEED": str(hash_seed)}
    jail = [bubblewrap, "--unshare-all", "--unshare-user", "--uid", "65534", "--gid", "65534", "--cap-drop", "ALL"]
    jail += ["--die-with-parent", "--chdir", "/", "--clearenv", "--setenv", "PYTHONHASHSEED", str(hash_seed)]
    for path in ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache"):
        jail += ["--ro-bind-try", path, path]
    own = [
        interpreter,
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("platstdlib"),
        str(_HERE),
        str(_HERE.parent / "analysis/complexity.py"),
    ]
    shared = Path(sysconfig.get_config_var("LIBDIR") or "/nonexistent").glob("libpython*")
    for path in [*own, *map(str, shared)]:
        jail += ["--ro-bind", path, path]
    return [*jail, *python], {}
