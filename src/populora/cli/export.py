"""``populora export RUN --member S3 -o DIR``: copy one member out of a run as a PEFT folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from populora.cli.arguments import parse
from populora.core.config import BaseConfig
from populora.core.errors import RunDirectoryError
from populora.core.files import disk_errors, write_folder
from populora.runs.directory import read_config

ADAPTERS, CONFIG_FILE = "adapters", "adapter_config.json"


@dataclass(frozen=True)
class Export:
    """Copy one member of a run into a folder that PEFT, transformers and vLLM load."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Run directory, such as `runs/tiny`."""
    member: Annotated[str, tyro.conf.arg(metavar="MEMBER")]
    """Member id, such as `S3`."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="DIR")]
    """Folder to write; it must not exist yet."""


def main(arguments: Sequence[str]) -> int:
    """Copy the adapter; returns 0. Raises `RunDirectoryError`."""
    chosen = parse(Export, arguments, "export")
    config = read_config(chosen.run)
    members = {path.parent.name: path.parent for path in sorted((chosen.run / ADAPTERS).glob(f"*/{CONFIG_FILE}"))}
    if chosen.member not in members:
        known = ", ".join(members) or "none yet"
        raise RunDirectoryError(f"'{chosen.run}' has no adapter of member '{chosen.member}': expected one of {known}.")
    source = members[chosen.member]
    if chosen.out.exists():
        raise RunDirectoryError(f"'{chosen.out}' exists already: choose a folder that does not (`-o DIR`).")
    with disk_errors(source, "read"):
        files = {path.name: path.read_bytes() for path in sorted(source.iterdir()) if path.is_file()}
    files[CONFIG_FILE] = _for_this_base(files[CONFIG_FILE], config.base)
    write_folder(chosen.out.absolute(), files)
    sys.stdout.write(f"{chosen.member} of {chosen.run} written to {chosen.out}/ ({', '.join(files)})\n")
    return 0


def _for_this_base(settings: bytes, base: BaseConfig) -> bytes:
    """An adapter's settings that name its base as other libraries find it: ``tiny`` is a name of ours alone."""
    from populora.engine.model.loading import base_folder  # loads torch

    return json.dumps({**json.loads(settings), "base_model_name_or_path": str(base_folder(base))}, indent=2).encode() + b"\n"
