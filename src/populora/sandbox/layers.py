"""The isolation layers of this machine, found by trying them, and the command line that starts an isolated interpreter.

Tier ``full`` is namespaces (bubblewrap), Landlock, seccomp and limits. ``standard`` is seccomp and limits with Landlock or namespaces;
it needs no privilege and works in containers. Everything less is ``weak``.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from populora.core.errors import SandboxUnavailableError
from populora.sandbox.runner import Runner

Tier = Literal["full", "standard", "weak"]
_TIERS: dict[Tier, frozenset[str]] = {
    "full": frozenset({"namespaces", "landlock", "seccomp", "limits"}),
    "standard": frozenset({"landlock", "seccomp", "limits"}),
    "weak": frozenset({"limits"}),
}
_PROBE_SETTINGS = {"limits": {"memory_mb": 512, "cpu_seconds": 2}}
_HERE = Path(__file__).resolve().parent
_LIBRARIES = ("/usr/lib", "/usr/lib64", "/lib", "/lib64")
"""All that a jail sees of the system."""


@dataclass(frozen=True)
class Isolation:
    """The layers in use, their tier, and the result of each layer's probe."""

    tier: Tier
    layers: frozenset[str]
    report: dict[str, str]
    bubblewrap: str | None


def isolation(allow_weak: bool = False, tier: Tier | None = None) -> Isolation:
    """Find the strongest isolation of this machine, or check the one of ``tier``.

    Raises `SandboxUnavailableError` if a layer of ``tier`` is missing, or if the result is weak and ``allow_weak`` is not set.
    """
    bubblewrap = shutil.which("bwrap")
    probes = probe_layers(bubblewrap)
    holding = frozenset(layer for layer, (holds, _) in probes.items() if holds)
    used = holding if tier is None else _TIERS[tier]
    if tier == "standard" and "landlock" not in holding:
        used = used - {"landlock"} | {"namespaces"}
    report = {layer: (f"on: {detail}" if layer in used else f"off: {detail}") for layer, (_, detail) in probes.items()}
    if not used <= holding:
        missing = "; ".join(f"{layer} ({probes[layer][1]})" for layer in sorted(used - holding))
        raise SandboxUnavailableError(f"sandbox tier '{tier}' was asked for, but this machine lacks: {missing}")
    reached = _tier_of(used)
    if reached == "weak" and not allow_weak:
        lacks = "; ".join(f"{layer}: {probes[layer][1]}" for layer in sorted(_TIERS["full"] - used))
        raise SandboxUnavailableError(
            f"programs written by a model need at least the 'standard' sandbox (Landlock and seccomp), but this machine gives 'weak': "
            f"{lacks}. Run on Linux 5.13 or newer (a container or virtual machine will do), install bubblewrap, or accept the risk "
            f"with sandbox.allow_weak = true."
        )
    return Isolation(reached, used, report, bubblewrap if "namespaces" in used else None)


def _tier_of(layers: frozenset[str]) -> Tier:
    if layers == _TIERS["full"]:
        return "full"
    return "standard" if {"seccomp", "limits"} <= layers and layers & {"landlock", "namespaces"} else "weak"


def probe_layers(bubblewrap: str | None) -> dict[str, tuple[bool, str]]:
    """Try every layer in a process of its own. Returns whether it holds, and the detail, by layer.

    They are tried once in a process, but again if a probe could not run, for example while files could not be opened.
    """
    if bubblewrap not in _PROBED:
        namespaces = _probe("namespaces", bubblewrap) if bubblewrap else (False, "bwrap is not on PATH: install bubblewrap")
        probes = {"namespaces": namespaces} | {layer: _probe(layer, None) for layer in ("landlock", "seccomp", "limits")}
        if any(detail.startswith(_FAILED) for _, detail in probes.values()):
            return probes
        _PROBED[bubblewrap] = probes
    return _PROBED[bubblewrap]


_PROBED: dict[str | None, dict[str, tuple[bool, str]]] = {}
_FAILED = "the probe failed"


def _probe(layer: str, bubblewrap: str | None) -> tuple[bool, str]:
    arguments, environment = interpreter_command(["probe", layer, json.dumps(_PROBE_SETTINGS)], bubblewrap=bubblewrap)
    try:
        done = subprocess.run(  # noqa: S603 - our own command line
            arguments, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=True, cwd="/"
        )
        answer = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        words = getattr(error, "stderr", None) or str(error).encode()
        return False, f"{_FAILED}: {words.decode(errors='replace').strip()[-200:]}"
    return bool(answer["holds"]), str(answer["detail"])


