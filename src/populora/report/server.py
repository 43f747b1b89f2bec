"""Serve the report of a run in training on loopback, rebuilt as the run goes on.

An open page polls ``version`` every two seconds. A poll rebuilds the page if the run has finished a step since. Nothing else is served, and
nothing to a request that names another host, because a page of another site could make a browser send one.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from populora.core.errors import ConfigError, PopuloraError
from populora.runs.metrics_log import METRICS

HOST = "127.0.0.1"
PAUSE_FACTOR, MIN_PAUSE = 5.0, 10.0  # of the last build's seconds; seconds


class LivePage:
    """The page of a run in training. ``build`` makes the page of a version."""

    def __init__(self, run: Path, build: Callable[[str], str]):
        self._log, self._build = run / METRICS, build
        self._lock, self._next_build = threading.Lock(), 0.0
        self.html, self.version, self.error = "", "", ""

    def rebuild(self) -> None:
        started, version = time.monotonic(), self._current_version()
        try:
            self.html, self.version = self._build(version), version
        finally:
            self._next_build = time.monotonic() + max(MIN_PAUSE, PAUSE_FACTOR * (time.monotonic() - started))

    def poll(self) -> dict[str, str]:
        """Rebuild the page if it is stale; return its version and a status line. A page that cannot be rebuilt stays as it is."""
        if self._lock.acquire(blocking=False):  # else another tab's poll is rebuilding it
            try:
                if self.is_stale() and time.monotonic() >= self._next_build:
                    self.rebuild()
                    self.error = ""
            except Exception as error:  # noqa: BLE001 the server goes on, and the page says why it is old
                self.error = str(error) if isinstance(error, PopuloraError) else f"{type(error).__name__}: {error}"
            finally:
                self._lock.release()
        return {"version": self.version, "text": self._status()}

    def is_stale(self) -> bool:
        return self._current_version() != self.version

    def _current_version(self) -> str:
        return str(self._log.stat().st_mtime_ns) if self._log.is_file() else "0"

    def _status(self) -> str:
        if self.error:
            return f"cannot rebuild this page: {self.error}"
        if not self._log.is_file():
            return "no step is finished yet"
        minutes = int((time.time() - self._log.stat().st_mtime) / 60)
        finished = f"last step finished {minutes} min ago" if minutes else "last step finished just now"
        return finished + (", this page is older" if self.is_stale() else "")


@contextmanager
def serve_page(page: LivePage, port: int) -> Iterator[str]:
    """Build the first page, serve until the block ends, and yield the address. Raises `ConfigError` if the port is taken."""
    try:
        server = ThreadingHTTPServer((HOST, port), _handler(page))
    except OSError as error:
        raise ConfigError(f"cannot listen on port {port} ({error.strerror}): choose another with --port N, or 0 for any") from error
    with server:
        page.rebuild()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://{HOST}:{server.server_port}/"
        finally:
            server.shutdown()


def _handler(page: LivePage) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 30

        def do_GET(self) -> None:
            host = self.headers.get("Host", "").partition(":")[0]
            path = self.path.partition("?")[0]
            if host not in (HOST, "localhost"):
                self._reply(HTTPStatus.FORBIDDEN, "text/plain", "this server answers 127.0.0.1 alone")
            elif path == "/":
                self._reply(HTTPStatus.OK, "text/html", page.html)
            elif path == "/version":
                self._reply(HTTPStatus.OK, "application/json", json.dumps(page.poll()))
            else:
                self._reply(HTTPStatus.NOT_FOUND, "text/plain", "there is only the page")

        def _reply(self, status: HTTPStatus, kind: str, text: str) -> None:
            body = text.encode("utf-8", "backslashreplace")
            self.send_response(status)
            headers = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body)), "Cache-Control": "no-store"}
            for name, value in {**headers, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"}.items():
                self.send_header(name, value)
            with suppress(ConnectionError):  # the tab was closed meanwhile
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *_: object) -> None:
            """Print nothing."""

    return Handler
