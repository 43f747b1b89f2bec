"""Find and kill the processes of a run's actors."""

import os
import signal
from pathlib import Path

KINDS = ("Engine", "Learner", "Verifier")


def actors() -> list[tuple[str, int]]:
    """Kind and process id of every actor on this machine, by kind."""
    processes = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title = (folder / "cmdline").read_bytes().decode()
        except OSError:
            continue
        processes += [(kind, int(folder.name)) for kind in KINDS if title.startswith(f"ray::{kind}Actor")]
    return sorted(processes)


def kill(pid: int) -> bool:
    """Send SIGKILL; False if the process is gone already."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
