"""Reduce a finished run to what the analysis reads: curves of its training, and what its solvers answer on the suites.

``NAME.parquet`` has a row a step, and the run's facts as JSON in the metadata. ``NAME.answers.parquet`` has a row for each suite, snapshot
and solver with the verdicts of greedy answers in the suite's order, and for the vote the sampled answers to the test suite's problems of
code_o. The two files stay when the run's folder, of some 100 MB, goes.

    python -m benchmarks.claims.measure RUN TARGET SUITE…      `run.py` calls it; TARGET has no ending

Solvers of earlier snapshots, and sampled answers, are for runs that answer the test suite.
"""

import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from benchmarks.claims.protocol import PROTOCOL
from benchmarks.claims.suites import SAMPLES, read_suite
from benchmarks.measuring import commit

from populora.core.config import BaseConfig
from populora.core.files import read_json
from populora.core.installed import processor
from populora.core.types import Problem, TaskType
from populora.runs.checkpoint import load_checkpoint
from populora.runs.directory import read_config
from populora.runs.metrics_log import TIMINGS, read_log
from populora.runs.tables import read_children, read_table
from populora.sandbox.complexity import fingerprint, normal_form
from populora.tasks.parsing import parse_solution
from populora.training.evaluation import load_held_out
from populora.training.loop import build_run
from populora.training.run import Run, restore
from populora.training.solve import solve, solve_request

KEPT = re.compile(
    r"(teacher|student)/(solve_rate|format_rate|difficulty|validity|reward|response_length|entropy|loc|cyclomatic|ast_depth|variables)"
    r"(/[TSA]\d+)?(/code_[iof])?|archive/.*|rating/mu/.*|matchup/.*|tokens/.*|learner/(kl|base_kl)/.*|evolution/.*"
    r"|teacher/(duplicates|rho_zero|rho_one)"
)
"""Metrics of a step that are kept."""


USED = "cpu_seconds.txt"
"""In a run's folder: the CPU time of its processes, a line for each part of the training; nan where it is not known."""


def write_measured(folder: Path, target: Path, suites: Sequence[str]) -> None:
    every = {name: problems_of(name) for name in suites}
    answers = pa.Table.from_pylist(list(answer_rows(folder, every)))
    log, timings = read_log(folder), read_log(folder, TIMINGS)
    names = sorted({name for line in log for name in line if KEPT.fullmatch(name)})
    curves = {name: pa.array([line.get(name) for line in log], pa.float32()) for name in names}
    curves["seconds"] = pa.array([line["seconds/step"] for line in timings], pa.float32())
    facts = {**_facts(folder, every), "cpu_seconds": cpu_seconds(folder), "processor": processor(), "commit": commit()}
    table = pa.table(curves).replace_schema_metadata({name: json.dumps(value) for name, value in facts.items()})
    target.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(answers, f"{target}.answers.parquet", compression="zstd")
    pq.write_table(table, f"{target}.parquet", compression="zstd")  # last: the run counts as measured now


def problems_of(suite: str) -> Sequence[Problem]:
    """Read a suite; that for validation ships with the base."""
    return load_held_out(BaseConfig(path="tiny"), 216) if suite == "validation" else read_suite(suite)


def cpu_seconds(folder: Path) -> float | None:
    """Add up the CPU time of a run. None if that of a part is not known."""
    used = sum(map(float, (folder / USED).read_text().split()))
    return None if math.isnan(used) else used


def _facts(folder: Path, every: Mapping[str, Sequence[Problem]]) -> dict[str, Any]:
    run = read_json(folder / "run.json")
    return {
        "base_sha256": run["base_sha256"],
        "versions": run["versions"],
        "children": [
            {"member": child.member, "born": child.born, "operator": child.operator, "parents": child.parent_names}
            for child in read_children(folder)
        ],
        "contaminated": {name: contaminated(folder, problems) for name, problems in every.items()},
    }


def contaminated(folder: Path, problems: Sequence[Problem]) -> list[int]:
    """List the places of the problems whose program a teacher of the run proposed."""
    written = set(pc.unique(read_table(folder, "proposals", columns=["fingerprint"])["fingerprint"]).to_pylist())
    return [place for place, problem in enumerate(problems) if fingerprint(normal_form(problem.program)) in written]


def answer_rows(folder: Path, every: Mapping[str, Sequence[Problem]]):
    """Let the solvers of each snapshot answer the suites. The validation suite and the votes come last, at the last snapshot."""
    config, last = read_config(folder), read_config(folder).steps
    steps = [step for step in PROTOCOL["snapshots"] if step < last and "test" in every] + [last]
    with build_run(config) as run:
        for step in steps:
            restore(run, load_checkpoint(folder, step))
            run.sync_weights()
            for name, problems in every.items():
                if name != "validation" or step == last:
                    yield from greedy_rows(run, name, problems)
        if "test" in every:
            yield from vote_rows(run, every["test"])


def greedy_rows(run: Run, suite: str, problems: Sequence[Problem]):
    for member in run.population.solvers:
        key = ("claims", suite, member.id)
        attempts = [one for (one,) in solve(run, [solve_request(run, p, member.slot, 1, (*key, p.id)) for p in problems], temperature=0.0)]
        tokens = sum(len(attempt.generation.tokens) for attempt in attempts) / len(attempts)
        yield {
            "suite": suite, "step": run.step, "member": member.id, "tokens": tokens,
            "correct": [attempt.correct for attempt in attempts], "answers": None,
        }  # fmt: skip


def vote_rows(run: Run, problems: Sequence[Problem]):
    """Sample 16 answers of each solver to the problems of code_o. ``answers`` numbers a problem's different answers; 0 is none in form."""
    asked = [problem for problem in problems if problem.task is TaskType.CODE_O]
    numbers: list[dict[str, int]] = [{} for _ in asked]
    for member in run.population.solvers:
        requests = [solve_request(run, problem, member.slot, SAMPLES, ("claims", "vote", member.id, problem.id)) for problem in asked]
        correct, answers = [], []
        for known, attempts in zip(numbers, solve(run, requests), strict=True):
            for attempt in attempts:
                text = "".join((parse_solution(TaskType.CODE_O, attempt.generation.text) or "").split())
                answers.append(known.setdefault(text, len(known) + 1) if text else 0)
                correct.append(attempt.correct)
        yield {"suite": "vote", "step": run.step, "member": member.id, "tokens": None, "correct": correct, "answers": answers}


if __name__ == "__main__":
    write_measured(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
