"""Which tier a machine gets, and that less than standard is refused unless accepted."""

import shutil
import subprocess
import sys
import sysconfig

import pytest

from populora.core.errors import SandboxUnavailableError
from populora.sandbox import layers

HOLDING = {"namespaces": (True, "a"), "landlock": (True, "b"), "seccomp": (True, "c"), "limits": (True, "d")}


def machine(monkeypatch, *missing):
    monkeypatch.setattr(layers, "probe_layers", lambda _: HOLDING | {layer: (False, f"no {layer}") for layer in missing})


@pytest.mark.parametrize(
    ("missing", "tier"),
    [
        ((), "full"),
        (("namespaces",), "standard"),
        (("landlock",), "standard"),
        (("seccomp",), "weak"),
        (("namespaces", "landlock"), "weak"),
    ],
)
def test_the_tier_is_what_the_machine_gives(monkeypatch, missing, tier):
    machine(monkeypatch, *missing)
    chosen = layers.isolation(allow_weak=True)
    assert chosen.tier == tier
    assert chosen.report == {layer: f"off: no {layer}" if layer in missing else f"on: {detail}" for layer, (_, detail) in HOLDING.items()}


@pytest.mark.parametrize(
    ("missing", "tier", "message"),
    [
        (("namespaces", "landlock", "seccomp"), None, r"landlock: no landlock.*seccomp: no seccomp.*sandbox\.allow_weak = true"),
        (("namespaces",), "full", "lacks: namespaces"),
        ((), "weak", "allow_weak"),  # asked for, but not accepted
    ],
)
def test_a_tier_that_is_weak_or_not_there_is_refused_with_what_is_missing_and_what_to_do(monkeypatch, missing, tier, message):
    machine(monkeypatch, *missing)
    with pytest.raises(SandboxUnavailableError, match=message):
        layers.isolation(tier=tier)


@pytest.mark.parametrize(("missing", "layer"), [(("landlock",), "namespaces"), (("namespaces",), "landlock"), ((), "landlock")])
def test_the_tier_standard_has_landlock_or_namespaces(monkeypatch, missing, layer):
    machine(monkeypatch, *missing)
    assert layers.isolation(tier="standard").layers == {layer, "seccomp", "limits"}


def test_a_probe_that_could_not_run_is_made_again(monkeypatch):
    def broken(*arguments, **options):
        raise OSError("Too many open files")

    monkeypatch.setattr(layers, "_PROBED", {})
    with monkeypatch.context() as patched:
        patched.setattr(layers.subprocess, "run", broken)
        assert not any(holds for holds, _ in layers.probe_layers(None).values())
    assert layers.probe_layers(None)["limits"][0]


@pytest.mark.skipif(not layers.probe_layers(shutil.which("bwrap"))["namespaces"][0], reason="needs bubblewrap and user namespaces")
def test_namespaces_alone_hide_all_installed_packages(tmp_path):
    """Those of the trainer's virtual environment, and those beside the standard library."""
    command, environment = layers.interpreter_command([], bubblewrap=shutil.which("bwrap"))
    bases = [sysconfig.get_path("purelib", vars={"base": sys.base_prefix}), sysconfig.get_path("purelib")]
    seen = "[p for p in ('torch', 'pip', 'numpy') for b in bases if os.path.exists(os.path.join(b, p))]"
    script = f"import os; bases = {bases!r}; print({seen}, [b for b in bases if os.path.isdir(b) and os.listdir(b)])"
    inside = [*command[: command.index("-P")], "-S", "-c", script]
    done = subprocess.run(inside, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "[] []\n"


@pytest.mark.parametrize("visible", [True, False])
def test_bubblewrap_mounts_no_library_that_is_visible_already(tmp_path, monkeypatch, visible):
    """With the headers of Python, Debian has symbolic links to its library in /usr/lib, on which bubblewrap 0.12 refuses to mount."""
    (tmp_path / "libpython3.99.so").symlink_to("libpython3.99.so.1")
    monkeypatch.setattr(layers.sysconfig, "get_config_var", lambda name: str(tmp_path))
    if visible:
        monkeypatch.setattr(layers, "_LIBRARIES", (str(tmp_path.parent),))
    command, _ = layers.interpreter_command([], bubblewrap="bwrap")
    assert (str(tmp_path / "libpython3.99.so") in command) is not visible


def test_the_probe_tries_what_is_forbidden():
    assert layers._probe("landlock", None)[0] == layers.probe_layers(None)["landlock"][0]
    assert layers.probe_layers(None)["limits"] == (True, "memory, CPU time, files, processes")
    assert layers.probe_layers(None)["namespaces"] == (False, "bwrap is not on PATH: install bubblewrap")


def test_a_broken_bubblewrap_is_no_layer(tmp_path):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'Creating new namespace failed' >&2\nexit 1\n")
    fake.chmod(0o755)
    assert layers._probe("namespaces", str(fake)) == (False, "the probe failed: Creating new namespace failed")