def interpreter_command(
    arguments: list[str], hash_seed: int = 1, bubblewrap: str | None = None, packages: Iterable[str] = ()
) -> tuple[list[str], dict[str, str]]:
    """Build the command line and environment that run ``boot.py`` with ``arguments``, in namespaces if ``bubblewrap`` is its path.

    It starts a fresh process, never a fork of the trainer. The interpreter is the one below any virtual environment, without
    site-packages; of those it sees the folders ``packages``.
    """
    interpreter = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    python = [interpreter, "-P", "-s", "-S", "-B", "-X", "utf8", str(_HERE / "boot.py"), *arguments]
    environment = {"PYTHONHASHSEED": str(hash_seed), "OPENBLAS_NUM_THREADS": "1", "TZ": "UTC"}  # one thread, as a zygote forks
    if bubblewrap is None:
        return python, environment
    jail = [bubblewrap, "--unshare-all", "--unshare-user", "--uid", "65534", "--gid", "65534", "--cap-drop", "ALL"]
    jail += ["--hostname", "sandbox", "--as-pid-1", "--die-with-parent", "--chdir", "/", "--clearenv"]  # no process that is not reaped
    for name, value in environment.items():
        jail += ["--setenv", name, value]
    for path in (*_LIBRARIES, "/etc/ld.so.cache"):
        jail += ["--ro-bind-try", path, path]
    shared = Path(sysconfig.get_config_var("LIBDIR") or "/nonexistent").glob("libpython*")
    base = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}  # not those of a virtual environment
    libraries = dict.fromkeys(sysconfig.get_path(name, vars=base) for name in ("stdlib", "platstdlib"))
    for path in [interpreter, *libraries, *map(str, shared)]:
        if not path.startswith(tuple(f"{folder}/" for folder in _LIBRARIES)):  # there already; bubblewrap 0.12 mounts on no symbolic link
            jail += ["--ro-bind", path, path]
    for path in libraries:
        if (Path(path) / "site-packages").is_dir():
            jail += ["--tmpfs", f"{path}/site-packages"]
    for path in [str(_HERE), *packages]:
        jail += ["--ro-bind", path, path]
    return [*jail, *python], {}


def package_folders(packages: Iterable[str]) -> list[str]:
    """Find the folders of installed packages, and of the shared libraries of their wheels (``numpy.libs``).

    Raises `SandboxUnavailableError` for a package that is not installed.
    """
    folders: list[Path] = []
    for name in packages:
        spec = importlib.util.find_spec(name)
        if spec is None:
            raise SandboxUnavailableError(f"programs are to have the package '{name}', but it is not installed here")
        if not spec.submodule_search_locations:
            raise SandboxUnavailableError(
                f"programs are to have '{name}', but it is a single module: expected a package, which is a folder"
            )
        locations = [Path(location).resolve() for location in spec.submodule_search_locations]
        folders += [*locations, *(location.with_name(f"{name}.libs") for location in locations)]
    return [str(folder) for folder in folders if folder.is_dir()]


def distribution_versions(names: Iterable[str]) -> dict[str, str]:
    """Return the installed versions of distributions by name. Raises `SandboxUnavailableError` for one that is not installed."""
    try:
        return {name: version(name) for name in names}
    except PackageNotFoundError as error:
        raise SandboxUnavailableError(f"programs are to have packages of '{error.name}', but it is not installed here") from error


def runner_settings(runner: Runner) -> dict[str, Any]:
    """Describe a runner for the zygote: where its module is, the folder that it needs to see, and its control job.

    Raises `SandboxUnavailableError` for a module that is not there or that is in no package, and for packages that it lacks.
    """
    if "." not in runner.module:
        raise SandboxUnavailableError(f"{runner}: expected a module inside a package, such as 'package.runner'")
    try:
        spec = importlib.util.find_spec(runner.module)
        lacking = [name for name in runner.packages if importlib.util.find_spec(name) is None]
    except Exception as error:  # finding a module imports the packages around it
        raise SandboxUnavailableError(f"{runner} cannot be found: {type(error).__name__}: {error}") from error
    if spec is None or spec.origin is None:
        raise SandboxUnavailableError(f"{runner}: there is no such module")
    if lacking:
        raise SandboxUnavailableError(f"{runner} needs {', '.join(lacking)}, which is not installed")
    file = Path(spec.origin).resolve()
    outermost = file.parents[runner.module.count(".") + (file.name == "__init__.py")]
    job = {"program": runner.control[0], "texts": runner.control[1:], "rules": [], "domain": runner.domain}
    return {
        "domain": runner.domain,
        "module": runner.module,
        "folder": str(outermost),
        "visible": str(file.parent),
        "job": job,
        "label": str(runner),
    }
