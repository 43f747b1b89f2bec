"""Who may write into a run directory: free folders, locks, other configurations, refusing disks."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from populora.core import files
from populora.core.config import Config
from populora.core.errors import RunDirectoryError
from populora.core.files import json_bytes, read_json, remove_folder, write_file, write_folder
from populora.runs.directory import (
    FACTS,
    changed_versions,
    check_free,
    differences,
    free_folder,
    locked,
    new_run,
    open_run,
    read_config,
)


def test_new_run_writes_resolved_settings_and_facts(tmp_path: Path):
    config = replace(Config(), seed=7)
    with new_run(tmp_path / "deep" / "run", config, {"sandbox": "standard"}):
        pass
    facts = json.loads((tmp_path / "deep" / "run" / "run.json").read_text())
    assert read_config(tmp_path / "deep" / "run") == config
    assert facts["sandbox"] == "standard" and facts["versions"]["torch"] and len(facts["config_sha256"]) == 64


def test_a_run_that_is_older_than_a_setting_opens_with_its_default(tmp_path: Path):
    with new_run(tmp_path / "run", Config(seed=7), {}):
        pass
    older = {name: value for name, value in read_json(tmp_path / "run" / "config.json").items() if name != "track"}
    write_file(tmp_path / "run" / "config.json", json_bytes(older))
    write_file(tmp_path / "run" / FACTS, json_bytes({"config_sha256": hashlib.sha256(json_bytes(older)).hexdigest()}))
    with open_run(tmp_path / "run") as config:
        assert config == Config(seed=7)
    del older["seed"]  # but what it had is not taken away
    write_file(tmp_path / "run" / "config.json", json_bytes(older))
    with pytest.raises(RunDirectoryError, match="not the configuration this run began with"), open_run(tmp_path / "run"):
        pass


def test_same_configuration_is_told_to_resume_and_another_what_differs(tmp_path: Path):
    with new_run(tmp_path / "run", Config(), {}):
        pass
    with pytest.raises(RunDirectoryError, match="populora resume"):
        check_free(tmp_path / "run", Config())
    with pytest.raises(RunDirectoryError, match=r"another configuration .seed: 0 there, 3 asked"):
        check_free(tmp_path / "run", replace(Config(), seed=3))


def test_folder_with_foreign_files_is_refused_and_untouched(tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(RunDirectoryError, match=r"not empty .it holds 'thesis.tex'"), new_run(tmp_path, Config(), {}):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_is_no_run_directory(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirectoryError, match="is a file"):
        check_free(tmp_path / "file", Config())
    with pytest.raises(RunDirectoryError, match="not a run directory"):
        read_config(tmp_path)


def test_a_path_that_safetensors_cannot_read_is_refused_before_anything_is_written(tmp_path: Path):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    with pytest.raises(RunDirectoryError, match="is not UTF-8: choose a folder"), new_run(folder / "run", Config(), {}):
        pass
    assert not folder.exists()


def test_creation_that_was_killed_before_its_settings_leaves_the_folder_free(tmp_path: Path):
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "config.json.part").write_text("{")
    with new_run(tmp_path, Config(), {}):
        pass
    assert read_config(tmp_path) == Config()


def test_lock_names_its_holder_and_ends_with_a_killed_process(tmp_path: Path):
    holding = "import sys, time\nfrom pathlib import Path\nfrom populora.runs.directory import locked\n"
    holding += "with locked(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(60)\n"
    child = subprocess.Popen([sys.executable, "-c", holding, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout and child.stdout.readline() == "held\n"
    with pytest.raises(RunDirectoryError, match=f"in use by process {child.pid}"), locked(tmp_path):
        pass
    child.send_signal(signal.SIGKILL)
    child.wait()
    with locked(tmp_path):
        assert (tmp_path / "lock").read_text() == str(os.getpid())


def test_two_holders_in_one_process_are_refused_too(tmp_path: Path):
    with locked(tmp_path), pytest.raises(RunDirectoryError, match="in use"), locked(tmp_path):
        pass


def test_edited_settings_are_not_resumed(tmp_path: Path):
    with new_run(tmp_path / "run", Config(), {}):
        pass
    with open_run(tmp_path / "run") as config:
        assert config == Config()
    text = (tmp_path / "run" / "config.json").read_text()
    (tmp_path / "run" / "config.json").write_text(text.replace('"seed": 0', '"seed": 1'))
    with pytest.raises(RunDirectoryError, match="not the configuration this run began with"), open_run(tmp_path / "run"):
        pass


def test_damaged_settings_are_named(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"seed": ')
    with pytest.raises(RunDirectoryError, match=r"config.json' is not valid JSON"):
        read_config(tmp_path)


@pytest.mark.parametrize(("code", "remedy"), [(errno.ENOSPC, "free some space"), (errno.EACCES, "may write"), (errno.EIO, "Check the")])
def test_refusing_disk_is_one_error_with_path_and_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, remedy: str):
    write_file(tmp_path / "state", b"old")

    def refuse(_descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(files.os, "fsync", refuse)
    with pytest.raises(RunDirectoryError, match=remedy) as caught:
        write_file(tmp_path / "state", b"new")
    assert str(tmp_path / "state") in str(caught.value)
    assert (tmp_path / "state").read_bytes() == b"old"


def test_disk_that_is_really_full_keeps_the_old_file(tmp_path: Path):
    """A file size limit in a child process: the write itself fails half-way, as on a full disk."""
    (tmp_path / "state").write_bytes(b"old")
    writing = "import resource, sys\nfrom pathlib import Path\nfrom populora.core.errors import RunDirectoryError\n"
    writing += "from populora.core.files import write_file\nresource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
    writing += "try:\n    write_file(Path(sys.argv[1]), b'x' * 10000)\nexcept RunDirectoryError as error:\n    print(error)\n"
    done = subprocess.run([sys.executable, "-c", writing, str(tmp_path / "state")], capture_output=True, text=True, check=True)
    assert "free some space" in done.stdout
    assert (tmp_path / "state").read_bytes() == b"old"


def test_folders_appear_and_vanish_whole(tmp_path: Path):
    (tmp_path / "step.part").mkdir()
    (tmp_path / "step.part" / "left_over").write_text("of a killed writer")
    write_folder(tmp_path / "step", {"a": b"1", "b": b"2"})
    assert sorted(path.name for path in (tmp_path / "step").iterdir()) == ["a", "b"]
    with pytest.raises(RunDirectoryError):
        write_folder(tmp_path / "step", {"a": b"3"})
    assert (tmp_path / "step" / "a").read_bytes() == b"1"
    remove_folder(tmp_path / "step")
    assert not (tmp_path / "step").exists()


def test_default_folders_are_numbered(tmp_path: Path):
    assert free_folder(tmp_path, "tiny") == tmp_path / "tiny"
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny-2").mkdir()
    assert free_folder(tmp_path, "tiny") == tmp_path / "tiny-3"


def test_differences_name_nested_settings():
    other = replace(Config(), evolution=replace(Config().evolution, every=5))
    assert differences(Config(), other) == ["evolution.every: 10 there, 5 asked"]
    assert differences(Config(), Config()) == []


def test_what_was_installed_in_another_version_is_named(tmp_path: Path):
    with new_run(tmp_path / "run", Config(), {}):
        pass
    assert changed_versions(tmp_path / "run") == []
    facts = read_json(tmp_path / "run" / FACTS)
    write_file(tmp_path / "run" / FACTS, json_bytes({**facts, "versions": {**facts["versions"], "torch": "1.13"}}))
    (change,) = changed_versions(tmp_path / "run")
    assert change.startswith("torch 1.13, now 2.")
