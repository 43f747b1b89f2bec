"""Render the prompts of proposers and solvers from versioned data files (``prompts/*.toml``).

Two sets ship: ``azr`` (R1-style, for real models; after the Absolute Zero Reasoner) and ``compact`` (for the tiny base).
Both open the ``<think>`` tag inside the prompt, so a response is ``…</think> <answer>…</answer>`` in either.
"""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from populora.core.config import TasksConfig
from populora.core.types import Problem, TaskType

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class PromptSet:
    """One prompt file. ``references`` is K of AZR; ``code_f_inputs`` the number of inputs a code_f proposer gives."""

    name: str
    version: int
    references: int
    code_f_inputs: int
    stop: str
    propose: dict[str, str]
    solve: dict[str, str]
    reference: dict[str, str]
    pair: dict[str, str]


@cache
def load_prompts(name: str, tasks: TasksConfig | None = None) -> PromptSet:
    """Load a shipped prompt set and apply the settings. Raises ``FileNotFoundError`` for an unknown name."""
    text = files("populora.tasks").joinpath("prompts").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    shipped, tasks = PromptSet(**tomllib.loads(text)), tasks or TasksConfig()
    banned = ", ".join(tasks.banned_imports) or "(none)"
    return replace(
        shipped, references=tasks.references or shipped.references, code_f_inputs=tasks.code_f_inputs or shipped.code_f_inputs,
        propose={task: fill(template, banned_imports=banned) for task, template in shipped.propose.items()},
        solve={task: fill(template, banned_imports=banned) for task, template in shipped.solve.items()},
    )  # fmt: skip


def fill(template: str, **values: object) -> str:
    """Fill ``{name}`` placeholders in one pass: braces inside the values stay as they are."""
    return _PLACEHOLDER.sub(lambda match: str(values[match[1]]) if match[1] in values else match[0], template)


def propose_prompt(prompts: PromptSet, task: TaskType, references: Sequence[Problem]) -> str:
    """Render the prompt of a proposer: up to K references for code_i and code_o, the one program to describe for code_f."""
    if task is TaskType.CODE_F:
        return fill(prompts.propose[task], program=references[0].program, inputs_wanted=prompts.code_f_inputs)
    shown = "".join(
        fill(prompts.reference[task], index=index, program=reference.program, **_pair(reference))
        for index, reference in enumerate(references)
    )
    return fill(prompts.propose[task], references=shown)


def solve_prompt(prompts: PromptSet, problem: Problem) -> str:
    """Render the prompt of a solver. The side that has to be inferred is not among the values for the template."""
    task, example = problem.task, problem.shown[0]
    if task is TaskType.CODE_I:
        return fill(prompts.solve[task], program=problem.program, output=example.output)
    if task is TaskType.CODE_O:
        return fill(prompts.solve[task], program=problem.program, inputs=example.inputs)
    pairs = "".join(
        fill(prompts.pair[task], index=index, inputs=pair.inputs, output=pair.output) for index, pair in enumerate(problem.shown)
    )
    return fill(prompts.solve[task], message=problem.message, pairs=pairs)


def _pair(reference: Problem) -> dict[str, str]:
    return {"inputs": reference.shown[0].inputs, "output": reference.shown[0].output}
