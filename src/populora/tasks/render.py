"""Render the prompts of proposers and solvers from the versioned data files of a domain (``prompts/*.toml``).

A set is named ``azr`` (R1-style, for real models; after the Absolute Zero Reasoner) or ``compact`` (for a tiny base).
Both open the ``<think>`` tag inside the prompt, so a response is ``…</think> <answer>…</answer>`` in either.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from populora.core.config import Config, SandboxConfig, TasksConfig
from populora.core.errors import ConfigError
from populora.core.types import Kind, Problem, TaskType
from populora.domains.prompt_files import read_prompts
from populora.domains.registry import load_domain
from populora.sandbox.runner import PYTHON

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class PromptSet:
    """One prompt file. ``references`` is K of AZR; ``inputs_wanted`` the number of inputs a proposer of kind ``f`` gives."""

    name: str
    version: int
    references: int
    inputs_wanted: int
    stop: str
    propose: dict[str, str]
    solve: dict[str, str]
    reference: dict[str, str]
    pair: dict[str, str]


Prompts = Mapping[str, PromptSet]
"""The prompt sets of a run by domain."""


@cache
def load_prompts(
    name: str, tasks: TasksConfig | None = None, domain: str = PYTHON, max_output_chars: int = SandboxConfig.max_output_chars
) -> PromptSet:
    """Load a domain's prompt set and apply the settings. Raises `ConfigError` if the domain does not have it."""
    declaration, tasks = load_domain(domain), tasks or TasksConfig()
    shipped = PromptSet(**read_prompts(declaration, name))
    rules = ", ".join(declaration.rules(tasks)) or "(none)"
    return replace(
        shipped, references=tasks.references or shipped.references, inputs_wanted=tasks.code_f_inputs or shipped.inputs_wanted,
        propose={task: fill(text, rules=rules, max_output_chars=max_output_chars) for task, text in shipped.propose.items()},
        solve={task: fill(text, rules=rules) for task, text in shipped.solve.items()},
    )  # fmt: skip


def prompts_of(config: Config) -> Prompts:
    """Load the prompt sets of a run. Raises `ConfigError` if a domain lacks its set, or if they end answers differently."""
    limit = config.sandbox.max_output_chars
    prompts = {domain: load_prompts(config.base.prompts, config.tasks, domain, limit) for domain in config.domains}
    if len({prompt_set.stop for prompt_set in prompts.values()}) > 1:
        raise ConfigError(f"the prompt sets '{config.base.prompts}' of {', '.join(config.domains)} have different `stop` texts")
    return prompts


def fill(template: str, **values: object) -> str:
    """Fill ``{name}`` placeholders in one pass: braces inside the values stay as they are."""
    return _as_format(template, tuple(values)) % values


@cache
def _as_format(template: str, names: tuple[str, ...]) -> str:
    """Write these placeholders as those of ``%``, which fills fast. The tens of thousands of prompts of a step have few templates."""
    return _PLACEHOLDER.sub(lambda found: f"%({found[1]})s" if found[1] in names else found[0], template.replace("%", "%%"))


def propose_prompt(prompts: PromptSet, task: TaskType, references: Sequence[Problem]) -> str:
    """Render the prompt of a proposer: up to K references for kinds ``i`` and ``o``, the one program to describe for kind ``f``."""
    if task.kind is Kind.PROGRAM:
        return fill(prompts.propose[task], program=references[0].program, inputs_wanted=prompts.inputs_wanted)
    shown = "".join(
        fill(prompts.reference[task], index=index, program=reference.program, **_pair(reference))
        for index, reference in enumerate(references)
    )
    return fill(prompts.propose[task], references=shown)


def solve_prompt(prompts: PromptSet, problem: Problem) -> str:
    """Render the prompt of a solver. The side that has to be inferred is not among the values for the template."""
    task, example = problem.task, problem.shown[0]
    if task.kind is Kind.INPUT:
        return fill(prompts.solve[task], program=problem.program, output=example.output)
    if task.kind is Kind.OUTPUT:
        return fill(prompts.solve[task], program=problem.program, inputs=example.inputs)
    pairs = "".join(
        fill(prompts.pair[task], index=index, inputs=pair.inputs, output=pair.output) for index, pair in enumerate(problem.shown)
    )
    return fill(prompts.solve[task], message=problem.message, pairs=pairs)


def _pair(reference: Problem) -> dict[str, str]:
    return {"inputs": reference.shown[0].inputs, "output": reference.shown[0].output}
