"""Responses of models, well-behaved and hostile, taken apart as text."""

import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from experiments.tiny_base.corpus import propose_document, solve_document
from experiments.tiny_base.mixtures import REASONING
from experiments.tiny_base.samples import draw_sample
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from populora.core.types import CODE_TYPES, TaskType
from populora.tasks.parsing import (
    ProposalText,
    answer_text,
    is_formatted,
    leaks_program,
    parse_proposal,
    parse_solution,
    reasons,
    search_solution,
)
from populora.tasks.render import load_prompts

I, O, F = CODE_TYPES
MIXTURE = replace(REASONING, styles={"direct": 1, "brief": 1, "full": 1})
PIECES = (
    "<think>",
    "</think>",
    "<answer>",
    "</answer>",
    "```",
    "```python\n",
    "```input\n",
    "```output\n",
    "```message\n",
    "\n```",
    "Assistant:",
)
hostile_text = st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=40).map("".join)
MARKS = (
    "# Input:",
    "#Output:",
    "input(",
    "output((",
    ")",
    "<input>",
    "<OUTPUT>",
    "</",
    "the input is",
    "The output is:",
    ".",
    "\n",
    " 1",
    "[2]",
)
lenient_text = st.lists(st.sampled_from(MARKS) | st.text(max_size=3), max_size=12).map("".join)
REGRADE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "regrade.py"))
plain_text = (
    st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp"), exclude_characters="`<"), min_size=1).map(str.strip).filter(bool)
)


def fenced(tag: str, text: str) -> str:
    return f"```{tag}\n{text}\n```"


@pytest.mark.parametrize(
    ("response", "expected"),
    [("</think> <answer>1</answer>", False), (" \n</think><answer>", False), ("x = 1 </think> <answer>", True), ("no tags", True)],
)
def test_response_reasons_if_it_says_something_before_the_think_part_ends(response, expected):
    assert reasons(response) is expected


def proposal(program: str = "def f(x):\n    return x + 1", inputs: str = "3") -> str:
    return f"{fenced('python', program)}\n{fenced('input', inputs)}"


def description(*inputs: str, message: str = "adds one") -> str:
    return "\n".join([*(fenced("input", text) for text in inputs), fenced("message", message)])


# -- format and answer ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("response", "formatted"),
    [
        ("</think><answer></answer>", True),
        ("so\nit is </think> \n <answer>7</answer>", True),
        (" </think><answer>7</answer> and more text", True),
        ("a </think> b </think><answer>7</answer>", True),
        ("", False),
        ("<answer>7</answer>", False),
        ("</think> so <answer>7</answer>", False),
        ("</think><answer>7", False),
        ("</answer></think><answer>7", False),
        ("thought </think></think>", False),
        ("<think>7</think>", False),
        ("</think>Assistant:<answer>7</answer>", False),
    ],
)
def test_the_format_check_wants_an_answer_right_after_the_thought(response, formatted):
    assert is_formatted(response) is formatted


def test_the_last_answer_counts():
    assert answer_text("</think><answer>1</answer><answer>2</answer> 3") == "2"
    assert answer_text("</think><answer>a</answer> b </answer>") == "a"
    assert answer_text("no tags") == ""


def test_an_invented_further_turn_is_not_the_answer():
    response = "</think> <answer>1</answer>\nUser: next\nAssistant: <think></think><answer>2</answer>"
    assert is_formatted(response) and answer_text(response) == "1"


# -- proposals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [I, O])
def test_first_program_and_first_input_are_taken(task):
    answer = f"{proposal('def f(x): return x', '1')}\n{proposal('def f(x): return 0', '2')}"
    assert parse_proposal(task, answer, 6) == ProposalText("def f(x): return x", ("1",))


def test_a_fence_without_language_is_a_program_and_order_does_not_matter():
    answer = f"Here it is:\n{fenced('input', ' 1, 2 ')}\n{fenced('', 'def f(a, b): return a')}"
    assert parse_proposal(O, answer, 6) == ProposalText("def f(a, b): return a", ("1, 2",))
    assert parse_proposal(O, answer.replace("```\ndef", "``` Python \ndef"), 6) == ProposalText("def f(a, b): return a", ("1, 2",))


def test_the_last_inputs_of_a_code_f_proposal_are_taken():
    assert parse_proposal(F, description("1", "2", "3"), 2) == ProposalText("", ("2", "3"), "adds one")


@pytest.mark.parametrize(
    ("task", "answer", "reason"),
    [
        (I, " \n", "no_answer"),
        (I, "def f(x): return x", "no_program"),
        (I, fenced("input", "1"), "no_program"),
        (I, proposal(program=" "), "no_program"),
        (I, fenced("javascript", "f = x => x") + fenced("input", "1"), "no_program"),
        (O, fenced("python", "def f(x): return x"), "no_input"),
        (O, proposal(inputs=""), "no_input"),
        (O, "```python\ndef f(x): return x", "no_program"),
        (F, fenced("message", "hi"), "no_input"),
        (F, description("1"), "wrong_input_count"),
        (F, description("1", " "), "no_input"),
        (F, description("1", "2", message=" "), "no_message"),
        (F, fenced("input", "1") + fenced("input", "2"), "no_message"),
        (I, proposal(inputs="1\n2"), "multiline_input"),
        (I, proposal(inputs="'a\u2028b'"), "multiline_input"),
        (F, description("1", "[2,\n3]"), "multiline_input"),
    ],
)
def test_incomplete_proposals_are_rejected_by_name(task, answer, reason):
    assert parse_proposal(task, answer, 2) == reason


