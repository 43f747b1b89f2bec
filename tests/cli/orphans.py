"""Find the processes that a process started, directly or not, and those that outlive it."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path


@contextlib.contextmanager
def started(*arguments: object, ready: Callable[[], bool], environment: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen]:
    """A command, from the moment that it is ``ready``."""
    command = [*map(str, arguments)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            while not ready():
                assert process.poll() is None, f"{command} ended by itself"
                time.sleep(0.01)
            yield process
        finally:
            process.kill()


def _stat(pid: int) -> tuple[int, str, int] | None:
    """Parent, state and start time of a process; none if there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[1]), fields[0], int(fields[19])


def descendants(ancestor: int) -> dict[int, int]:
    """Process ids of the living descendants of a process, with their start times, which tell a process from a later one of that id."""
    living = {int(folder.name): stat for folder in Path("/proc").glob("[0-9]*") if (stat := _stat(int(folder.name)))}
    family = {ancestor}
    while grown := {pid for pid, (parent, _, _) in living.items() if parent in family} - family:
        family |= grown
    return {pid: living[pid][2] for pid in family - {ancestor}}


def alive(processes: dict[int, int]) -> list[str]:
    """Command lines of those of the processes that have not ended."""
    commands = []
    for pid, start_time in processes.items():
        stat = _stat(pid)
        if stat and stat[1] not in "ZX" and stat[2] == start_time:
            with contextlib.suppress(OSError):  # it ends just now
                commands.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode())
    return commands


def outliving(pid: int, frozen: bool = True) -> tuple[int, list[str]]:
    """SIGKILL a process. Return the number of its descendants, and the command lines of those that still live two minutes later.

    ``frozen`` stops them first, so that none ends because its work is done: only a SIGKILL from the kernel ends them then.
    """
    processes = descendants(pid)
    for child in processes if frozen else ():
        with contextlib.suppress(ProcessLookupError):  # a program in the sandbox, which lives for milliseconds
            os.kill(child, signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 120
    while alive(processes) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = alive(processes)
    for child in processes if left else ():
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    return len(processes), left
