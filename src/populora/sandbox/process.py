"""The trainer's side of a zygote: start it, send it jobs, receive the kernel's reports about the children, end it.

Several jobs may be under way: the zygote does one after the other, and this side sleeps meanwhile rather than once for each. It only moves
bytes and has its own deadline, so neither a program nor a broken zygote can hang it.
"""

import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from populora.core.errors import SandboxUnavailableError
from populora.sandbox.layers import Isolation, distribution_versions, interpreter_command, package_folders, runner_settings
from populora.sandbox.protocol import Limits
from populora.sandbox.runner import Runner
from populora.sandbox.zygote import BUSY_SHARE

_REPORT = struct.Struct("<id?")
_START_SECONDS = 30.0
_QUICK_SECONDS = 0.02
"""Most groups of children are done by then, and their replies fit the sockets' buffers."""
_GRACE_SECONDS = 10.0
"""Time after the zygote's longest wait for its child until the zygote counts as lost."""


class ZygoteLost(Exception):
    """The zygote died or does not answer: our fault, not the program's."""


@dataclass(frozen=True)
class ChildExit:
    """The end of one child: its raw reply (unchecked), and how it ended according to the kernel."""

    ready: bool
    """The jail was complete before any model text was read."""
    reply: bytes
    status: int
    """Wait status."""
    cpu_seconds: float
    wall_exceeded: bool


@dataclass
class Submission:
    """A job under way: our end of its socket, and the bytes of its request that the socket did not take yet."""

    channel: socket.socket
    pending: memoryview


