"""What tests ask of a verdict, and of the processes of a pool."""

import os
import select
import signal
import time
from contextlib import suppress
from pathlib import Path

from populora.sandbox.process import Zygote
from populora.sandbox.protocol import Verdict


def outcome(verdict: Verdict) -> str:
    return " ".join(filter(None, [verdict.kind, verdict.reason, *(value.literal for value in verdict.values)]))


def pids(pool) -> list[int]:
    return [zygote._process.pid for worker in pool._workers for zygote in worker._zygotes.values()]


def lose(zygote: Zygote) -> None:
    """Kill a zygote and wait for its end: under bubblewrap the process that serves dies a moment after its parent."""
    os.kill(zygote._process.pid, signal.SIGKILL)
    watch = select.poll()
    watch.register(zygote._control, 0)
    assert watch.poll(10_000), "the zygote lives on"


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def newest_process(pid: int) -> int:
    """Return the last of a line of processes: the idle zygote (under bubblewrap a grandchild of ours), or its child."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if stat.read_text().rpartition(")")[2].split()[1] == str(pid) and not gone(int(stat.parent.name)):
                return newest_process(int(stat.parent.name))
    return pid


def kill_child(idle: int) -> None:
    """Wait for a child of the zygote, kill it as the kernel does for want of memory, and wait for its end."""
    deadline = time.monotonic() + 10
    while (child := newest_process(idle)) == idle:
        assert time.monotonic() < deadline, "the zygote has no child"
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    while not gone(child):
        time.sleep(0.01)
