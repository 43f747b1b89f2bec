"""Every prompt set of every domain renders completely, keeps the solution's side back, and never expands model text."""

import re
from dataclasses import dataclass, replace

import pytest

from populora.core.types import Example, Problem, TaskType, task_types
from populora.tasks.render import PromptSet, load_prompts, propose_prompt, solve_prompt

PLACEHOLDER = re.compile(r"\{(references|program|inputs|output|pairs|message|index|inputs_wanted|rules)\}")
MESSAGE = "a secret message"
PROGRAMS = {
    "python": ("def f(secret_parameter):\n    return secret_parameter", "'{}'"),
    "sql": ("SELECT secret_column FROM t", "t(secret_column)\n'{}'"),
}
"""A program of each domain, and an input with a gap."""


@dataclass(frozen=True)
class Case:
    """A prompt set with a problem of kind ``i``, one of kind ``f``, and its domain's three types."""

    prompts: PromptSet
    problem: Problem
    induction: Problem
    types: tuple[TaskType, ...]

    def all_prompts(self, problem: Problem, induction: Problem) -> list[str]:
        inference, deduction, _ = self.types
        proposing = [propose_prompt(self.prompts, task, [problem] * self.prompts.references) for task in self.types]
        solving = [solve_prompt(self.prompts, replace(problem, task=task)) for task in (inference, deduction)]
        return [*proposing, *solving, solve_prompt(self.prompts, induction)]


@pytest.fixture(params=[(name, domain) for domain in PROGRAMS for name in ("azr", "compact")], ids="-".join)
def case(request):
    name, domain = request.param
    program, inputs = PROGRAMS[domain]
    types = task_types([domain])
    problem = Problem("p", types[0], program, (Example(inputs.format("secret input"), "'secret output'"),))
    shown = tuple(Example(inputs.format(f"shown {n}"), f"'gives {n}'") for n in range(3))
    hidden = tuple(Example(inputs.format(f"hidden {n}"), f"'kept {n}'") for n in range(3))
    induction = replace(problem, task=types[2], message=MESSAGE, shown=shown, hidden=hidden)
    return Case(load_prompts(name, domain=domain), problem, induction, types)


def test_every_prompt_renders_completely_and_opens_the_reasoning(case):
    for text in case.all_prompts(case.problem, case.induction):
        assert not PLACEHOLDER.search(text)
        assert text.endswith("<think>")


def test_solver_prompts_never_hold_the_side_to_be_inferred(case):
    program = case.problem.program
    abduction, deduction = (solve_prompt(case.prompts, replace(case.problem, task=task)) for task in case.types[:2])
    assert program in abduction and "secret output" in abduction and "secret input" not in abduction
    assert program in deduction and "secret input" in deduction and "secret output" not in deduction
    induction = solve_prompt(case.prompts, case.induction)
    assert MESSAGE in induction and all(part in induction for pair in case.induction.shown for part in (pair.inputs, pair.output))
    assert not any(part in induction for part in (program, "'hidden", "'kept"))


def test_proposers_see_the_references_and_those_of_kind_f_only_the_program(case):
    references = [
        replace(case.problem, program=case.problem.program.replace("secret", f"n{number}")) for number in range(case.prompts.references)
    ]
    for task in case.types[:2]:
        text = propose_prompt(case.prompts, task, references)
        assert all(reference.program in text for reference in references) and "secret input" in text
    text = propose_prompt(case.prompts, case.types[2], [case.problem])
    assert case.problem.program in text and "secret input" not in text


def test_braces_in_model_text_are_not_expanded(case):
    tricky = "'{program} {output} {inputs} {message} {pairs} {references} {index} {{x}} {0} {}'"
    problem = Problem("p", case.types[0], tricky, (Example(tricky, tricky),))
    for text in case.all_prompts(problem, replace(problem, task=case.types[2], message=tricky)):
        assert tricky in text
        assert not PLACEHOLDER.search(text.replace(tricky, ""))


def test_the_azr_set_is_one_message_of_the_user_and_an_open_reply_and_the_compact_set_has_no_turns(case):
    turns = {"azr": 1, "compact": 0}[case.prompts.name]
    for text in case.all_prompts(case.problem, case.induction):
        assert text.count("\nUser: ") == turns and text.endswith("\nAssistant: <think>" * turns)
