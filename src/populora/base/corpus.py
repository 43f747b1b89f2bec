"""Documents for pretraining the tiny base: six kinds (three tasks, proposer and solver), all from executed programs.

Every program must run without error on several inputs and give at least two different outputs, so difficulty grows with
length and valid proposals are the norm. A proposal's budget is its reference's budget plus -1, 0 or +1: harder references
make harder proposals, which is what couples the generations of an AZR buffer. A solver's answer is *direct*, or reasons
briefly (values only) or in full (each executed line with its effect; for code_i guess by guess until one fits). Early in
training most answers reason, because that is how a small model learns to execute at all; in the final part most are
direct, so the finished base reasons only as a minority habit that pays: room for RL to learn.

Programs whose normalised AST hashes into the held-out fraction never appear here; evaluation draws from those alone.
"""

from __future__ import annotations

import ast
import hashlib
from dataclasses import dataclass

import numpy as np

from populora.base.describe import LEVELS, describe
from populora.base.grammar import parameters, random_arguments, random_program
from populora.base.trace import Program, Rejected, Run
from populora.rng import stream
from populora.tasks.render import PromptSet, load_prompts, propose_prompt, solve_prompt
from populora.types import Example, Problem, TaskType

MAX_BUDGET = 8
MAX_TRACE_CHARS = 320


@dataclass(frozen=True)
class Mixture:
    """What the corpus is made of in one phase of training: weights of document kinds, answer styles and statement budgets."""

    kinds: dict[str, int]
    styles: dict[str, int]
    budgets: dict[int, int]
    wrong_guesses: tuple[float, ...] = (0.5, 0.3, 0.2)
    """Probabilities of 0, 1, 2, … wrong guesses before the right one in full reasoning about code_i."""
    search_chars: int = MAX_TRACE_CHARS
    """Longest text of such a search."""


_KINDS = ("solve code_o", "solve code_i", "solve code_f", "propose code_o", "propose code_i", "propose code_f")


def _kinds(*weights: int) -> dict[str, int]:
    return dict(zip(_KINDS, weights, strict=True))


_ALL_KINDS = _kinds(30, 22, 20, 10, 10, 8)
_ALL_BUDGETS = {1: 14, 2: 17, 3: 18, 4: 16, 5: 13, 6: 10, 7: 7, 8: 5}
SHORT = Mixture(_ALL_KINDS, {"direct": 12, "brief": 6, "full": 82}, {1: 35, 2: 30, 3: 18, 4: 9, 5: 4, 6: 2, 7: 1, 8: 1})
"""First: short programs, nearly always with reasoning, so that binding a name and doing one operation are learned early."""
EXECUTION = Mixture(
    _kinds(60, 20, 6, 5, 5, 4),
    {"direct": 10, "brief": 5, "full": 85},
    {1: 22, 2: 22, 3: 20, 4: 14, 5: 10, 6: 6, 7: 4, 8: 2},
)
"""Then mostly traces of single executions: every other skill builds on this one, and it comes with the number of traces seen."""
REASONING = Mixture(_ALL_KINDS, {"direct": 15, "brief": 8, "full": 77}, _ALL_BUDGETS)
"""Then everything, at all lengths."""
FINAL = Mixture(_ALL_KINDS, {"direct": 54, "brief": 6, "full": 40}, _ALL_BUDGETS)
"""Last, while the learning rate falls: most answers are direct."""
_SEARCH = {"wrong_guesses": (0.4, 0.25, 0.15, 0.12, 0.08), "search_chars": 400}
_PROPOSING_KINDS = _kinds(27, 23, 16, 13, 12, 9)
SEARCHING = Mixture(_kinds(30, 32, 16, 8, 8, 6), {"direct": 20, "brief": 4, "full": 76}, _ALL_BUDGETS, **_SEARCH)
"""In the second stage: longer searches."""
FINISHED = Mixture(_PROPOSING_KINDS, {"direct": 52, "brief": 4, "full": 44}, _ALL_BUDGETS, **_SEARCH)
"""Its end: most answers are direct again, and more proposals, for their validity."""
MESSAGE_WEIGHTS = dict(zip(LEVELS, (45, 30, 25), strict=True))
HELD_OUT_ONE_IN = 40
PROBES = 6


@dataclass(frozen=True)
class Document:
    """One training document: the loss is full on the response and light on the prompt."""

    kind: str
    prompt: str
    response: str


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
    """Whether this program belongs to evaluation only (one in `HELD_OUT_ONE_IN`, by hash of the normalised AST)."""
    digest = hashlib.sha256(normalised(source).encode()).digest()
    return int.from_bytes(digest[:4], "little") % HELD_OUT_ONE_IN == 0


