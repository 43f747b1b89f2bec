"""The suites of the claims campaign: test, held-back and transfer problems.

    python -m benchmarks.claims.suites       makes suites/*.parquet again, and levels.json: what the untrained base does on each level

It takes some two hours of a core. What is done lies in a folder (``--work``), and the same command goes on from there.

Candidates are programs that were kept out of the base's corpus. Those of the validation suite, which ships with the base, are left out,
and a program is in one suite only. The untrained base answers each 16 times; `protocol.toml` names the levels.
"""

import argparse
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.claims.transfer import FAMILIES, Family
from benchmarks.measuring import write_results
from experiments.tiny_base.build import problem_of
from experiments.tiny_base.samples import draw_sample, normalised

from populora.core.config import BaseConfig, Config, EvolutionConfig, LoraConfig, PopulationConfig, SandboxConfig, SelfplayConfig
from populora.core.files import json_bytes, read_json, write_file
from populora.core.rng import stream
from populora.core.types import CODE_TYPES, Example, Problem, TaskType
from populora.sandbox.pool import SandboxPool
from populora.sandbox.protocol import Job, Limits
from populora.training.evaluation import load_held_out
from populora.training.loop import build_run
from populora.training.run import Run
from populora.training.solve import solve, solve_request

FOLDER = Path(__file__).with_name("suites")
SEED, SAMPLES = 20_261_126, 16
CANDIDATES, BUDGETS = 3200, tuple(range(1, 11))
"""Candidates of each type, and the numbers of statements that they are drawn with."""
LEVELS = ("1", "2", "3", "4", "5")
PER_LEVEL = {CODE_TYPES[0]: 67, CODE_TYPES[1]: 67, CODE_TYPES[2]: 66}
AT_A_TIME = 300
"""Candidates that are answered before the next are begun."""
VARIANTS = 12
"""Problems of a family of the transfer suite, half of them of each of code_i and code_o."""


def level_of(right: int) -> str:
    """Return the level of a problem that the base answers ``right`` times of 16."""
    for level, least in (("1", 13), ("2", 8), ("3", 3), ("4", 1)):
        if right >= least:
            return level
    return "5"


def read_suite(name: str) -> list[Problem]:
    """Read ``test``, ``held_back`` or ``transfer``; a problem's author is its level or family."""
    return read_problems(FOLDER / f"{name}.parquet")


def read_problems(file: Path) -> list[Problem]:
    rows = pq.read_table(file).to_pylist()
    pairs = ("shown", "hidden")
    return [
        Problem(**{**row, "task": TaskType(row["task"]), **{name: tuple(Example(**pair) for pair in row[name]) for name in pairs}})
        for row in rows
    ]


def write_problems(file: Path, problems: Sequence[Problem]) -> None:
    file.parent.mkdir(exist_ok=True)
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([asdict(problem) for problem in problems]), buffer, compression="zstd")
    write_file(file, buffer.getvalue().to_pybytes())


