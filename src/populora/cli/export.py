"""``populora export RUN --member S3 -o DIR``: copy one member out of a run as a PEFT folder."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from populora.cli.arguments import QUIET, parse
from populora.core.errors import RunDirectoryError
from populora.core.files import write_folder
from populora.runs.checkpoint import saved_members
from populora.runs.directory import read_config


@dataclass(frozen=True)
class Export:
    """Copy one member of a run into a folder that PEFT, transformers and vLLM load."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Run directory, such as `runs/tiny`."""
    member: Annotated[str, tyro.conf.arg(metavar="MEMBER")]
    """Member id, such as `S3`."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="DIR")]
    """Folder to write; it must not exist yet."""
    step: Annotated[int | None, tyro.conf.arg(metavar="N"), QUIET] = None
    """Step of a checkpoint that the run has kept, by default the newest."""


def main(arguments: Sequence[str]) -> int:
    """Copy the adapter; returns 0. Raises `RunDirectoryError`."""
    args = parse(Export, arguments, "export")
    read_config(args.run)
    members = saved_members(args.run, args.step)
    if args.member not in members.roles:
        raise RunDirectoryError(f"'{args.run}' has no member '{args.member}': expected one of {', '.join(members.roles)}.")
    if args.out.exists():
        raise RunDirectoryError(f"'{args.out}' exists already: choose a folder that does not (`-o DIR`).")
    files = members.files(args.member)
    write_folder(args.out.absolute(), files)
    sys.stdout.write(f"{args.member} of {args.run} at step {members.step} written to {args.out}/ ({', '.join(files)})\n")
    base = json.loads(files["adapter_config.json"])["base_model_name_or_path"]
    if Path(base).is_absolute():  # else it is a name on the hub
        sys.stdout.write(f"On another machine it needs a copy of its base, the folder {base}\n")
    return 0
