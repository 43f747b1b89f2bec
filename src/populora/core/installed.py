"""Versions of installed packages and the name of the processor, recorded with every result."""

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("populora", "torch", "transformers", "tokenizers", "safetensors", "peft", "numpy", "scipy", "pyarrow")
BREEDING = ("populora", "torch", "numpy")
"""The packages whose versions decide the weights of a child."""


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Return the installed versions of Python and these packages, without importing them."""
    installed = {"python": platform.python_version()}
    for package in packages:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            installed[package] = "not installed"
    return installed


def version_changes(recorded: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """List the differences between two sets of versions, such as ``torch 2.13.0, now 2.14.0``."""
    return [f"{name} {recorded.get(name)}, now {number}" for name, number in now.items() if recorded.get(name) != number]


def processor() -> str:
    """Return the name of this machine's processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())
