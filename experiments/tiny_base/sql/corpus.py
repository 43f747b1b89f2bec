"""Documents of SQL for pretraining: the six kinds of ``experiments.tiny_base.corpus``, from executed statements.

A solver of sql_i answers with the smallest part of a database that still gives the output, which is what can be inferred. Reasoning about
it tells rows of its own choice as the trace of an execution would.
"""

import numpy as np
from experiments.tiny_base.describe import LEVELS
from experiments.tiny_base.documents import Document, Piece, answer, fenced, weighted
from experiments.tiny_base.mixtures import MESSAGES, Mixture
from experiments.tiny_base.samples import MAX_BUDGET
from experiments.tiny_base.sql.execution import Rejected, Run, trace_text
from experiments.tiny_base.sql.samples import PROBES, Sample, draw_sample, needed, run_on, smallest
from experiments.tiny_base.sql.tables import database_text, rows_text

from populora.tasks.render import PromptSet, fill, load_prompts

MAX_INPUTS_CHARS = 165
"""Longest text of all databases of a sql_f problem."""


def prompts() -> PromptSet:
    """The compact prompts of SQL."""
    return load_prompts("compact", domain="sql")


def draw_document(rng: np.random.Generator, role: str, name: str, mixture: Mixture) -> Document:
    """One random document of a role and a task."""
    solving = role == "solve"
    budgets = mixture.solve_budgets if solving and mixture.solve_budgets else mixture.budgets
    sample = sample_for(rng, name, weighted(rng, budgets), distinct_outputs=2 if solving else mixture.distinct_outputs)
    return (solve_document if solving else propose_document)(rng, name, sample, mixture)


def sample_for(rng: np.random.Generator, name: str, budget: int, evaluation: bool = False, distinct_outputs: int = 2) -> Sample:
    """A sample that a problem of the task has room for; for sql_f, with so many different outputs."""
    while True:
        sample = draw_sample(rng, budget, evaluation)
        examples = [sample.example(index) for index in range(PROBES)]
        outputs = {example.output for example in examples}
        if name != "sql_f" or (sum(len(each.inputs) for each in examples) <= MAX_INPUTS_CHARS and len(outputs) >= distinct_outputs):
            return sample


def solve_document(rng: np.random.Generator, name: str, sample: Sample, mixture: Mixture) -> Document:
    """A solver's document."""
    shown = sample.empty if mixture.empty_results and sample.empty is not None else 0
    example, template = sample.example(shown), prompts().solve[name]
    reasoned = name != "sql_f" and weighted(rng, mixture.styles) == "full"
    if name == "sql_f":
        pairs = "".join(
            fill(prompts().pair[name], index=index, inputs=pair.inputs, output=pair.output)
            for index, pair in enumerate(map(sample.example, range(PROBES // 2)))
        )
        message = sample.statement.told(weighted(rng, dict(zip(LEVELS, MESSAGES, strict=True))))
        prompt, thought, content = fill(template, message=message, pairs=pairs), [], fenced("sql", sample.source)
    elif name == "sql_o":
        prompt = fill(template, program=sample.source, inputs=example.inputs)
        thought = [(trace_text(sample.runs[shown].steps), 1.0)] if reasoned else []
        content = fenced("output", rows_text(sample.runs[shown].rows))
    else:
        prompt = fill(template, program=sample.source, output=example.output)
        database, run = smallest(sample.statement, sample.databases[shown], sample.runs[shown])
        thought = search(rng, sample, run, mixture) if reasoned else []
        content = fenced("input", database_text(database))
    return Document(f"solve {name}", prompt, (*thought, (answer(content), 1.0)))


def search(rng: np.random.Generator, sample: Sample, last: Run, mixture: Mixture) -> list[Piece]:
    """Reasoning about sql_i: databases that give another output, each executed to its end, then the one that gives it."""
    room = mixture.search_chars
    pieces: list[Piece] = []
    for index in range(1, 1 + int(rng.choice(len(mixture.wrong_guesses), p=mixture.wrong_guesses))):
        run = _guess(sample, index, mixture)
        if not run:
            continue
        length = len(trace_text(run.steps)) + 1
        if run.canonical != last.canonical and length <= room:
            weights = {"name": mixture.wrong_names_weight, "value": mixture.wrong_arguments_weight, "step": 1.0}
            pieces += [*((text, weights[role]) for text, role in run.steps), ("\n", 1.0)]
            room -= length
    if len(text := trace_text(last.steps)) <= room:
        pieces.append((text, 1.0))
    return pieces


def _guess(sample: Sample, index: int, mixture: Mixture) -> Run | None:
    """The run on another database of the sample, without what the statement does not need."""
    if mixture.small_guesses:
        return smallest(sample.statement, sample.databases[index], sample.runs[index])[1]
    try:
        return run_on(sample.statement, needed(sample.statement, sample.databases[index]))
    except Rejected:
        return None


def _length_share(sample: Sample) -> float:
    """From 0 for the shortest statements to 1 for the longest."""
    return (sample.budget - 1) / (MAX_BUDGET - 1)


def propose_document(rng: np.random.Generator, name: str, sample: Sample, mixture: Mixture) -> Document:
    """A proposer's document."""
    if name == "sql_f":
        inputs = "\n".join(fenced("input", text) for text in sorted(map(database_text, sample.databases)))
        share = _length_share(sample)
        pairs = zip(mixture.short_messages, mixture.long_messages, strict=True)
        level = weighted(rng, dict(zip(LEVELS, (short + share * (long - short) for short, long in pairs), strict=True)))
        content = f"{inputs}\n{fenced('message', sample.statement.told(level))}"
        prompt = fill(prompts().propose[name], program=sample.source)
    else:
        new = draw_sample(rng, min(max(sample.budget + int(rng.integers(-1, 2)), 1), MAX_BUDGET))
        rich = mixture.rich_results and rng.random() < _length_share(new)
        content = f"{fenced('sql', new.source)}\n{fenced('input', database_text(new.databases[new.richest if rich else 0]))}"
        example = sample.example(0)
        reference = fill(prompts().reference[name], index=0, program=sample.source, inputs=example.inputs, output=example.output)
        prompt = fill(prompts().propose[name], references=reference)
    return Document(f"propose {name}", prompt, ((answer(content), mixture.propose_weight),))
