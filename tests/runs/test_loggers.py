"""Trackers, with the real libraries and without a network: what is read back is what the files say, after a kill too."""

import json
import math
import os
import sqlite3
import struct
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
import tracked_steps

from populora.core.installed import versions
from populora.runs import loggers
from populora.runs.metrics_log import METRICS, TIMINGS, read_log

INSTALLED = [name for name in loggers.LOGGERS if versions((name,))[name] != "not installed"]
REAL = [
    pytest.param(name, marks=pytest.mark.skipif(name not in INSTALLED, reason=f"{name} is not installed: make test-track"))
    for name in loggers.LOGGERS
]


def part_of_a_run(folder: Path, name: str, first: int, last: int, end: str) -> None:
    folder.mkdir(exist_ok=True)
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("WANDB_", "TRACKIO_"))}
    command = [sys.executable, tracked_steps.__file__, str(folder), name, str(first), str(last), end]
    environment = {**inherited, "PYTHONPATH": os.pathsep.join(sys.path), "WANDB_MODE": "offline"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == (-9 if end == "killed" else 0), done.stderr
    assert "failed" not in done.stderr, done.stderr


def of_tensorboard(folder: Path) -> list[tuple[int, dict[str, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    assert '"seed": ' in events.Tensors("settings/text_summary")[0].tensor_proto.string_val[0].decode()
    rows: dict[int, dict[str, float]] = {}
    for tag in events.Tags()["scalars"]:
        steps = [event.step for event in events.Scalars(tag)]
        assert len(set(steps)) == len(steps)
        for event in events.Scalars(tag):
            rows.setdefault(event.step, {})[tag] = event.value
    return sorted(rows.items())


def of_trackio(folder: Path) -> list[tuple[int, dict[str, float]]]:
    with closing(sqlite3.connect(folder / "trackio" / "populora.db")) as database:  # its own reader is bound to one folder a process
        assert len(database.execute("SELECT DISTINCT run_id FROM metrics").fetchall()) == 1
        assert '"seed":' in database.execute("SELECT CAST(config AS TEXT) FROM configs").fetchone()[0]
        rows = database.execute("SELECT step, metrics FROM metrics ORDER BY id").fetchall()
    return [(step, json.loads(values)) for step, values in rows]


def of_wandb(folder: Path) -> list[tuple[int, dict[str, float]]]:
    from wandb.proto.wandb_internal_pb2 import Record

    rows, ids = [], set()
    for file in sorted((folder / "wandb").glob("offline-run-*/*.wandb")):
        for data in framed(file.read_bytes()):
            record = Record.FromString(data)
            if record.WhichOneof("record_type") == "run":
                ids.add(record.run.run_id)
                assert "seed" in {item.key for item in record.run.config.update}
            if record.WhichOneof("record_type") == "history":
                row = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
                rows.append((row["_step"], {key: value for key, value in row.items() if not key.startswith("_")}))
    assert len(ids) == 1
    return rows


def framed(data: bytes):
    """Records of a W&B file, which no public function reads: LevelDB's log format, blocks of 32 KiB after a header of 7 bytes."""
    at, whole = 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        whole += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # a whole record, or its last part
            yield whole
            whole = b""


READERS = {"tensorboard": of_tensorboard, "trackio": of_trackio, "wandb": of_wandb}


def as_in_the_files(folder: Path, name: str) -> None:
    """Every step once, in order, with every value of the files."""
    lines = [{**metrics, **timings} for metrics, timings in zip(read_log(folder, METRICS), read_log(folder, TIMINGS), strict=True)]
    expected = [(int(line["step"]), {key: value for key, value in line.items() if key != "step"}) for line in lines]
    logged = READERS[name](folder)
    assert [step for step, _ in logged] == [step for step, _ in expected]
    for (_, got), (_, wanted) in zip(logged, expected, strict=True):
        assert set(got) == set(wanted)
        assert all(math.isclose(got[key], wanted[key], rel_tol=1e-6) for key in wanted)  # TensorBoard keeps 32 bits


@pytest.mark.parametrize("name", REAL)
def test_a_run_that_goes_on_goes_on_with_the_same_tracker_run(name, tmp_path):
    part_of_a_run(tmp_path / "a run", name, 1, 3, "closed")
    (tmp_path / "a run").rename(tmp_path / "moved")
    part_of_a_run(tmp_path / "moved", name, 4, 5, "closed")
    as_in_the_files(tmp_path / "moved", name)


@pytest.mark.parametrize("name", REAL[:2])  # W&B may lose what it was given in the last second: see `Wandb`
def test_a_kill_leaves_no_step_out_and_none_twice(name, tmp_path):
    folder = tmp_path / "run"
    part_of_a_run(folder, name, 1, 3, "killed")
    noted = (folder / loggers.TRACKED).read_bytes()
    part_of_a_run(folder, name, 4, 5, "closed")
    (folder / loggers.TRACKED).write_bytes(noted)  # as if the kill had come between the tracker's file and ours
    part_of_a_run(folder, name, 6, 6, "closed")
    as_in_the_files(folder, name)


@pytest.mark.skipif("wandb" not in INSTALLED, reason="wandb is not installed: make test-track")
def test_wandb_without_an_account_is_refused_unless_it_is_offline(tmp_path):
    asked = "from populora.runs.loggers import check_loggers; check_loggers(('wandb',))"
    clean = {key: value for key, value in os.environ.items() if not key.startswith("WANDB_")}
    env = {**clean, "PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(tmp_path), "NETRC": str(tmp_path / "netrc")}
    for mode, said in (("online", "`wandb login`, or WANDB_MODE=offline"), ("offline", "")):
        command, environment = [sys.executable, "-c", asked], {**env, "WANDB_MODE": mode}
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert (said in done.stderr) and ("ConfigError" in done.stderr) == bool(said)


RUN = loggers.LoggedRun(Path("run"), "0123456789ab", "run", {})


@pytest.mark.parametrize(("resumed", "starting_step", "last"), [(True, 3, 2), (True, 0, 0), (True, 9, 5), (False, 0, 5)])
def test_of_a_resumed_wandb_run_the_server_says_what_it_has(resumed, starting_step, last, monkeypatch):
    run = SimpleNamespace(resumed=resumed, starting_step=starting_step)
    library = SimpleNamespace(Settings=lambda **settings: settings, init=lambda **settings: run)
    monkeypatch.setattr(loggers, "import_module", lambda name: library)
    assert loggers.Wandb().open(RUN, 5) == last
