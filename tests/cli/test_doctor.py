"""`populora doctor`: its checks are real, and a failing one is said and changes the exit code."""

from types import SimpleNamespace

import populora.domains.conformance  # noqa: F401  it takes `isolation` by name, before a test puts another in its place
from populora.cli import doctor
from populora.cli.main import main
from populora.core.errors import BaseModelError


def test_report_names_versions_and_sandbox_and_fails_with_a_failing_check(monkeypatch, capsys):
    def missing() -> str:
        raise BaseModelError("expected the tiny base, found none")

    monkeypatch.setattr(doctor, "_tiny_base", missing)
    monkeypatch.setattr("populora.sandbox.layers.isolation", lambda: SimpleNamespace(tier="standard", report={"seccomp": "works"}))
    assert main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert "torch 2" in text and "tier standard" in text and "seccomp: works" in text and "fail" in text and "found none" in text
    monkeypatch.setattr(doctor, "_tiny_base", lambda: "fine")
    assert main(["doctor"]) == 0


def test_another_project_of_the_same_name_is_a_failure(monkeypatch, capsys, tmp_path):
    (tmp_path / "populora-0.4.5.dist-info").mkdir()
    (tmp_path / "populora-0.4.5.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: populora\nVersion: 0.4.5\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["doctor"]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "pip knows as populora 0.4.5 is installed, too" in text and "`pip uninstall populora populora-selfplay`" in text


def test_report_names_what_computes_and_why_it_is_not_c(monkeypatch, capsys):
    monkeypatch.setattr("populora.engine.sampling.decoder_pool.prepare", lambda adapted: "there is no C compiler")
    assert main(["doctor"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "decoding on the CPU by torch (there is no C compiler)" in text and "products on the CPU by " in text
