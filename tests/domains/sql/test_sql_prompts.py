"""What the `azr` set of SQL states, and that it shows only what the sandbox accepts."""

import re
from dataclasses import replace

import pytest

from populora.core.config import TasksConfig
from populora.core.types import Example, Problem, task_types
from populora.domains.registry import runners_of
from populora.domains.sql.runner.database import MAX_COLUMNS, MAX_ROWS, MAX_TABLES
from populora.domains.sql.runner.guard import FUNCTIONS, MAX_STEPS
from populora.domains.sql.runner.literals import MAX_BYTES
from populora.sandbox.pool import SandboxPool
from populora.sandbox.protocol import Job, Limits
from populora.tasks.parsing import parse_proposal, parse_solution
from populora.tasks.render import load_prompts, propose_prompt, solve_prompt

I, O, F = task_types(["sql"])
PROBLEM = Problem("p", I, "SELECT a FROM t", (Example("t(a)\n'x'", "'x'"),))
INDUCTION = replace(
    PROBLEM, task=F, message="a message",
    shown=tuple(Example(f"t(a)\n'shown {n}'", f"'gives {n}'") for n in range(3)),
    hidden=tuple(Example(f"t(a)\n'hidden {n}'", f"'kept {n}'") for n in range(3)),
)  # fmt: skip
AZR = load_prompts("azr", domain="sql")


@pytest.fixture(scope="module")
def pool():
    with SandboxPool(Limits(max_output_chars=400, runners=runners_of(["sql"])), 1, allow_weak=True) as started:
        yield started


def fences(text: str, *tags: str) -> list[str]:
    return [content for tag, content in re.findall(r"```([a-z_0-9]*)\n(.*?)\n```", text, re.DOTALL) if tag in tags]


def test_the_azr_set_states_what_the_verifier_demands():
    assert (AZR.name, AZR.references, AZR.inputs_wanted, AZR.stop) == ("azr", 6, 6, "")
    inventing = [propose_prompt(AZR, task, [PROBLEM] * 6) for task in (I, O)]
    for text in (*inventing, solve_prompt(AZR, INDUCTION)):
        functions = re.search(r"- Functions: (.*?)\. CASE", text)
        assert functions and functions[1].split(", ") == sorted(FUNCTIONS)
        assert f"at most {MAX_STEPS:,} steps" in text and "refused as nondeterministic" in text and "dates or clocks" in text
    describing = propose_prompt(AZR, F, [PROBLEM])
    assert "exactly 6 databases" in describing and "```message\n" in describing
    for text in (*inventing, describing):
        assert (
            f"At most {MAX_TABLES} tables, {MAX_COLUMNS} columns in each, {MAX_ROWS:,} rows in all, and {MAX_BYTES:,} bytes in a text"
            in text
            and "at most 400 characters" in text
        )


def test_settings_change_the_numbers_of_a_set():
    prompts = load_prompts("azr", TasksConfig(references=2, code_f_inputs=4), "sql")
    assert (prompts.references, prompts.inputs_wanted) == (2, 4) and "exactly 4 databases" in propose_prompt(prompts, F, [PROBLEM])


def test_the_examples_in_the_prompts_are_texts_that_the_sandbox_accepts_as_they_are(pool):
    inventing, describing = propose_prompt(AZR, I, []), propose_prompt(AZR, F, [PROBLEM])
    abduction, deduction = (solve_prompt(AZR, replace(PROBLEM, task=task)) for task in (I, O))
    databases = [text for prompt in (inventing, describing) for text in fences(prompt, "") if "(" in text]
    databases += fences(abduction, "input")
    results = fences(deduction, "output")
    assert len(databases) == 3 and len(set(databases)) == 1 and len(results) == 1
    written = pool.run([Job("parse", texts=(databases[0],), as_inputs=True, domain="sql"), Job("parse", texts=(results[0],), domain="sql")])
    assert [verdict.values[0].literal for verdict in written] == [databases[0], results[0]]
    statement = "SELECT city.name, days, people FROM visit JOIN city ON city.name = visit.city ORDER BY days DESC"
    (verdict,) = pool.run([Job("run", statement, (databases[0],), domain="sql")], twice=True)
    assert verdict.values[0].literal == "'Ulm',2,126000\n'Bonn',0.5,335000"


def test_the_reply_formats_of_the_azr_set_are_what_the_parser_reads():
    """The formats that the prompts show are themselves replies in form."""
    inventing, describing = propose_prompt(AZR, O, []), propose_prompt(AZR, F, [PROBLEM])
    proposal = parse_proposal(O, inventing[inventing.index("### Reply format") :], AZR.inputs_wanted)
    assert not isinstance(proposal, str) and (proposal.program, proposal.inputs) == ("SELECT ...", ("table(column,column)\n...",))
    proposal = parse_proposal(F, describing[describing.index("### Reply format") :], 2)
    assert not isinstance(proposal, str) and (proposal.inputs, proposal.message) == (("first database", "second database"), "your message")
    assert parse_solution(F, solve_prompt(AZR, INDUCTION)) == "SELECT ..."
    abduction, deduction = (solve_prompt(AZR, replace(PROBLEM, task=task)) for task in (I, O))
    assert (parse_solution(I, abduction) or "").startswith("city(name TEXT") and (parse_solution(O, deduction) or "").startswith("'Ulm',")