@pytest.mark.parametrize(
    "smuggled", ["</think>", "<think>", "<answer>", "</answer>", "Assistant:", "<|endoftext|>", "<eos>", "<solve>", "<code_f>", "<sql_o>"]
)
def test_markup_inside_a_proposal_is_rejected(smuggled):
    assert parse_proposal(O, proposal(program=f"def f(x):\n    return '{smuggled}'"), 2) == "contains_markup"
    assert parse_proposal(I, proposal(inputs=f"'{smuggled}'"), 2) == "contains_markup"
    assert parse_proposal(F, description("1", "2", message=f"say {smuggled}"), 2) == "contains_markup"


def test_a_nested_fence_ends_the_program_and_cannot_hide_in_it():
    answer = proposal(program='def f(x):\n    """\n```input\n9\n```\n    """\n    return x')
    text = parse_proposal(O, answer, 2)
    assert isinstance(text, ProposalText) and "```" not in text.program and "return x" not in text.program


def test_a_response_that_closes_its_answer_inside_a_string_loses_the_rest():
    response = f"</think><answer>{proposal(program='def f(x):' + chr(10) + '    return ' + repr('</answer>'))}</answer>"
    assert parse_proposal(O, answer_text(response), 2) == "no_program"


def test_a_message_leaks_the_program_whatever_its_white_space():
    program = "def f(x):\n    return x + 1"
    assert leaks_program("it is def f(x):  return x+1 !", "def f(x):\n\treturn x + 1")
    assert leaks_program(f"look: {program}", program)
    assert not leaks_program("give x plus 1", program)


# -- solutions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("task", "tag"), [(I, "input"), (O, "output"), (F, "python"), (F, "")])
def test_the_last_fitting_fence_is_the_solution(task, tag):
    assert parse_solution(task, fenced(tag, "first") + fenced(tag, " last ") + fenced("text", "other")) == "last"


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        (I, ""),
        (I, "3"),
        (I, fenced("output", "3")),
        (O, fenced("output", " ")),
        (O, "```output\n3"),
        (F, fenced("input", "3")),
        (F, "The input is 3"),
    ],
)
def test_no_fitting_fence_is_no_solution(task, answer):
    assert parse_solution(task, answer) is None


def test_an_empty_input_is_an_empty_list_of_arguments():
    assert parse_solution(I, fenced("input", "")) == parse_solution(I, fenced("input", " \n ")) == ""
    assert parse_solution(I, fenced("input", "3") + fenced("input", "")) == ""  # the last one counts


