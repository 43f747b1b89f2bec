"""Both prompt sets render completely, keep the solution's side back, and never expand model text."""

import re
from dataclasses import replace

import pytest

from populora.core.config import AZR_BANNED_IMPORTS, TasksConfig
from populora.core.errors import ConfigError
from populora.core.types import CODE_TYPES, Example, Problem, TaskType
from populora.tasks.render import load_prompts, propose_prompt, solve_prompt

I, O, F = CODE_TYPES
PLACEHOLDER = re.compile(r"\{(references|program|inputs|output|pairs|message|index|inputs_wanted)\}")
PROGRAM, MESSAGE = "def f(secret_parameter):\n    return secret_parameter", "a secret message"
PROBLEM = Problem("p", I, PROGRAM, (Example("'secret input'", "'secret output'"),))
INDUCTION = replace(
    PROBLEM, task=F, message=MESSAGE,
    shown=tuple(Example(f"'shown {n}'", f"'gives {n}'") for n in range(5)),
    hidden=tuple(Example(f"'hidden {n}'", f"'kept {n}'") for n in range(5)),
)  # fmt: skip
both_sets = pytest.mark.parametrize("prompts", [load_prompts("azr"), load_prompts("compact")], ids=lambda prompts: prompts.name)


def all_prompts(prompts, problem: Problem, induction: Problem) -> list[str]:
    proposing = [propose_prompt(prompts, task, [problem] * prompts.references) for task in CODE_TYPES]
    return [*proposing, *(solve_prompt(prompts, replace(problem, task=task)) for task in (I, O)), solve_prompt(prompts, induction)]


@both_sets
def test_every_prompt_renders_completely_and_opens_the_reasoning(prompts):
    for text in all_prompts(prompts, PROBLEM, INDUCTION):
        assert not PLACEHOLDER.search(text)
        assert text.endswith("<think>")


@both_sets
def test_solver_prompts_never_hold_the_side_to_be_inferred(prompts):
    abduction, deduction = (solve_prompt(prompts, replace(PROBLEM, task=task)) for task in (I, O))
    assert PROGRAM in abduction and "secret output" in abduction and "secret input" not in abduction
    assert PROGRAM in deduction and "secret input" in deduction and "secret output" not in deduction
    induction = solve_prompt(prompts, INDUCTION)
    assert MESSAGE in induction and all(part in induction for pair in INDUCTION.shown for part in (pair.inputs, pair.output))
    assert not any(part in induction for part in (PROGRAM, "'hidden", "'kept"))


@both_sets
def test_proposers_see_the_references_and_a_code_f_proposer_only_the_program(prompts):
    references = [replace(PROBLEM, program=f"def f(x):\n    return {n}") for n in range(prompts.references)]
    for task in (I, O):
        text = propose_prompt(prompts, task, references)
        assert all(reference.program in text for reference in references) and "secret input" in text
    text = propose_prompt(prompts, F, [PROBLEM])
    assert PROGRAM in text and "secret input" not in text


@both_sets
def test_braces_in_model_text_are_not_expanded(prompts):
    tricky = "{program} {output} {inputs} {message} {pairs} {references} {index} {{x}} {0} {}"
    problem = Problem("p", I, tricky, (Example(tricky, tricky),))
    for text in all_prompts(prompts, problem, replace(problem, task=TaskType.CODE_F, message=tricky)):
        assert tricky in text
        assert not PLACEHOLDER.search(text.replace(tricky, ""))


def test_the_azr_set_states_what_the_verifier_demands():
    prompts = load_prompts("azr")
    assert (prompts.name, prompts.references, prompts.inputs_wanted, prompts.stop) == ("azr", 6, 10, "")
    inventing = [propose_prompt(prompts, task, [PROBLEM] * 6) for task in (I, O)]
    for text in (*inventing, solve_prompt(prompts, INDUCTION)):
        assert all(word in text for word in AZR_BANNED_IMPORTS)
    for text in inventing:
        assert "```python\n" in text and "```input\n" in text and "<snippet_5>" in text
    describing = propose_prompt(prompts, F, [PROBLEM])
    assert "exactly 10 inputs" in describing and "```message\n" in describing and "```input\n" in describing
    for text in all_prompts(prompts, PROBLEM, INDUCTION):
        assert text.count("\nUser: ") == 1 and text.endswith("\nAssistant: <think>")


def test_an_unknown_prompt_set_is_an_error():
    with pytest.raises(ConfigError, match="has no prompts"):
        load_prompts("none")


def test_settings_change_the_numbers_and_the_banned_words_of_a_prompt_set():
    prompts = load_prompts("azr", TasksConfig(references=2, code_f_inputs=4, banned_imports=("secrets",)))
    assert (prompts.references, prompts.inputs_wanted) == (2, 4)
    assert "exactly 4 inputs" in propose_prompt(prompts, F, [PROBLEM])
    inventing = propose_prompt(prompts, I, [PROBLEM] * 2)
    assert "must not be imported: secrets." in inventing and "multiprocessing" not in inventing
    assert load_prompts("compact", TasksConfig()) == load_prompts("compact")
    assert "must not be imported: (none)." in propose_prompt(load_prompts("azr", TasksConfig(banned_imports=())), I, [PROBLEM])
