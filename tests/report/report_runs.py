"""Runs of a few steps, written by the run log itself from drawn numbers: populations of 2T+2S, larger ones, agents that share adapters, or
a single agent, in several seeds.

They are of Python, of SQL, or of both.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from populora.core.config import Config, PopulationConfig, SelfplayConfig
from populora.core.rng import stream
from populora.core.types import (
    Attempt,
    Example,
    Generation,
    Kind,
    Lineage,
    Matchup,
    Measures,
    Member,
    Problem,
    Proposal,
    Rating,
    Role,
    TaskType,
    UpdateStats,
)
from populora.report.arms import Arm, arms_of
from populora.report.figure import Figure, MissingFigure, Study
from populora.report.run_data import RunData
from populora.runs.directory import new_run
from populora.runs.metrics_log import write_step
from populora.runs.step_record import Evolution

K = 4
CONFIG = Config(steps=6, population=PopulationConfig(teachers=2, students=2), selfplay=SelfplayConfig(rho_samples=K))
AGENT = replace(CONFIG, population=PopulationConfig(single_agent=True))
SQL, MIXED = replace(CONFIG, domains=("sql",)), replace(CONFIG, domains=("python", "sql"))
BORN = {3: ("T1", "m1", ("T0#0",)), 5: ("S0", "x2", ("S0#0", "S1#0"))}
"""Children of 2T+2S by step: place, operator, parents. Another T1 is born after the last step."""
ROUND = 5
"""Steps between two rounds of births in larger populations, which replace a quarter of each role."""
ADD, SELECT = "def f(x):\n    return x + {}.123456", "SELECT a + {} FROM t ORDER BY a"
REASONS = ("wrong_value", "format", "out_of_resources", "error:exception:KeyError")
Make = Callable[..., Any]


def write_run(
    folder: Path, make_record: Make, config: Config = CONFIG, steps: int = 0, program: str = "", answer: str = "", lost: str = ""
) -> Path:
    """A run whose numbers come from its seed and sizes; ``program`` and ``answer`` stand in every problem and answer if given.

    No problem of the domain ``lost`` is valid.
    """
    steps = steps or config.steps
    with new_run(folder, replace(config, steps=max(steps, config.steps)), {"sandbox": "strict"}):
        for step in range(1, steps + 1):
            write_step(folder, make_record(step, **_step(config, step, program, answer, lost)))
    return folder


def without_steps(folder: Path) -> Path:
    """Take from a run all that its steps wrote."""
    shutil.rmtree(folder / "steps")
    for name in ("metrics.jsonl", "timings.jsonl"):
        (folder / name).unlink()
    return folder


def study_of(*folders: Path, baselines: Sequence[Path] = (), **options: Any) -> Study:
    return Study(arms_of(folders, baselines), **options)


def figure_of(make: Callable[[Study], Figure | MissingFigure], study: Study) -> Figure:
    figure = make(study)
    assert isinstance(figure, Figure), figure
    return figure


def the_arm(*folders: Path) -> Arm:
    (arm,) = arms_of(folders)
    return arm


def the_run(folder: Path) -> RunData:
    return RunData(folder, folder.name)


def table(folder: Path, name: str, *steps: int) -> list[dict[str, Any]]:
    """The rows of a table, read without the code under test."""
    files = sorted((folder / "steps").glob(f"step_*/{name}.parquet"))
    rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    return [row for row in rows if not steps or row["step"] in steps]


def logged(folder: Path, name: str = "metrics.jsonl") -> list[dict[str, float]]:
    """The lines of a log, read without the code under test."""
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def rewrite(folder: Path, name: str, step: int, change: Callable[[Any], Any]) -> None:
    """Put ``change(table)`` in the place of a table."""
    path = folder / "steps" / f"step_{step:05d}" / f"{name}.parquet"
    pq.write_table(change(pq.ParquetFile(path).read()), path)


def _step(config: Config, step: int, program: str, answer: str, lost: str) -> dict[str, Any]:
    rng = stream(config.seed, "report tests", step, int(config.population.single_agent))
    teachers, students = names_of(config)
    met = dict(zip(teachers, rng.permutation(students).tolist(), strict=True))
    proposals = _proposals(rng, step, teachers, program, config, lost)
    attempts, rhos = _attempts(rng, met, proposals, answer, config)
    rated = list(zip(proposals, rhos, strict=True))
    means = {name: [rho for proposal, rho in rated if proposal.author == name and rho is not None] for name in teachers}
    expected = {name: float(rng.uniform(0.2, 0.8)) for name in teachers}
    none = config.population.single_agent
    coverage = {"coverage": step / 4096, "distinct_descriptors": 2.0 * step, "total_problems": 9.0 * step, "proxy": 9 * step / 4096}
    if len(config.domains) > 1:
        coverage = {f"{name}/{domain}": value * (domain != lost) for domain in config.domains for name, value in coverage.items()}
    held_out = {f"{name}/all": float(rng.random()) for name in students} if step % 3 == 0 else {}
    if len(config.domains) > 1:
        held_out |= {f"{name}/{task}": float(rng.random()) for name in students for task in config.task_types if step % 3 == 0}
    return {
        "domains": config.domains,
        "proposals": proposals, "attempts": attempts, "rhos": rhos,
        "teacher_rewards": tuple(-1.0 if proposal.problem is None else None if rho is None else 1 - rho if rho else 0.0
                                 for proposal, rho in rated),
        "teacher_advantages": (0.0,) * len(proposals), "student_advantages": (0.0,) * len(attempts),
        "student_rewards": tuple(1.0 if attempt.correct else -0.5 for attempt in attempts),
        "trained": tuple(not attempt.void for attempt in attempts),
        "matchups": tuple(
            Matchup(name, met[name], expected[name], fmean(means[name]) if means[name] else None,
                    "none" if none or not means[name] else "student" if fmean(means[name]) > expected[name] else "teacher")
            for name in teachers
        ),
        "members": _members(rng, config, step, [*dict.fromkeys((*teachers, *students))]),
        "updates": {name: _update(rng, name == "T1" and step == 2) for name in dict.fromkeys((*teachers, *students))},
        "evolution": Evolution(() if none else _children(rng, config, step)),
        "seconds": {"propose": float(rng.uniform(1, 3)), "solve": float(rng.uniform(2, 4)), "update": float(rng.uniform(1, 9))},
        "coverage": coverage,
        "repeats": frozenset(proposal.problem.id for proposal in proposals if proposal.problem and rng.random() < 0.3),
        "held_out": held_out,
    }  # fmt: skip


def _proposals(rng: np.random.Generator, step: int, teachers: list[str], program: str, config: Config, lost: str) -> tuple[Proposal, ...]:
    proposals: list[Proposal] = []
    for author in teachers:
        for group, task in enumerate(config.task_types):
            for sample in range(3):
                name, valid = f"{step}-{author}-{group}-{sample}", rng.random() < 0.75 and task.domain != lost
                problem = measures = None
                if valid:
                    number = int(rng.integers(1, 20))
                    shown, hidden = (_example(task, value, number) for value in (3, 2))
                    text = program or (SELECT if task.domain == "sql" else ADD).format(number)
                    pairs = (shown,), (hidden,) if task.kind is Kind.PROGRAM else ()
                    problem = Problem(name, task, text, *pairs, "adds", author, step)
                    measures = Measures(tuple(int(value) for value in rng.integers(1, 18, 4)), f"print {number}")
                rejection = "" if valid else str(rng.choice(["format", "out_of_resources", "error:exception:KeyError"]))
                text = _said(rng, program or f"proposal {name}")
                proposals.append(Proposal(author, task, group, text, True, problem, rejection, measures))
    return tuple(proposals)


def _example(task: TaskType, value: int, number: int) -> Example:
    return Example(f"t(a)\n{value}\n0", f"{number}\n{value + number}") if task.domain == "sql" else Example(str(value), str(value + number))


def _attempts(rng: np.random.Generator, met: dict[str, str], proposals: Sequence[Proposal], answer: str, config: Config):
    attempts: list[Attempt] = []
    rhos: list[float | None] = []
    for proposal in proposals:
        if not proposal.problem:
            rhos.append(None)
            continue
        void, rate = rng.random() < 0.15, rng.random()
        correct = [bool(rng.random() < rate) for _ in range(K)]
        for right in correct:
            reason = "gold_not_reproduced" if void else "" if right else str(rng.choice(REASONS))
            said = _said(rng, answer or f"answer {int(rng.integers(3))}")
            attempts.append(Attempt(met[proposal.author], proposal.problem, said, True, right and not void, reason, void))
        rhos.append(None if void else fmean(correct))
    old = Problem("0-old", config.task_types[0], "def f(x):\n    return x", (Example("3", "3"),), author="seed")
    attempts += [Attempt(student, old, _said(rng, "3"), True, True, from_buffer=True) for student in met.values()]
    return tuple(attempts), tuple(rhos)


def _said(rng: np.random.Generator, text: str) -> Generation:
    tokens = int(rng.integers(4, 30))
    return Generation(text, (1, 2), tuple(range(tokens)), (-0.5,) * tokens, float(rng.random()), bool(rng.random() < 0.9))


def names_of(config: Config) -> tuple[list[str], list[str]]:
    """Who proposes and who solves."""
    population = config.population
    if population.agents:
        agents = [f"A{number}" for number in range(population.agents)]
        return agents, agents
    return [f"T{number}" for number in range(population.teachers)], [f"S{number}" for number in range(population.students)]


@cache
def births(config: Config, step: int) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Operator and parents of the children that are born after a step, by place."""
    if config.population.single_agent:
        return {}
    if config.population.members == 4:
        born = {**BORN, **({config.steps: ("T1", "m2", ("T0#0",))} if config.steps > ROUND else {})}
        return {born[step][0]: born[step][1:]} if step in born else {}
    if step % ROUND:
        return {}
    rng, made = stream(config.seed, "births", step), dict[str, tuple[str, tuple[str, ...]]]()
    generation = _generations(config, step)
    for names in names_of(config):
        places, others = np.split(rng.permutation(names), [len(names) // 4])
        for place in places.tolist():
            parents = rng.choice(others, 2, replace=False).tolist()
            named = tuple(f"{parent}#{generation.get(parent, 0)}" for parent in parents)
            made[place] = (("x2", named), ("m1", named[:1]))[int(rng.integers(2))]
    return made


def _generations(config: Config, step: int) -> Counter[str]:
    """Births of each place before a step."""
    return Counter(place for earlier in range(1, step) for place in births(config, earlier))


def _members(rng: np.random.Generator, config: Config, step: int, names: list[str]) -> tuple[Member, ...]:
    roles = {"T": Role.TEACHER, "S": Role.STUDENT, "A": Role.AGENT}
    generations = _generations(config, step)
    ratings = [Rating(float(rng.uniform(30, 40) if name[0] == "S" else rng.uniform(15, 25)), 2.0) for name in names]
    return tuple(Member(name, roles[name[0]], slot, ratings[slot], Lineage(name, generations[name], 0)) for slot, name in enumerate(names))


def _children(rng: np.random.Generator, config: Config, step: int) -> tuple[Lineage, ...]:
    generations, children = _generations(config, step), list[Lineage]()
    for member, (operator, parents) in births(config, step).items():
        named, cosines = tuple(f"{parent}:{'ab' * 32}" for parent in parents), tuple(float(v) for v in rng.uniform(0, 1, len(parents)))
        lineage = (member, generations[member] + 1, step, operator, named, ("evolve", step, member))
        children.append(Lineage(*lineage, float(rng.uniform(0.5, 1.5)), cosines, 7.5))
    return tuple(children)


def _update(rng: np.random.Generator, skipped: bool) -> UpdateStats:
    names = ("loss", "grad_norm", "entropy", "clip_fraction", "kl", "ess", "mean_difference", "max_difference")
    return UpdateStats(**{name: float(rng.random()) for name in names}, tokens=40, skipped=skipped)