# -- any text at all -----------------------------------------------------------------------------------------------


@given(st.text(), plain_text, plain_text)
def test_a_rendered_proposal_round_trips(thought, program, inputs):
    assume("Assistant:" not in thought + program + inputs)
    response = f"{thought}</think> <answer>{proposal(program, inputs)}</answer>"
    assert is_formatted(response)
    assert parse_proposal(I, answer_text(response), 2) == ProposalText(program, (inputs,))


@given(st.lists(plain_text, min_size=3, max_size=3), plain_text)
def test_a_rendered_code_f_proposal_round_trips(inputs, message):
    assume("Assistant:" not in "".join([*inputs, message]))
    assert parse_proposal(F, description(*inputs, message=message), 3) == ProposalText("", tuple(inputs), message)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(CODE_TYPES))
def test_the_documents_of_the_tiny_base_round_trip(seed, task: TaskType):
    rng, prompts = np.random.default_rng(seed), load_prompts("compact")
    sample = draw_sample(rng, budget=3)
    response = propose_document(rng, task, sample, prompts, MIXTURE).response
    assert is_formatted(response)
    proposed = parse_proposal(task, answer_text(response), prompts.inputs_wanted)
    assert isinstance(proposed, ProposalText) and len(proposed.inputs) == (prompts.inputs_wanted if task is F else 1)
    response = solve_document(rng, task, sample, prompts, MIXTURE).response
    expected = {I: sample.example(0).inputs, O: sample.example(0).output, F: sample.source}[task]
    assert is_formatted(response) and parse_solution(task, answer_text(response)) == expected


@pytest.mark.parametrize(
    "text",
    ["```" * 60_000, "```input\n" * 40_000, "</think> " * 40_000, "`" * 200_000, "<answer>" * 50_000, "</think>" + " " * 200_000,
     "input(" * 50_000, "# input:" * 50_000, "<input>" * 50_000, "the input is" * 50_000],
)  # fmt: skip
def test_long_hostile_texts_are_read_in_linear_time(text):
    for task in CODE_TYPES:  # a quadratic reader would take minutes here
        assert is_formatted(text) is False
        assert isinstance(parse_proposal(task, text, 2), str)
        parse_solution(task, text)
        search_solution(task, text)


@pytest.mark.parametrize(
    ("task", "answer", "expected"),
    [
        (I, "# Input: 1, 'a'\n", "1, 'a'"), (O, "so\n# Output: [1]\nindeed", "[1]"), (I, "I call input([1, 2], (3,)) here", "[1, 2], (3,)"),
        (I, "<input>5</input>", "5"), (O, "<output>\n{1: 2}\n</output>", "{1: 2}"), (O, "Hence the output is: 'x'.", "'x'"),
        (O, "the output is 1\nno, the output is 2.", "2"), (O, "[1, 2]", "[1, 2]"), (I, " 7 ", "7"),
        (O, "the output is\n", "the output is"),
        (O, "# Input: 5\n# Output: 6", "6"), (O, "", ""), (F, "def f(x): return x", ""), (I, "input(input(", "input(input("),
    ],
)  # fmt: skip
def test_a_lenient_reader_finds_answers_outside_fences_as_azr_does(task, answer, expected):
    assert search_solution(task, answer) == expected


@given(text=lenient_text, task=st.sampled_from([I, O]))
def test_the_script_that_grades_again_finds_the_same_answers_outside_fences(text, task):
    assert REGRADE["outside_fences"]({I: "input", O: "output"}[task], text) == search_solution(task, text)


@given(hostile_text, st.sampled_from(CODE_TYPES))
def test_no_text_raises(text, task):
    is_formatted(text)
    assert isinstance(parse_proposal(task, answer_text(text), 2), (str, ProposalText))
    solution = parse_solution(task, answer_text(text))
    assert solution is None or ((solution or task is I) and "```" not in solution)
    assert search_solution(task, text) in text