class Zygote:
    """A running fork server. Raises `SandboxUnavailableError` if it does not start.

    The kernel ends it with the thread that started it.
    """

    def __init__(self, isolation: Isolation, limits: Limits, index: int, runner: Runner | None = None) -> None:
        """Start one for programs of the ``runner``'s domain, or for Python."""
        self._patience = limits.wall_seconds + limits.cpu_seconds / BUSY_SHARE + _GRACE_SECONDS
        self.served = 0
        self._submitted, self._reports = 0, bytearray()  # jobs that are not collected, and the reports that came early
        try:
            self._process, self._control = _start_process(isolation, limits, index, runner)
        except OSError as error:
            raise SandboxUnavailableError(f"the sandbox process cannot be started: {error.strerror}") from error
        self._control.settimeout(_START_SECONDS)
        try:
            started = self._control.recv(1) == b"Z"
        except OSError:
            started = False
        if not started:
            with contextlib.suppress(subprocess.TimeoutExpired):  # Python 3.13 closes the socket before it prints the error
                self._process.wait(_GRACE_SECONDS)
            self.kill()
            self._control.close()
            words = self._process.communicate()[1].decode(errors="replace").strip()[-400:]
            raise SandboxUnavailableError(f"the sandbox process did not start under {limits}: {words}")
        if self._process.stderr:
            self._process.stderr.close()
        self._control.settimeout(None)  # the kernel's timeout instead, under which a receiver can wait for several reports at once
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", 0, int(1e6 * _QUICK_SECONDS)))

    def submit(self, request: bytes) -> Submission:
        """Queue a child for ``request`` (a frame). Raises `ZygoteLost`."""
        self.served += 1
        channel, child_end = socket.socketpair()
        channel.setblocking(False)
        with child_end:
            submission = Submission(channel, _send(channel, memoryview(request)))  # a view: what is left of a large one is not copied
            try:
                socket.send_fds(self._control, [b"J"], [child_end.fileno()])
            except OSError as error:
                channel.close()
                raise ZygoteLost("the zygote is gone") from error
        self._submitted += 1
        return submission

    def collect(self, submission: Submission, reply_bound: int) -> ChildExit:
        """Wait for the end of the oldest child that is not collected. Raises `ZygoteLost`."""
        bound, reply = reply_bound + 5, bytearray()
        with submission.channel as channel:
            if len(self._reports) < _REPORT.size and not submission.pending:
                self._receive_reports()
            if len(self._reports) < _REPORT.size:
                self._converse(channel, submission.pending, reply, bound)
            while _receive(channel, reply, bound):  # the child is dead: all that it wrote is in the buffer
                continue
        report = _REPORT.unpack(self._reports[: _REPORT.size])
        del self._reports[: _REPORT.size]
        self._submitted -= 1
        return ChildExit(reply[:1] == b"R", bytes(reply[1:]), *report)

    def _converse(self, channel: socket.socket, pending: memoryview, reply: bytearray, bound: int) -> None:
        """Send the pending bytes and receive until the report is complete."""
        deadline = time.monotonic() + self._patience
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(channel, select.POLLIN | select.POLLOUT)
        while len(self._reports) < _REPORT.size:
            ready = dict(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
            if not ready:
                raise ZygoteLost("no report in time")
            if self._control.fileno() in ready:
                self._receive_reports(socket.MSG_DONTWAIT)
            if ready.get(channel.fileno(), 0) & select.POLLOUT:
                pending = _send(channel, pending)
            if ready.get(channel.fileno(), 0) & (select.POLLIN | select.POLLHUP) and not _receive(channel, reply, bound):
                poll.unregister(channel)
            elif channel.fileno() in ready:
                poll.modify(channel, select.POLLIN | (select.POLLOUT if pending else 0))

    def _receive_reports(self, how: int = socket.MSG_WAITALL) -> None:
        """Append the reports of all jobs under way, as far as they come within `_QUICK_SECONDS`."""
        try:
            data = self._control.recv(self._submitted * _REPORT.size - len(self._reports), how)
        except BlockingIOError:  # nothing yet
            return
        except OSError as error:
            raise ZygoteLost("the zygote is gone") from error
        if not data:
            raise ZygoteLost("the zygote is gone")
        self._reports += data

    def close(self) -> None:
        """End the zygote and its child and wait for their end; kill them after two seconds."""
        self._control.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill the zygote; the kernel ends its child with it. A thread that waits for the child gets `ZygoteLost`."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _start_process(
    isolation: Isolation, limits: Limits, index: int, runner: Runner | None
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start the process of a zygote, with our end of its socket. Raises `OSError`, `SandboxUnavailableError`."""
    packages = [*limits.packages, *(runner.packages if runner else ())]
    described, folders = runner_settings(runner) if runner else None, package_folders(packages)
    channel, child_end = socket.socketpair()
    settings = {
        "limits": asdict(limits), "layers": sorted(isolation.layers), "parent": os.getpid(), "index": index, "packages": packages,
        "folders": folders, "versions": distribution_versions(limits.distributions),
        "harness": [Path(file).read_text("utf-8") for file in limits.harness], "runner": described,
    }  # fmt: skip
    with child_end:
        arguments, environment = interpreter_command(
            ["zygote", str(child_end.fileno()), json.dumps(settings)],
            index + 1,
            isolation.bubblewrap,
            [*folders, *([described["visible"]] if described else [])],
        )
        try:
            process = subprocess.Popen(  # noqa: S603 - our own command line
                arguments, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                pass_fds=[child_end.fileno()], start_new_session=True, cwd="/",
            )  # fmt: skip
        except OSError:
            channel.close()
            raise
    return process, channel


def _send(channel: socket.socket, data: memoryview) -> memoryview:
    """Send what the socket takes. Returns the rest, or nothing if there is no reader."""
    try:
        return data[channel.send(data) :]
    except BlockingIOError:
        return data
    except (BrokenPipeError, ConnectionResetError):
        return data[:0]


def _receive(channel: socket.socket, reply: bytearray, bound: int) -> bool:
    """Append what the socket holds. Returns False when there is no more, or more than an honest child would send."""
    try:
        data = channel.recv(65536)
    except (BlockingIOError, ConnectionResetError):
        return False
    reply += data
    if len(reply) > bound:
        channel.shutdown(socket.SHUT_RDWR)  # a child that goes on writing gets an error instead of waiting for us
        return False
    return bool(data)
