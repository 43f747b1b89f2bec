"""Reduce a finished run to its conditions, its curves by step, and the number of held-out programs that it proposed.

A Parquet file a run: the comparison can be made again without the hours of training.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from populora.core.config_file import to_mapping
from populora.core.files import read_json
from populora.runs.directory import read_config
from populora.runs.metrics_log import read_log
from populora.runs.tables import read_table
from populora.sandbox.complexity import fingerprint, normal_form
from populora.tasks.parsing import reasons
from populora.training.evaluation import held_out_suite

CURVES = {
    "teacher/loc": "lines of code",
    "teacher/cyclomatic": "cyclomatic complexity",
    "teacher/ast_depth": "AST depth",
    "teacher/variables": "variables",
    "teacher/difficulty": "difficulty (1 - solve rate of the matched student)",
    "teacher/validity": "validity",
    "teacher/duplicates": "programs that the buffer held already",
    "student/solve_rate": "solve rate",
    "student/response_length": "answer tokens",
    "attempts/reasoning": "share of answers that reason (code_i, code_o)",
    "held_out/accuracy": "held-out accuracy, greedy",
    "held_out/tokens": "held-out answer tokens, greedy",
    "archive/coverage": "coverage of the archive",
    "proposals/entropy": "entropy of proposals",
    "attempts/entropy": "entropy of answers",
}
"""Metric and title."""
Curve = list[float | None]
"""A value a step; None where it was not measured."""


def measure(folder: Path) -> dict[str, Any]:
    """Return everything that the comparison uses, as plain values."""
    log = [line | _held_out_tokens(line) | _from_tables(folder, int(line["step"])) for line in read_log(folder)]
    return {
        "conditions": _conditions(folder),
        "held_out_programs_proposed": _suite_programs_proposed(folder),
        "curves": {
            name: [None if (value := line.get(name)) is None else round(value, 5) for line in log]
            for name in ("archive/total_problems", *CURVES)
        },
    }


def write_measured(file: Path, run: dict[str, Any]) -> None:
    """Write the curves as columns, a row a step, and the rest as JSON in the metadata."""
    about = {name: json.dumps(value) for name, value in run.items() if name != "curves"}
    pq.write_table(pa.table(run["curves"]).replace_schema_metadata(about), file, compression="zstd")


def read_measured(file: Path) -> dict[str, Any]:
    """Read what `write_measured` wrote."""
    table = pq.read_table(file)
    about = {name.decode(): json.loads(value) for name, value in (table.schema.metadata or {}).items()}
    return about | {"curves": table.to_pydict()}


def _conditions(folder: Path) -> dict[str, Any]:
    """Return what two compared runs must share: the base, and every setting in which the arms do not differ."""
    settings, facts = to_mapping(read_config(folder)), read_json(folder / "run.json")
    for name in ("seed", "population"):
        del settings[name]
    del settings["learner"]["role_weights"], settings["selfplay"]["buffer_size"]
    return {"base": facts["base_sha256"], "prompts": facts["prompts"], "settings": settings}


def _held_out_tokens(line: dict[str, float]) -> dict[str, float]:
    members = [value for name, value in line.items() if name.startswith("held_out/") and name.endswith("/tokens")]
    return {"held_out/tokens": float(np.mean(members))} if members else {}


def _from_tables(folder: Path, step: int) -> dict[str, float]:
    """Return entropies (nats, mean over tokens) of proposals and answers, and the share of answers to code_i and code_o that reason."""
    attempts = read_table(folder, "attempts", [step])
    counted = attempts.filter(pc.invert(pc.or_(attempts["void"], attempts["filled"]))).to_pydict()
    tables = {"proposals": read_table(folder, "proposals", [step]).to_pydict(), "attempts": counted}
    entropies = {f"{name}/entropy": float(np.average(of["entropy"], weights=of["response_tokens"])) for name, of in tables.items()}
    answers = [text for text, task in zip(counted["text"], counted["task"], strict=True) if task != "code_f"]
    return entropies | {"attempts/reasoning": float(np.mean([reasons(text) for text in answers]))}


def _suite_programs_proposed(folder: Path) -> int:
    """Count the programs of the held-out suite that the run's teachers wrote: nothing keeps them from it."""
    suite = {fingerprint(normal_form(problem.program)) for problem in held_out_suite(read_config(folder))}
    written = pc.unique(read_table(folder, "proposals")["fingerprint"]).to_pylist()
    return len(suite.intersection(written))
