"""How an isolated interpreter is started: a fresh process by command line, never a fork of the trainer, with an empty environment."""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from populora.core.errors import SandboxUnavailableError

_HERE = Path(__file__).resolve().parent


def package_folders(packages: Iterable[str]) -> list[str]:
    """The folders of installed packages, with the shared libraries that wheels put beside them (``numpy.libs``).

    Raises `SandboxUnavailableError` for a package that is not installed.
    """
    folders: list[Path] = []
    for name in packages:
        found = importlib.util.find_spec(name)
        if found is None or not found.submodule_search_locations:
            raise SandboxUnavailableError(f"programs are to have the package '{name}', but it is not installed here")
        own = [Path(place).resolve() for place in found.submodule_search_locations]
        folders += [*own, *(place.with_name(f"{name}.libs") for place in own)]
    return [str(folder) for folder in folders if folder.is_dir()]


def command(
    arguments: list[str], hash_seed: int = 1, bubblewrap: str | None = None, packages: Iterable[str] = ()
) -> tuple[list[str], dict[str, str]]:
    """Command line and environment that run ``boot.py`` with ``arguments``, inside namespaces if ``bubblewrap`` is its path.

    The interpreter is the one below any virtual environment, without site-packages; of them it sees the folders ``packages``.
    """
    interpreter = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    python = [interpreter, "-P", "-s", "-S", "-B", "-X", "utf8", str(_HERE / "boot.py"), *arguments]
    environment = {"PYTHONHASHSEED": str(hash_seed), "OPENBLAS_NUM_THREADS": "1", "TZ": "UTC"}  # one thread, as a zygote forks
    if bubblewrap is None:
        return python, environment
    jail = [bubblewrap, "--unshare-all", "--unshare-user", "--uid", "65534", "--gid", "65534", "--cap-drop", "ALL"]
    jail += ["--hostname", "sandbox", "--as-pid-1", "--die-with-parent", "--chdir", "/", "--clearenv"]  # no process that nobody reaps
    for name, value in environment.items():
        jail += ["--setenv", name, value]
    for path in ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache"):
        jail += ["--ro-bind-try", path, path]
    own = [
        interpreter,
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("platstdlib"),
        str(_HERE),
    ]
    shared = Path(sysconfig.get_config_var("LIBDIR") or "/nonexistent").glob("libpython*")
    for path in [*own, *map(str, shared), *packages]:
        jail += ["--ro-bind", path, path]
    return [*jail, *python], {}
