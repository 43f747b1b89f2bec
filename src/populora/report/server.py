"""The report of a run that goes on, served on loopback: read-only, light enough to leave open beside the training.

The page is made anew only while somebody has it open, at most every `REST` times the seconds that making it takes, and at a lower
priority than the run's. It asks for ``version`` every two seconds and takes over what is new. Nothing else is answered: no files, no other
methods, and no request that names another host (a page of another site could make a browser ask for ours).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from populora.core.errors import ConfigError, PopuloraError, RunDirectoryError
from populora.core.files import disk_errors
from populora.runs.metrics_log import METRICS

HOST = "127.0.0.1"
REST, SHORTEST, ASKED = 5.0, 10.0, 20.0
"""Pause between pages in times of what one takes, and at least, in seconds; for how long a page that asked counts as open."""
TAIL = 1 << 20
"""Bytes: a step's metrics are shorter."""
Make = Callable[[str], str]
"""Makes the page of a version."""


class Followed:
    """The page as it was last made, and when it is made again."""

    def __init__(self, folder: Path, steps: int | str, make: Make):
        """``steps``: how many the run has in all, or ``?``."""
        self._folder, self._steps, self._make = folder, steps, make
        self._asked = 0.0
        self.html, self.version, self.trouble = "", "", ""

    def renew(self) -> float:
        """Make the page of the run's last finished step; the seconds it took.

        A run that cannot be read leaves the page as it was, to be tried again; where there is none yet, what is wrong is raised.
        """
        started = time.monotonic()
        try:
            version = str(last_step(self._folder))
            self.html, self.version, self.trouble = self._make(version), version, ""
        except Exception as error:
            if not self.html:
                raise
            self.trouble = str(error) if isinstance(error, PopuloraError) else f"{type(error).__name__}: {error}"
        return time.monotonic() - started

    def status(self) -> dict[str, str]:
        """What an open page asks for: the version to have, and a line for the reader."""
        self._asked = time.monotonic()
        try:
            now, written = last_step(self._folder), _written(self._folder)
        except PopuloraError as error:
            return {"version": self.version, "text": f"this page: step {self.version}; cannot be renewed: {error}"}
        behind = "" if str(now) == self.version else f", this page: step {self.version}"
        trouble = f"; cannot be renewed: {self.trouble}" if self.trouble else ""
        return {"version": self.version, "text": f"step {now} of {self._steps}, {written}{behind}{trouble}"}

    def due(self) -> bool:
        """Whether there is something new, or to be tried again, and somebody to see it."""
        if time.monotonic() - self._asked >= ASKED:
            return False
        try:
            return bool(self.trouble) or str(last_step(self._folder)) != self.version
        except PopuloraError:
            return True

    def follow(self, ended: threading.Event) -> None:
        """Make the page anew whenever it is due, until ``ended``."""
        while not ended.wait(1.0):
            if self.due():
                ended.wait(max(SHORTEST, REST * self.renew()))


def _written(folder: Path) -> str:
    """How long ago a step was last finished: what tells a run that goes on from one that was killed."""
    file = folder / METRICS
    with disk_errors(file, "read"):
        minutes = int((time.time() - file.stat().st_mtime) / 60) if file.is_file() else 0
    return f"written {minutes} min ago" if minutes else "written just now"


def last_step(folder: Path) -> int:
    """The last step whose metrics are written; 0 before the first. Reads the end of the log alone: it is asked every second.

    Raises `RunDirectoryError` for a damaged line.
    """
    path = folder / METRICS
    if not path.is_file():
        return 0
    with disk_errors(path, "read"), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL))
        lines = file.read().split(b"\n")[:-1]  # behind the last end of line stands what is being written
    try:
        return int(json.loads(lines[-1])["step"]) if lines else 0
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise RunDirectoryError(f"the last line of '{path}' is damaged ({error}): restore it from a backup") from error


@contextmanager
def serving(followed: Followed, port: int):
    """Make the first page, serve until the block is left; gives the address. Raises `ConfigError` where the port is taken."""
    try:
        server = ThreadingHTTPServer((HOST, port), _handler(followed))
    except OSError as error:
        raise ConfigError(
            f"cannot listen on port {port} of this machine ({error.strerror}): choose another with --port N, or 0 for any"
        ) from error
    ended = threading.Event()
    with server:
        followed.renew()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        threading.Thread(target=followed.follow, args=(ended,), daemon=True).start()
        try:
            yield f"http://{HOST}:{server.server_port}/"
        finally:
            ended.set()
            server.shutdown()


def _handler(followed: Followed) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 30

        def do_GET(self) -> None:
            host = self.headers.get("Host", "").partition(":")[0]
            path = self.path.partition("?")[0]
            if host not in (HOST, "localhost"):
                self._answer(HTTPStatus.FORBIDDEN, "text/plain", "this server answers 127.0.0.1 alone")
            elif path == "/":
                self._answer(HTTPStatus.OK, "text/html", followed.html)
            elif path == "/version":
                self._answer(HTTPStatus.OK, "application/json", json.dumps(followed.status()))
            else:
                self._answer(HTTPStatus.NOT_FOUND, "text/plain", "there is only the page")

        def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
            body = text.encode("utf-8", "backslashreplace")
            self.send_response(status)
            headers = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body)), "Cache-Control": "no-store"}
            for name, value in {**headers, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"}.items():
                self.send_header(name, value)
            with suppress(ConnectionError):  # a tab that was closed meanwhile
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *_: object) -> None:
            """Nothing: a line every two seconds tells nobody anything."""

    return Handler
