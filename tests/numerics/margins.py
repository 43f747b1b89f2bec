"""Measure how much of its tolerance each comparison of the tests uses: a pytest plugin.

    python tests/numerics/margins.py [TESTS …]      by default the tests of numerics; the 40 tightest comparisons, tightest first

It sees `torch.testing.assert_close` and `numpy.testing.assert_allclose`, asserted ``error < bound`` for bounds of at most `LARGEST`, and
``value == pytest.approx(…)``. A comparison that uses more than half of its tolerance here can fail on another processor.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

LARGEST = 1e-2
_NUMBER = r"(-?\d+(?:\.\d+)?(?:e-?\d+)?)"
_LESS = re.compile(rf"^\(?{_NUMBER} <=? {_NUMBER}$")
_APPROX = re.compile(rf"^\(?{_NUMBER} == {_NUMBER} ± {_NUMBER}$")
_shares: dict[str, float] = {}


def pytest_configure() -> None:
    close, allclose = torch.testing.assert_close, np.testing.assert_allclose

    def assert_close(actual: Any, expected: Any, *args: Any, rtol: float | None = None, atol: float | None = None, **kwargs: Any) -> None:
        if rtol is not None and atol is not None and isinstance(actual, torch.Tensor) and isinstance(expected, torch.Tensor):
            _note(_share(actual.detach().double().numpy(), expected.detach().double().numpy(), rtol, atol))
        close(actual, expected, *args, rtol=rtol, atol=atol, **kwargs)

    def assert_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 0.0, **kwargs: Any) -> None:
        _note(_share(np.asarray(actual, float), np.asarray(desired, float), rtol, atol))
        allclose(actual, desired, rtol=rtol, atol=atol, **kwargs)

    torch.testing.assert_close, np.testing.assert_allclose = assert_close, assert_allclose


def pytest_assertion_pass(item: pytest.Item, lineno: int, expl: str) -> None:
    for part in re.split(r"\) and \(| and ", expl.splitlines()[0]):
        if (less := _LESS.match(part)) and 0.0 < float(less[2]) <= LARGEST:
            _record(f"{item.path.relative_to(item.config.rootpath)}:{lineno}", float(less[1]) / float(less[2]))
        if approx := _APPROX.match(part):
            value, expected, bound = map(float, approx.groups())
            _record(f"{item.path.relative_to(item.config.rootpath)}:{lineno}", abs(value - expected) / bound if bound else 0.0)


def pytest_sessionfinish() -> None:
    if folder := os.environ.get("POPULORA_MARGINS"):
        Path(folder, f"{os.getpid()}.json").write_text(json.dumps(_shares))


def _share(actual: np.ndarray, expected: np.ndarray, rtol: float, atol: float) -> float:
    with np.errstate(all="ignore"):
        shares = np.abs(actual - expected) / (atol + rtol * np.abs(expected))
    return float(np.nanmax(shares, initial=0.0))


def _note(share: float) -> None:
    frame = next(frame for frame in reversed(traceback.extract_stack()) if "/tests/" in frame.filename and frame.filename != __file__)
    _record(f"tests/{frame.filename.partition('/tests/')[2]}:{frame.lineno}", share)


def _record(place: str, share: float) -> None:
    _shares[place] = max(share, _shares.get(place, 0.0))


def main() -> None:
    from run_variants import FILES, FOLDERS, TESTS

    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "POPULORA_MARGINS": folder, "PYTHONPYCACHEPREFIX": f"{folder}/cache"}  # assertions are compiled anew
        options = ["-q", "-n", "auto", "--dist", "loadfile", "-p", "margins", "-o", "enable_assertion_pass_hook=true"]
        subprocess.run(
            [sys.executable, "-m", "pytest", *options, *(sys.argv[1:] or (*FOLDERS, *FILES))], check=False, cwd=TESTS, env=environment
        )
        shares: dict[str, float] = {}
        for file in Path(folder).glob("*.json"):
            for place, share in json.loads(file.read_text()).items():
                shares[place] = max(share, shares.get(place, 0.0))
    print(f"{len(shares)} comparisons")
    for place, share in sorted(shares.items(), key=lambda pair: -pair[1])[:40]:
        print(f"{share:8.3f}  {place}")


if __name__ == "__main__":
    main()