def answer_in_parts(file: Path, problems: Sequence[Problem], answer: Callable[[Sequence[Problem]], dict[str, int]]) -> dict[str, int]:
    """Answer the problems some at a time. ``file`` has what is known after each time."""
    known: dict[str, dict[str, int]] = read_json(file) if file.exists() else {}
    for first in range(0, len(problems), AT_A_TIME):
        if str(first) not in known:
            known[str(first)] = answer(problems[first : first + AT_A_TIME])
            write_file(file, json_bytes(known))
    return {name: right for some in known.values() for name, right in some.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/claims_suites"))
    work = parser.parse_args().work
    work.mkdir(parents=True, exist_ok=True)
    config = Config(
        seed=SEED, threads=1, base=BaseConfig(path="tiny"), lora=LoraConfig(rank=8, alpha=16.0),
        population=PopulationConfig(single_agent=True), evolution=EvolutionConfig(every=0),
        selfplay=SelfplayConfig(max_prompt_tokens=256, max_response_tokens=224, buffer_size=128, seeds=1),
        sandbox=SandboxConfig(cpu_seconds=0.5),
    )  # fmt: skip
    with build_run(config) as run:
        pool: list[Problem] = []
        for task in CODE_TYPES:
            if not (file := work / f"{task}.parquet").exists():
                write_problems(file, list(candidates(run, task, pool)))
            pool += read_problems(file)
        right = answer_in_parts(work / "right_of_16.json", pool, lambda some: answered(run, some))
        suites = {**in_levels(pool, right), "transfer": list(transfer_problems())}
        for name, problems in suites.items():
            write_problems(FOLDER / f"{name}.parquet", problems)
        shares = {name: base_shares(run, problems) for name, problems in suites.items()}
    write_results(FOLDER / "levels.json", {"candidates": len(pool), "right_of_16": histogram(right.values()), "base": shares})


def candidates(run: Run, task: TaskType, others: Sequence[Problem]) -> Iterator[Problem]:
    """Draw problems of programs that are neither in the corpus, nor in the validation suite, nor in ``others``, each program once."""
    taken = {normalised(problem.program) for problem in [*load_held_out(run.config.base, 216), *others]}
    rng, count = stream(SEED, "claims", task), 0
    while count < CANDIDATES:
        sample = draw_sample(rng, int(rng.choice(BUDGETS)), evaluation=True)
        problem = problem_of(rng, task, f"{task}-{count}", "", sample)
        if (name := normalised(sample.source)) not in taken and run.fits(run.solve_prompt(problem)):
            taken.add(name)
            count += 1
            yield problem


def answered(run: Run, problems: Sequence[Problem]) -> dict[str, int]:
    """Count by problem id the right ones among the untrained base's answers."""
    requests = [solve_request(run, problem, 0, SAMPLES, ("claims", "levels", problem.id)) for problem in problems]
    return {
        problem.id: sum(attempt.correct for attempt in attempts)
        for problem, attempts in zip(problems, solve(run, requests), strict=True)
        if not any(attempt.void for attempt in attempts)
    }


def in_levels(pool: Sequence[Problem], right: dict[str, int]) -> dict[str, list[Problem]]:
    """Fill the levels of the test suite and of the held-back one, in the order in which candidates were drawn."""
    places: dict[tuple[str, TaskType], list[Problem]] = defaultdict(list)
    for problem in pool:
        if problem.id in right:
            level = level_of(right[problem.id])
            places[level, problem.task].append(replace(problem, author=level))
    short = {place: len(there) for place, there in places.items() if len(there) < 2 * PER_LEVEL[place[1]]}
    if short or len(places) < len(LEVELS) * len(PER_LEVEL):
        raise SystemExit(f"too few candidates for two suites: {short or dict(Counter(places))}. Raise CANDIDATES")
    return {
        name: [p for level in LEVELS for task, count in PER_LEVEL.items() for p in places[level, task][first * count : (first + 1) * count]]
        for first, name in enumerate(("test", "held_back"))
    }


def transfer_problems() -> Iterator[Problem]:
    """Fill the families' gaps with constants and inputs; the sandbox computes the outputs."""
    with SandboxPool(Limits(), 1, allow_weak=True) as pool:
        yield from (problem for family in FAMILIES for problem in family_problems(family, pool))


def family_problems(family: Family, pool: SandboxPool) -> Iterator[Problem]:
    rng = stream(SEED, "claims", "transfer", family.name)
    calls: dict[tuple[str, str], None] = {}
    while len(calls) < VARIANTS:
        program = family.program.replace("K", str(int(rng.integers(2, 6)))).replace("M", str(int(rng.integers(1, 4))))
        calls.setdefault((program, family.inputs(rng)))
    jobs = [Job("run", program, (inputs,)) for program, inputs in calls]
    for index, (job, verdict) in enumerate(zip(jobs, pool.run(jobs, twice=True), strict=True)):
        if not verdict.ok:
            raise SystemExit(f"{family.name}: {verdict.reason} for {job.program!r} on {job.texts[0]}")
        example = Example(job.texts[0], verdict.values[0].literal)
        yield Problem(f"{family.name}-{index}", CODE_TYPES[index % 2], job.program, (example,), author=family.name)


def base_shares(run: Run, problems: Sequence[Problem]) -> dict[str, dict[str, float]]:
    """Measure the untrained base's greedy accuracy and its rate of 16 new answers, by level or family."""
    greedy = solve(run, [solve_request(run, problem, 0, 1, ("claims", "greedy", problem.id)) for problem in problems], temperature=0.0)
    again = solve(run, [solve_request(run, problem, 0, SAMPLES, ("claims", "again", problem.id)) for problem in problems])
    groups: dict[str, list[tuple[bool, float]]] = defaultdict(list)
    for problem, first, more in zip(problems, greedy, again, strict=True):
        groups[problem.author].append((first[0].correct, float(np.mean([attempt.correct for attempt in more]))))
    return {
        name: {
            "problems": len(values),
            "greedy": round(float(np.mean([greedy for greedy, _ in values])), 4),
            "sampled": round(float(np.mean([rate for _, rate in values])), 4),
            "solved_once": round(float(np.mean([rate > 0 for _, rate in values])), 4),
        }
        for name, values in groups.items()
    }


def histogram(counts: Iterable[int]) -> list[int]:
    found = Counter(counts)
    return [found[right] for right in range(SAMPLES + 1)]


if __name__ == "__main__":
    main()
