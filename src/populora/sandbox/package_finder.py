"""Finds the installed packages that are declared, and their versions, while a zygote imports them. Standard library only."""

import re
from collections.abc import Iterator
from importlib.machinery import PathFinder
from typing import Any


class PackageFinder:
    """Finds the declared packages in their places, and nothing else that is installed there.

    ``versions`` are those of their distributions by name: some packages ask for them at their import.
    """

    def __init__(self, names: list[str], places: list[str], versions: dict[str, str]) -> None:
        self._names, self._places, self._versions = names, places, versions

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return PathFinder.find_spec(name, self._places) if path is None and name in self._names else None

    def find_distributions(self, context: Any) -> Iterator[Any]:
        """Yield the distributions of this name, or all; `importlib.metadata` asks for them. They have metadata and no files."""
        from importlib.metadata import Distribution  # where it is not loaded yet, nobody asks

        class Declared(Distribution):
            def __init__(self, name: str, version: str) -> None:
                self._text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"

            def read_text(self, filename: str) -> str | None:
                return self._text if filename == "METADATA" else None

            def locate_file(self, path: Any) -> Any:
                raise FileNotFoundError(f"the sandbox does not show the files of distributions: {path}")

        for name, version in self._versions.items():
            if context.name is None or _normal(context.name) == _normal(name):
                yield Declared(name, version)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
