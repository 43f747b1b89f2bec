"""What the first-run experiment reads from one finished run: its curves by step, and numbers about the whole of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from populora.analysis.complexity import fingerprint
from populora.heldout import load_held_out
from populora.runlog.directory import read_config
from populora.runlog.files import read_json
from populora.runlog.journal import read_log
from populora.runlog.records import read_table
from populora.tasks.parsing import reasons

Log = list[dict[str, float]]
"""A line a step."""


def read_run(folder: Path) -> Log:
    """The metrics of a finished run, with those that only its tables tell."""
    log, steps = read_log(folder), read_config(folder).steps
    if len(log) != steps:
        raise SystemExit(f"{folder} has {len(log)} of {steps} steps: `populora resume {folder}` finishes it, or move it away")
    return [line | _held_out_tokens(line) | _from_tables(folder, int(line["step"])) for line in log]


def check_alike(folders: list[Path]) -> None:
    """Refuse to compare runs of different bases, prompts, lengths or suites."""
    for folder in folders[1:]:
        if (ours := _conditions(folder)) != (first := _conditions(folders[0])):
            raise SystemExit(f"{folder} is not comparable with {folders[0]}: {ours} against {first}. Move one of them away")


def _conditions(folder: Path) -> dict[str, Any]:
    config, facts = read_config(folder), read_json(folder / "run.json")
    return {"base": facts["base_sha256"], "prompts": facts["prompts"], "steps": config.steps, "evaluation": config.evaluation}


def _held_out_tokens(line: dict[str, float]) -> dict[str, float]:
    members = [value for name, value in line.items() if name.startswith("held_out/") and name.endswith("/tokens")]
    return {"held_out/tokens": float(np.mean(members))} if members else {}


def _from_tables(folder: Path, step: int) -> dict[str, float]:
    """Entropy (nats, mean over tokens) of proposals and answers, and how many answers to code_i and code_o reason."""
    attempts = read_table(folder, "attempts", [step])
    counted = attempts.filter(pc.invert(pc.or_(attempts["void"], attempts["filled"]))).to_pydict()
    tables = {"proposals": read_table(folder, "proposals", [step]).to_pydict(), "attempts": counted}
    found = {f"{name}/entropy": float(np.average(of["entropy"], weights=of["response_tokens"])) for name, of in tables.items()}
    answers = [text for text, task in zip(counted["text"], counted["task"], strict=True) if task != "code_f"]
    return found | {"attempts/reasoning": float(np.mean([reasons(text) for text in answers]))}


def coverage_at(log: Log, programs: float) -> float:
    """Coverage of the archive when it had seen so many programs: larger populations write more of them a step."""
    seen, covered = zip(*((line["archive/total_problems"], line["archive/coverage"]) for line in log), strict=True)
    return round(float(np.interp(programs, seen, covered)), 5)


def suite_programs_proposed(folder: Path) -> int:
    """How many programs of the held-out suite the run's teachers wrote themselves: nothing keeps them from it."""
    suite = {fingerprint(problem.program) for problem in load_held_out(read_config(folder).base, 216)}
    written = pc.unique(read_table(folder, "proposals")["fingerprint"]).to_pylist()
    return len(suite.intersection(written))
