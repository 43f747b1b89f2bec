"""`populora doctor`: its checks are real, and a failing one is said and changes the exit code."""

from __future__ import annotations

import pytest

from populora.cli import doctor
from populora.cli.main import main
from populora.core.errors import BaseModelError


def test_report_names_versions_and_sandbox_and_fails_with_a_failing_check(monkeypatch, capsys):
    def missing() -> str:
        raise BaseModelError("expected the tiny base, found none")

    monkeypatch.setattr(doctor, "_tiny_base", missing)
    monkeypatch.setattr(doctor, "_sandbox", lambda: "tier standard")
    assert main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert "torch 2" in text and "tier standard" in text and "fail" in text and "found none" in text
    monkeypatch.setattr(doctor, "_tiny_base", lambda: "fine")
    assert main(["doctor"]) == 0


def test_sandbox_check_states_the_tier_of_this_machine():
    from populora.sandbox.layers import isolation

    found = isolation(allow_weak=True)
    if found.tier == "weak":
        pytest.skip("this machine has no strong sandbox; the check raises, as training does")
    assert f"tier {found.tier}" in doctor._sandbox() and "seccomp" in doctor._sandbox()
