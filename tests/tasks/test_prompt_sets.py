"""What the `azr` set of Python states, and what settings change; `tests/domains/test_prompts_of_domains.py` is about all sets."""

from dataclasses import replace

import pytest

from populora.core.config import AZR_BANNED_IMPORTS, BaseConfig, Config, SandboxConfig, TasksConfig
from populora.core.errors import ConfigError
from populora.core.types import CODE_TYPES, Example, Problem
from populora.tasks.render import fill, load_prompts, prompts_of, propose_prompt, solve_prompt

I, O, F = CODE_TYPES
PROBLEM = Problem("p", I, "def f(x):\n    return x", (Example("'x'", "'x'"),))
INDUCTION = replace(
    PROBLEM, task=F, message="a message",
    shown=tuple(Example(f"'shown {n}'", f"'gives {n}'") for n in range(5)),
    hidden=tuple(Example(f"'hidden {n}'", f"'kept {n}'") for n in range(5)),
)  # fmt: skip


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


def test_a_template_is_filled_once_and_its_other_signs_stay():
    assert fill("5 % of {a} in {b}, {{a}} %s %(a)s", a="{b} %s") == "5 % of {b} %s in {b}, {{b} %s} %s %(a)s"


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
    longer = prompts_of(Config(base=BaseConfig(prompts="azr"), sandbox=SandboxConfig(max_output_chars=1234)))["python"]
    assert "at most 1234 characters" in propose_prompt(longer, I, [PROBLEM]) and "at most 400 characters" in inventing
    assert "must not be imported: (none)." in propose_prompt(load_prompts("azr", TasksConfig(banned_imports=())), I, [PROBLEM])
