"""Measure how long each tiny preset takes, from the command to its closing summary.

    python benchmarks/bare_machine/presets.py        writes presets.json here; run it on an idle machine

`populora train --list` shows these times rounded up to whole minutes.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from run import processor, seconds

HERE = Path(__file__).parent
PRESETS = ("tiny_1t1s", "tiny_baseline", "tiny", "tiny_4t4s")


def main() -> None:
    times = {}
    populora = str(Path(sys.executable).with_name("populora"))
    for preset in PRESETS:
        with tempfile.TemporaryDirectory() as folder:
            times[preset] = seconds(populora, "train", preset, at=Path(folder))
    results = {"processor": processor(), "seconds": times}
    (HERE / "presets.json").write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
