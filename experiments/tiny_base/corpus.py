"""Documents for pretraining the tiny base: six kinds (three tasks, proposer and solver), all from executed programs.

A proposal's budget is its reference's budget plus -1, 0 or +1: harder references make harder proposals, which is what
couples the generations of an AZR buffer. A solver's answer is *direct*, or reasons briefly (values only) or in full (each
executed line with its effect; for code_i guess by guess). How many of each there are in which phase of training stands in
``mixtures.py``.
"""

import numpy as np
from experiments.tiny_base.describe import LEVELS, describe
from experiments.tiny_base.documents import Document, Piece, answer, fenced, weighted
from experiments.tiny_base.grammar import parameters
from experiments.tiny_base.mixtures import MESSAGES, Mixture
from experiments.tiny_base.samples import MAX_BUDGET, Sample, draw_sample, inputs_text, spread_arguments
from experiments.tiny_base.sql.corpus import draw_document as sql_document

from populora.core.rng import stream
from populora.core.types import Problem, TaskType
from populora.tasks.render import PromptSet, load_prompts, propose_prompt, solve_prompt


def bindings(sample: Sample, index: int) -> list[tuple[str, str]]:
    """How an execution begins: each parameter with its argument, as (``x = ``, ``3`` and a line end).

    Without these lines a small model has to count positions whenever it reads a name.
    """
    pairs = zip(parameters(sample.source), sample.arguments[index], strict=True)
    return [(f"{name} = ", f"{value!r}\n") for name, value in pairs]


def steps(sample: Sample, index: int) -> str:
    """How it goes on: each executed line with its effect."""
    return "\n".join(f"{line}  # {effect}" for line, effect in sample.runs[index].trace)


def reasoning(rng: np.random.Generator, task: TaskType, sample: Sample, style: str, mixture: Mixture) -> list[Piece]:
    """The text between the think tags: nothing, the effects alone (for code_i from the output back), or everything."""
    if style == "direct":
        return []
    if style == "brief":
        effects = [effect for _, effect in sample.runs[0].trace]
        return [("; ".join(effects[::-1] if task is TaskType.CODE_I else effects), 1.0)]
    trace = "".join(name + value for name, value in bindings(sample, 0)) + steps(sample, 0)
    return [(trace, 1.0)] if task is TaskType.CODE_O else search(rng, sample, trace, mixture)


def search(rng: np.random.Generator, sample: Sample, trace: str, mixture: Mixture) -> list[Piece]:
    """Full reasoning about code_i: guesses that give another output, each executed to its end, then one that gives the output
    asked for. Executing is one skill for both tasks, and more guesses find an input more often."""
    wanted = sample.runs[0].value
    room = mixture.search_chars - (len(trace) if mixture.last_guess_checked else 0)
    pieces: list[Piece] = []
    for index in range(1, 1 + int(rng.choice(len(mixture.wrong_guesses), p=mixture.wrong_guesses))):
        guess: list[Piece] = []
        for name, value in bindings(sample, index):
            guess += [(name, mixture.wrong_names_weight), (value, mixture.wrong_arguments_weight)]
        guess.append((f"{steps(sample, index)}\n", 1.0))
        length = sum(len(text) for text, _ in guess) - 1  # the line end after a guess takes no room
        if sample.runs[index].value != wanted and length <= room:
            pieces += guess
            room -= length
    if mixture.last_guess_checked or len(trace) <= room:
        pieces.append((trace, 1.0))
    return pieces


def solve_document(rng: np.random.Generator, task: TaskType, sample: Sample, prompts: PromptSet, mixture: Mixture) -> Document:
    """A solver's document."""
    kind = f"solve {task}"
    if task is TaskType.CODE_F:
        half = prompts.inputs_wanted // 2
        shown = tuple(sample.example(index) for index in range(half))
        message = describe(sample.source, weighted(rng, dict(zip(LEVELS, MESSAGES, strict=True))))
        problem = Problem("", task, sample.source, shown, message=message)
        return Document(kind, solve_prompt(prompts, problem), ((answer(fenced("python", sample.source)), 1.0),))
    style = weighted(rng, mixture.styles)
    thought = reasoning(rng, task, sample, style, mixture)
    example = sample.example(0)
    content = fenced("input", example.inputs) if task is TaskType.CODE_I else fenced("output", example.output)
    return Document(kind, solve_prompt(prompts, sample.problem(task)), (*thought, (answer(content), 1.0)))


def message_weights(budget: int, mixture: Mixture) -> dict[str, float]:
    """Weights of the levels of detail at which a proposer tells a program of that budget."""
    share = (budget - 1) / (MAX_BUDGET - 1)
    pairs = zip(mixture.short_messages, mixture.long_messages, strict=True)
    return dict(zip(LEVELS, (short + share * (long - short) for short, long in pairs), strict=True))


def propose_document(rng: np.random.Generator, task: TaskType, sample: Sample, prompts: PromptSet, mixture: Mixture) -> Document:
    """A proposer's document."""
    if task is TaskType.CODE_F:
        # In ascending order: a writer who goes upwards hardly ever repeats an input, which would make the proposal invalid.
        chosen = spread_arguments(rng, sample) if mixture.spread_inputs else sample.arguments
        inputs = "\n".join(fenced("input", inputs_text(values)) for values in sorted(chosen, key=repr))
        message = describe(sample.source, weighted(rng, message_weights(sample.budget, mixture)))
        content = f"{inputs}\n{fenced('message', message)}"
    else:
        new = draw_sample(rng, min(max(sample.budget + int(rng.integers(-1, 2)), 1), MAX_BUDGET))
        content = f"{fenced('python', new.source)}\n{fenced('input', new.example(0).inputs)}"
    prompt = propose_prompt(prompts, task, [sample.problem(task)])
    return Document(f"propose {task}", prompt, ((answer(content), mixture.propose_weight),))


def draw_document(rng: np.random.Generator, prompts: PromptSet, mixture: Mixture) -> Document:
    """One random document of the mixture."""
    if mixture.other and rng.random() < mixture.other_share:
        mixture = mixture.other
    role, name = weighted(rng, mixture.kinds).split()
    if name.startswith("sql_"):
        return sql_document(rng, role, name, mixture)
    budgets = mixture.solve_budgets if role == "solve" and mixture.solve_budgets else mixture.budgets
    task, sample = TaskType(name), draw_sample(rng, weighted(rng, budgets))
    document = solve_document if role == "solve" else propose_document
    return document(rng, task, sample, prompts, mixture)


def draw_shard(seed: int, index: int, size: int, mixture: Mixture) -> list[Document]:
    """Shard ``index`` of the endless corpus: the same documents on every machine for the same seed."""
    rng, prompts = stream(seed, "corpus", index), load_prompts("compact")
    return [draw_document(rng, prompts, mixture) for _ in range(size)]
