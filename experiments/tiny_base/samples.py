"""Programs that the corpus, the seeds and the held-out suite are made of, each with runs that passed the checks.

Every program must run without error on several inputs and give at least two different outputs, so difficulty grows with
length and valid proposals are the norm. One in forty, by the hash of its normalised AST, belongs to evaluation alone.
"""

import ast
import hashlib
from dataclasses import dataclass

import numpy as np
from experiments.tiny_base.grammar import random_arguments, random_program
from experiments.tiny_base.mixtures import MAX_TRACE_CHARS
from experiments.tiny_base.trace import Program, Rejected, Run

from populora.core.types import Example, Problem, TaskType

MAX_BUDGET = 8
HELD_OUT_ONE_IN = 40
PROBES = 6


@dataclass(frozen=True)
class Sample:
    """A program that passed the checks, with its runs."""

    source: str
    budget: int
    arguments: tuple[tuple[object, ...], ...]
    runs: tuple[Run, ...]

    def problem(self, task: TaskType, name: str = "", author: str = "") -> Problem:
        return Problem(name, task, self.source, (self.example(0),), author=author)

    def example(self, index: int) -> Example:
        return Example(inputs_text(self.arguments[index]), repr(self.runs[index].value))


def inputs_text(arguments: tuple[object, ...]) -> str:
    """Arguments as the text between the parentheses of a call."""
    return ", ".join(repr(argument) for argument in arguments)


def normalised(source: str) -> str:
    """A program's identity: its AST without positions."""
    return ast.dump(ast.parse(source), annotate_fields=False)


def held_out(source: str) -> bool:
    """Tell whether this program belongs to evaluation only (one in `HELD_OUT_ONE_IN`, by hash of the normalised AST)."""
    digest = hashlib.sha256(normalised(source).encode()).digest()
    return int.from_bytes(digest[:4], "little") % HELD_OUT_ONE_IN == 0


def draw_sample(rng: np.random.Generator, budget: int, evaluation: bool = False) -> Sample:
    """A program with `PROBES` successful runs on distinct inputs, at least two distinct outputs, short enough traces."""
    while True:
        source = random_program(rng, budget)
        try:
            program = Program(source)
            arguments: dict[str, tuple[object, ...]] = {}
            for _ in range(4 * PROBES):
                candidate = random_arguments(rng, source)
                arguments.setdefault(inputs_text(candidate), candidate)
                if len(arguments) == PROBES:
                    break
            runs = tuple(_short(program.run(values)) for values in arguments.values())
        except Rejected:
            continue
        outputs = {repr(run.value) for run in runs}
        if len(runs) == PROBES and len(outputs) >= 2 and held_out(source) == evaluation:
            return Sample(source, budget, tuple(arguments.values()), runs)


def _short(run: Run) -> Run:
    if sum(len(line) + len(effect) + 5 for line, effect in run.trace) > MAX_TRACE_CHARS:
        raise Rejected("a long trace")
    return run


def spread_arguments(rng: np.random.Generator, sample: Sample) -> tuple[tuple[object, ...], ...]:
    """As many arguments as the sample has, one from each part of their domain; the sample's own where those would not be valid."""
    drawn = {inputs_text(values): values for values in (random_arguments(rng, sample.source) for _ in range(8 * PROBES))}
    if len(drawn) < PROBES:
        return sample.arguments
    parts = np.array_split(np.arange(len(drawn)), PROBES)
    ordered = sorted(drawn.values(), key=repr)
    chosen = tuple(ordered[int(rng.choice(part))] for part in parts)
    try:
        outputs = {repr(Program(sample.source).run(values).value) for values in chosen}
    except Rejected:
        return sample.arguments
    return chosen if len(outputs) >= 2 else sample.arguments
