"""A model behind an OpenAI-compatible API, in this process."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server(ThreadingHTTPServer):
    """Answers with the upper-case prompt; the requests in ``failing`` (by what the prompt contains) get that status instead.

    ``choice`` changes the choice of an answer, ``body`` replaces all of it.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[tuple[str, dict, str]] = []
        self.failing: dict[str, int] = {}
        self.reply = "{prompt}"
        self.body: bytes | None = None
        self.choice: dict = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server: Server = self.server  # type: ignore[assignment]
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.requests.append((self.path, sent, self.headers["Authorization"]))
        prompt = sent["prompt"] if "prompt" in sent else sent["messages"][0]["content"]
        status = next((status for part, status in server.failing.items() if part in prompt), 200)
        text = server.reply.replace("{prompt}", prompt.upper())
        choice = {"text": text} if "prompt" in sent else {"message": {"role": "assistant", "content": text}}
        answer = {
            "id": "1", "object": "made", "created": 1, "model": sent["model"],
            "choices": [{"index": 0, "finish_reason": "length", **(server.choice or choice)}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        }  # fmt: skip
        body = json.dumps(answer if status == 200 else {"error": {"message": "made to fail"}}).encode()
        body = body if server.body is None else server.body
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served() -> Iterator[Server]:
    """A server that answers while the block runs."""
    with Server() as made:
        threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
        yield made
        made.shutdown()
