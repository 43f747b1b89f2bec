"""The processes of a run's actors, and their sudden ends."""

from __future__ import annotations

import os
import signal
from pathlib import Path

KINDS = ("Engine", "Learner", "Verifier")


def actors() -> list[tuple[str, int]]:
    """Kind and process id of every actor of this machine that holds a part of a run, by kind."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title = (folder / "cmdline").read_bytes().decode()
        except OSError:
            continue
        found += [(kind, int(folder.name)) for kind in KINDS if title.startswith(f"ray::{kind}Host")]
    return sorted(found)


def kill(pid: int) -> bool:
    """SIGKILL; False if it is gone already."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