def _weighted(rng: np.random.Generator, weights: dict):
    total = sum(weights.values())
    return list(weights)[int(rng.choice(len(weights), p=[weight / total for weight in weights.values()]))]


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


def execution(sample: Sample, index: int) -> str:
    """Full reasoning about one run: each executed line with its effect.

    It binds each parameter to its argument first (``x = 3``): without these lines a small model has to count positions
    whenever it reads a name.
    """
    steps = [f"{name} = {value!r}" for name, value in zip(parameters(sample.source), sample.arguments[index], strict=True)]
    return "\n".join([*steps, *(f"{line}  # {effect}" for line, effect in sample.runs[index].trace)])


def reasoning(rng: np.random.Generator, task: TaskType, sample: Sample, style: str, mixture: Mixture) -> str:
    """The text between the think tags: nothing, the effects alone (for code_i from the output back), or everything.

    Full reasoning about code_i is a search: guesses that give another output, each executed to its end, then one that
    gives the output asked for. Executing is one skill for both tasks, and more guesses find an input more often.
    """
    if style == "direct":
        return ""
    if style == "brief":
        effects = [effect for _, effect in sample.runs[0].trace]
        return "; ".join(effects[::-1] if task is TaskType.CODE_I else effects)
    found = execution(sample, 0)
    if task is TaskType.CODE_O:
        return found
    wanted, room = sample.runs[0].value, mixture.search_chars - len(found)
    guesses = []
    for index in range(1, 1 + int(rng.choice(len(mixture.wrong_guesses), p=mixture.wrong_guesses))):
        guess = execution(sample, index)
        if sample.runs[index].value != wanted and len(guess) <= room:
            guesses.append(guess)
            room -= len(guess)
    return "\n".join([*guesses, found])


def fenced(tag: str, text: str) -> str:
    return f"```{tag}\n{text}\n```"


def answer(thought: str, content: str) -> str:
    return f"{thought}</think><answer>{content}</answer>"


def solve_document(rng: np.random.Generator, task: TaskType, sample: Sample, prompts: PromptSet, mixture: Mixture) -> tuple[str, str]:
    """Prompt and response of a solver document."""
    if task is TaskType.CODE_F:
        half = prompts.code_f_inputs // 2
        shown = tuple(sample.example(index) for index in range(half))
        message = describe(sample.source, _weighted(rng, MESSAGE_WEIGHTS))
        problem = Problem("", task, sample.source, shown, message=message)
        return solve_prompt(prompts, problem), answer("", fenced("python", sample.source))
    style = _weighted(rng, mixture.styles)
    thought = reasoning(rng, task, sample, style, mixture)
    example = sample.example(0)
    content = fenced("input", example.inputs) if task is TaskType.CODE_I else fenced("output", example.output)
    return solve_prompt(prompts, sample.problem(task)), answer(thought, content)


def propose_document(rng: np.random.Generator, task: TaskType, sample: Sample, prompts: PromptSet) -> tuple[str, str]:
    """Prompt and response of a proposer document."""
    if task is TaskType.CODE_F:
        # In ascending order: a writer who goes upwards hardly ever repeats an input, which would make the proposal invalid.
        inputs = "\n".join(fenced("input", inputs_text(values)) for values in sorted(sample.arguments, key=repr))
        message = describe(sample.source, _weighted(rng, MESSAGE_WEIGHTS))
        return propose_prompt(prompts, task, [sample.problem(task)]), answer("", f"{inputs}\n{fenced('message', message)}")
    near = min(max(sample.budget + int(rng.integers(-1, 2)), 1), MAX_BUDGET)
    new = draw_sample(rng, near)
    prompt = propose_prompt(prompts, task, [sample.problem(task)])
    return prompt, answer("", f"{fenced('python', new.source)}\n{fenced('input', new.example(0).inputs)}")


def draw_document(rng: np.random.Generator, prompts: PromptSet, mixture: Mixture) -> Document:
    """One random document of the mixture."""
    kind = _weighted(rng, mixture.kinds)
    role, name = kind.split()
    task, sample = TaskType(name), draw_sample(rng, _weighted(rng, mixture.budgets))
    if role == "solve":
        return Document(kind, *solve_document(rng, task, sample, prompts, mixture))
    return Document(kind, *propose_document(rng, task, sample, prompts))


def draw_shard(seed: int, index: int, size: int, mixture: Mixture) -> list[Document]:
    """Shard ``index`` of the endless corpus: the same documents on every machine for the same seed."""
    rng, prompts = stream(seed, "corpus", index), load_prompts("compact")
    return [draw_document(rng, prompts, mixture) for _ in range(size)]
