"""What `populora watch` with an open page costs the training that it follows.

    python benchmarks/page/watching.py configs/tiny_4t4s.toml [--beside runs/tiny_4t4s] [--steps 20] [--rounds 2]

Trains; for `--steps` steps at a time a page is open, then closed, in the order no, yes, yes, no, so that a drift of the steps is in both. A
step in which a page was opened or closed counts for neither. Finished runs `--beside` it make the page as heavy as that of a long run. The
page's place is taken by a client that asks as the page does; a browser's own work is not measured. Writes watching.json beside this file.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from threading import Event, Thread

from populora.core.installed import processor, versions

POPULORA = [sys.executable, "-m", "populora.cli.main"]
ASKS = 2.0
"""Seconds between a page's questions, as in its script."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--beside", type=Path, nargs="*", default=[])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "watching.json")
    chosen = parser.parse_args()
    order = [watched for place in range(chosen.rounds) for watched in ([False, True] if place % 2 == 0 else [True, False])]
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch, "run")
        with training(chosen.config, run) as process:
            until(run, 2, process)
            stretches = [stretch(run, chosen, watched, process) for watched in order]
    results = {
        "machine": {"processor": processor(), "cores": os.cpu_count()},
        "versions": versions(("populora",)),
        "config": chosen.config.name,
        "runs_beside": len(chosen.beside),
        "stretches": stretches,
        "ratio": ratio(stretches),
    }
    chosen.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(results, indent=2))


def ratio(stretches: list[dict]) -> float:
    """Mean seconds of a step that is watched, over those of one that is not."""
    mean = {
        watched: statistics.fmean(second for one in stretches if one["watched"] is watched for second in one["seconds"])
        for watched in (False, True)
    }
    return round(mean[True] / mean[False], 4)


@contextmanager
def training(config: Path, run: Path) -> Iterator[subprocess.Popen]:
    """A training that is stopped when the block is left."""
    command = [*POPULORA, "train", str(config), "--steps", "100000", "--out", str(run)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def seconds(run: Path) -> list[float]:
    """Of every finished step."""
    file = run / "timings.jsonl"
    return [json.loads(line)["seconds/step"] for line in file.read_text().splitlines()] if file.is_file() else []


def until(run: Path, steps: int, process: subprocess.Popen) -> None:
    """Wait for as many finished steps; ends the benchmark where the training has ended before."""
    while len(seconds(run)) < steps:
        if process.poll() is not None:
            raise SystemExit(f"the training ended with exit code {process.returncode}: run it by hand to see why")
        time.sleep(0.2)


def stretch(run: Path, chosen: argparse.Namespace, watched: bool, process: subprocess.Popen) -> dict:
    """So many steps, watched or not, behind one in which that changes."""
    before = len(seconds(run)) + 1
    if not watched:
        until(run, before + chosen.steps, process)
        return {"watched": False, "seconds": rounded(run, before, chosen.steps)}
    command = [*POPULORA, "watch", str(run), *map(str, chosen.beside), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    said = server.stdout.readline() if server.stdout else ""
    port = re.match(r"http://127\.0\.0\.1:(\d+)/", said)
    if not port:
        raise SystemExit(f"populora watch gave no address but {said!r}: run it by hand to see why")
    closed, pages = Event(), []
    page = Thread(target=follow, args=(int(port[1]), closed, pages))
    page.start()
    before = len(seconds(run)) + 1  # the first page is made: what follows is the steady state
    until(run, before + chosen.steps, process)
    closed.set()
    page.join()
    server.terminate()  # an interrupt would not reach it where this script was started in the background
    _, _, used = os.wait4(server.pid, 0)
    found = {"watched": True, "seconds": rounded(run, before, chosen.steps), "pages": len(pages)}
    return {**found, "megabytes": round(max(pages) / 1e6, 2), "server_cpu_seconds": round(used.ru_utime + used.ru_stime, 1)}


def rounded(run: Path, first: int, count: int) -> list[float]:
    return [round(one, 2) for one in seconds(run)[first : first + count]]


def asked(port: int, path: str) -> bytes:
    """What the server answers."""
    connection = HTTPConnection("127.0.0.1", port)
    connection.request("GET", path)
    answer = connection.getresponse().read()
    connection.close()
    return answer


def follow(port: int, closed: Event, pages: list[int]) -> None:
    """What an open page does: asks for the version, and takes the page where it is another; notes the bytes of each."""
    version = None
    while not closed.wait(ASKS):
        now = json.loads(asked(port, "/version"))["version"]
        if now != version:
            pages.append(len(asked(port, "/")))
            version = now


if __name__ == "__main__":
    main()
