"""The fork server of one jail: a small interpreter that forks a child for every unit of jobs and watches it.

It receives a socket for each unit and passes it on unread, so a child inherits nothing of other units. The status of a child comes
from the kernel (`wait4`), never from the child.
"""

import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import sys
import types
from dataclasses import dataclass
from time import clock_gettime, monotonic, sleep  # as they are before the surroundings are settled
from typing import Any, NoReturn

from populora.sandbox import child, jail, surroundings
from populora.sandbox.package_finder import PackageFinder

PRELOADED = (
    "bisect collections copy dataclasses datetime decimal enum fractions functools heapq itertools math operator random re "
    "statistics string textwrap time typing"
).split()
"""Modules that programs often import: loaded once here, inherited by every child."""

BUSY_SHARE = 0.05
"""A child that used this share of a core is computing on a loaded machine, not waiting: the CPU limit decides."""

_id_shift: list[object] = []
"""Objects of every size, more in the second zygote, so that the low bits of `id` differ between the two."""

_decode = json.JSONDecoder().raw_decode  # `json.loads` also runs regular expressions
_JOB = 3  # the job's socket in the child

WARM_UPS = 16
WARM_UP = {"mode": "run", "program": "def f(x):\n    return [x + 1]", "texts": ["1"], "rules": ["random"], "domain": "python"}
"""Done a few times before the first program, so that caches are filled and the interpreter has specialised its code."""


def serve_jobs(control: int, settings: dict[str, Any]) -> None:
    """Answer jobs on the inherited socket ``control`` until the trainer closes it or ends.

    ``settings`` has ``limits``, ``layers``, ``parent``, ``index`` (in the pair), ``packages`` (names), ``folders`` (theirs), ``versions``
    (of distributions), ``harness`` (sources) and ``runner`` (folder, module, domain and control; None for Python). Each job is one byte
    with the job's socket, and several may wait in line. Each answer is ``(wait status, CPU seconds, wall limit hit)`` as ``<id?``.
    """
    channel = socket.socket(fileno=control)
    limits, layers = settings["limits"], settings["layers"]
    # Above every file of ours: the control socket has the number that it had in the trainer.
    jailed = Jailed(limits, max(jail.OPEN_FILES, control + 1), limits["threads"] and "seccomp" in layers, "namespaces" in layers)
    _preload(settings)
    outer, jailed.call_filter = jail.filters(jailed.threads) if "seccomp" in layers else (None, None)
    jail.drop_privileges(become_nobody="seccomp" not in layers)
    if "namespaces" not in layers:
        jail.die_with_parent(settings["parent"])  # bubblewrap sees to it itself: the parent's number means nothing in there
    if "landlock" in layers:
        jail.restrict_files(settings["folders"])
    jail.limit_memory_and_files(limits)
    wakeup = _notice_endings()
    _settle_memory(settings)
    if outer:
        outer.load()
    os.dup2(1, 2)  # stderr was for failures up to here; from now on all three are the null device
    channel.sendall(b"Z")
    while True:
        note, sockets, _, _ = socket.recv_fds(channel, 1, 1)
        if not note:
            return
        zygote = os.getpid()
        pid = _fork()
        if pid == 0:
            _become_child(sockets[0], zygote, jailed)
        os.close(sockets[0])
        status, cpu_seconds, wall = _watch(pid, limits, channel, wakeup)
        channel.sendall(struct.pack("<id?", status, cpu_seconds, wall))


def _fork() -> int:
    """Fork a child; try for ten seconds while the machine has no room for another process."""
    for _ in range(200):
        try:
            return jail.fork()
        except BlockingIOError:
            sleep(0.05)
    return jail.fork()


@dataclass
class Jailed:
    """The restrictions that a child applies to itself."""

    limits: dict[str, Any]
    files: int
    threads: bool
    namespaces: bool
    call_filter: jail.Filter | None = None


def _preload(settings: dict[str, Any]) -> None:
    """Import modules for all children, after the surroundings are settled, as modules keep the functions that they find."""
    surroundings.set_surroundings(settings["index"])
    for name in PRELOADED:
        importlib.import_module(name)
    places = sorted({os.path.dirname(folder) for folder in settings["folders"]})
    packages = PackageFinder(settings["packages"], places, settings["versions"])
    sys.meta_path.append(packages)
    for name in settings["packages"]:
        importlib.import_module(name)
    if settings["harness"]:
        sys.modules["harness"] = types.ModuleType("harness")
    for source in settings["harness"]:
        exec(compile(source, "<harness>", "exec", dont_inherit=True), vars(sys.modules["harness"]))  # noqa: S102 - files of ours
    hidden = {"populora"}
    if runner := settings["runner"]:
        try:
            child.RUNNERS[runner["domain"]] = _load_runner(runner["folder"], runner["module"])
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a package does at its import is said in one line
            sys.exit(f"{runner['label']} cannot be imported in the sandbox: {type(error).__name__}: {error}")
        hidden.add(runner["module"].partition(".")[0])
    sys.meta_path.remove(packages)
    os.environ.clear()  # it was for the interpreter and the packages
    for name in [name for name in sys.modules if name.partition(".")[0] in hidden]:
        del sys.modules[name]  # loaded, but not to be found by a program


