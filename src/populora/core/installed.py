"""What is installed, and on which processor: recorded beside every result."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("populora", "torch", "transformers", "tokenizers", "safetensors", "peft", "numpy", "pyarrow")
BREEDING = ("populora", "torch", "numpy")
"""Whose versions decide a child's bytes."""


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Installed versions of what decides a run's numbers, without importing any of it."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def version_changes(recorded: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """In what two sets of versions differ, such as ``torch 2.13.0, now 2.14.0``."""
    return [f"{name} {recorded.get(name)}, now {number}" for name, number in now.items() if recorded.get(name) != number]


def processor() -> str:
    """The name of this machine's processor."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text().splitlines() if known.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())