def _load_runner(folder: str, module: str) -> types.ModuleType:
    """Import a module below ``folder``, the place of its outermost package. The packages around it are only declared, and not executed."""
    path = module.split(".")
    for depth in range(1, len(path)):
        package = sys.modules.setdefault(".".join(path[:depth]), types.ModuleType(".".join(path[:depth])))
        package.__path__ = [os.path.join(folder, *path[:depth])]
    return importlib.import_module(module)


def _notice_endings() -> int:
    """Return a descriptor that is readable when a child has ended."""
    wakeup, ring = os.pipe()
    for end in (wakeup, ring):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(ring)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return wakeup


def _settle_memory(settings: dict[str, Any]) -> None:
    """Bring the memory that children touch into its final shape: every page that a child writes to is copied.

    A runner measures and runs its control program, so that what it imports late is there before the jail is closed.
    """
    runner = settings["runner"]
    jobs = [{**runner["job"], "mode": mode} for mode in ("measure", "run")] if runner else [WARM_UP]
    for _ in range(WARM_UPS):
        request = _decode(json.dumps({"calls": 2, "jobs": jobs}))[0]
        json.dumps([child.perform(job, request["calls"], settings["limits"]) for job in request["jobs"]])
    gc.collect()
    gc.freeze()
    _id_shift.extend(kind(size) for kind in (bytes, _smallest) for size in range(480) for _ in range(settings["index"] + 1))


def _smallest(_: int) -> object:
    return object()


def _watch(pid: int, limits: dict[str, Any], channel: socket.socket, wakeup: int) -> tuple[int, float, bool]:
    deadline = monotonic() + limits["wall_seconds"]
    poll = select.poll()
    poll.register(channel, 0)  # its end, but not the next jobs
    poll.register(wakeup, select.POLLIN)
    expired = abandoned = False
    computed = 0.0
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        ready = [handle for handle, _ in poll.poll(1000 * max(0.0, min(deadline - monotonic(), limits["cpu_seconds"])))]
        if wakeup in ready:
            os.read(wakeup, 512)
        if abandoned := channel.fileno() in ready:
            break
        if ready:
            continue
        used = _cpu_seconds(pid)
        if used > limits["cpu_seconds"]:  # the timer that should have ended it counts ticks, between which a program may sleep
            break
        if monotonic() >= deadline:
            if expired := used - computed < BUSY_SHARE * limits["wall_seconds"]:
                break
            deadline, computed = deadline + limits["wall_seconds"], used
    _kill_group(pid)  # before it is reaped, while no other process can have its number
    _, status, usage = os.wait4(pid, 0)
    if abandoned:
        sys.exit()
    return status, usage.ru_utime + usage.ru_stime, expired


def _cpu_seconds(pid: int) -> float:
    try:
        return clock_gettime(~pid << 3 | 2)  # the clock of another process, see clock_getcpuclockid(3)
    except OSError:
        return 0.0  # ended just now, or a system without such clocks


def _kill_group(pid: int) -> None:
    for kill in (os.kill, os.killpg):  # the child alone too: it may not lead its group yet
        try:
            kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def _become_child(job: int, parent: int, jailed: Jailed) -> NoReturn:
    leave = os._exit  # the program may patch the module's name, which harms only itself
    try:
        signal.set_wakeup_fd(-1)
        os.setpgid(0, 0)  # no session of its own: the scheduler would treat every child as a group of its own, and let it wait
        if not jailed.namespaces:  # a namespace of process numbers ends with the zygote
            jail.die_with_parent(parent)
        if job != _JOB:
            os.dup2(job, _JOB)
        os.closerange(_JOB + 1, jailed.files)
        request = _decode(_request())[0]
        jail.limit_time_and_processes(jailed.limits, jailed.threads)
        if jailed.call_filter:
            jailed.call_filter.load()
        os.write(_JOB, b"R")  # ready: later failures are the program's
        body = json.dumps([child.perform(job, request["calls"], jailed.limits) for job in request["jobs"]]).encode("ascii")
        _write(struct.pack(">I", len(body)) + body)
        leave(0)
    finally:
        leave(1)


def _request() -> str:
    """Read the body of the trainer's frame, which is trusted."""
    data = bytearray()
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        part = os.read(_JOB, 1 << 16)
        if not part:
            raise EOFError
        data += part
    return data[4:].decode("ascii")


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(_JOB, data) :]
