"""Prompts are those that the models were evaluated with, word by word."""

import json
from dataclasses import replace

import pytest
from experiments.tiny_base.tokenizer import build_tokenizer
from hypothesis import given
from hypothesis import strategies as st

from populora.core.config import SelfplayConfig
from populora.core.errors import ConfigError
from populora.core.types import TaskType
from populora.evals.benchmarks import BENCHMARKS, suite
from populora.evals.eval_records import Item
from populora.evals.models import TINY_LIMITS
from populora.evals.prompts import (
    EvalTask,
    load_template,
    parse_templates,
    problem_of,
    render,
    render_prompts,
    response_limit,
    templates,
)
from populora.tasks.render import load_prompts, solve_prompt

AZR, COMPACT = load_prompts("azr"), load_prompts("compact")
R1 = (
    "A conversation between User and Assistant. The user asks a question, and the Assistant solves it. The assistant first thinks about "
    "the reasoning process in the mind and then provides the user with the answer. The reasoning process and answer are enclosed within "
    "<think> </think> and <answer> </answer> tags, respectively, i.e., <think> reasoning process here </think> <answer> answer here "
    "</answer>. User: "
)
INSTRUCTION = "Please provide a self-contained Python script that solves the following problem in a markdown code block:"
RESPONSE = "Below is a Python script with a self-contained function that solves the problem and passes corresponding tests:"
PLAIN_CHAT = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}{% endfor %}"


def rendered(template: str, benchmark: str, fields: dict, tokenizer=None, prompts=AZR) -> str:
    chosen = BENCHMARKS[benchmark]
    return render(load_template(template, chosen, prompts), chosen, Item("one", fields), tokenizer)


def talking(template: str):
    tokenizer = build_tokenizer()
    tokenizer.chat_template = template
    return tokenizer


@pytest.mark.parametrize("chat", [PLAIN_CHAT, "{% for m in messages %}<{{ m.role }}>\n{{ m.content | trim }}\n{% endfor %}"])
def test_code_prompts_are_those_of_evalplus(chat, coding):
    oracle = pytest.importorskip("evalplus.provider.utility", reason="evalplus is the oracle of its prompts")
    tokenizer = talking(chat)
    for item in coding:
        ours = rendered("evalplus_chat", "humaneval_plus", item.fields, tokenizer)
        assert ours == oracle.make_raw_chat_prompt(item.fields["prompt"].strip() + "\n", INSTRUCTION, RESPONSE, tokenizer)
        assert ours.endswith("corresponding tests:\n```python\n")
    stops = load_template("evalplus_chat", BENCHMARKS["mbpp_plus"], AZR).stop
    assert stops[0] == "\n```\n" and set(stops[1:]) == set(oracle.EOS)


def test_a_base_without_a_chat_template_is_told_which_template_it_can_have(coding):
    with pytest.raises(ConfigError, match=r"'evalplus_chat' needs a base whose tokenizer has a chat template.*choose 'plain'"):
        rendered("evalplus_chat", "humaneval_plus", coding[0].fields, build_tokenizer())
    plain = rendered("plain", "humaneval_plus", coding[0].fields)
    assert plain == f"{INSTRUCTION}\n```\n{coding[0].fields['prompt'].strip()}\n```\n\n{RESPONSE}\n```python\n"


def test_a_text_that_chat_template_and_tokenizer_both_begin_is_begun_once(begins_texts, coding):
    template = load_template("evalplus_chat", BENCHMARKS["mbpp_plus"], load_prompts("compact"))
    prompt = render(template, BENCHMARKS["mbpp_plus"], coding[0], begins_texts)
    turns = begins_texts.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False)
    assert turns.startswith("<pad><|im_start|>") and prompt.startswith("<|im_start|>user\n")
    assert begins_texts(prompt)["input_ids"].count(0) == 1
    begins_texts.backend_tokenizer.post_processor = None  # only the chat template begins it
    assert render(template, BENCHMARKS["mbpp_plus"], coding[0], begins_texts).startswith("<pad><|im_start|>user\n")


def test_mathematics_is_asked_as_azr_asked_it():
    assert rendered("azr_math", "math500", {"problem": " What is $\\frac{1}{2}$? \n"}) == R1 + "What is $\\frac{1}{2}$?\nAssistant:"
    assert rendered("azr_math", "gsm8k", {"question": "Q", "problem": "P"}) == R1 + "Q\nAssistant:"
    boxed = rendered("azr_math_boxed", "gsm8k", {"question": "Q"})
    assert boxed == R1 + "Q\nPlease reason step by step, and put your final answer within \\boxed{}.\nAssistant:"
    assert load_template("azr_math", BENCHMARKS["aime24"], AZR).stop == ("</s>", "<|im_end|>", "<|endoftext|>")


def test_livecodebench_is_asked_as_azr_asked_it():
    task = (
        "\n# Task: You will be given a question (problem specification) and will generate a correct Python program that matches the "
        "specification and passes all tests. Your final answer should be wrapped in ```python``` tags.\n\nQuestion: Add {a}.\n\n"
    )
    with_starter = (
        "You will use the following starter code to write the solution to the problem and enclose your code within delimiters.\n"
        "```python\nclass Solution: {question}\n```\n\n"
    )
    without = (
        "Read the inputs from stdin solve the problem and write the answer to stdout (do not directly test on the sample inputs). Enclose "
        "your code within delimiters as follows. Ensure that when the python program runs, it reads the inputs, runs the algorithm and "
        "writes output to STDOUT.\n```python\n# YOUR CODE HERE\n```\n\n"
    )
    for starter, form in (("class Solution: {question}", with_starter), ("", without)):
        prompt = rendered("azr_livecodebench", "livecodebench", {"question_content": "Add {a}.", "starter_code": starter})
        assert prompt == f"{R1}{task}{form}Assistant: <think>"


def test_cruxeval_is_asked_in_the_words_of_training(crux):
    fields = crux[1].fields
    inputs = rendered("solve", "cruxeval_input", fields, prompts=COMPACT)
    assert inputs == f"<solve><code_i>```python\n{fields['code']}\n```\n```output\n[3, 3]\n```\n<think>"
    outputs = rendered("solve", "cruxeval_output", fields, prompts=COMPACT)
    assert outputs == f"<solve><code_o>```python\n{fields['code']}\n```\n```input\n3\n```\n<think>"
    problem = problem_of(BENCHMARKS["cruxeval_input"], crux[1])
    assert (problem.task, problem.shown[0].inputs, problem.shown[0].output) == (TaskType.CODE_I, "3", "[3, 3]")
    assert rendered("solve", "cruxeval_input", fields, prompts=AZR) == solve_prompt(AZR, problem)


@pytest.mark.parametrize(
    ("template", "benchmark", "message"),
    [
        ("azr", "gsm8k", "unknown prompt template 'azr': expected one of azr_livecodebench, azr_math"),
        ("solve", "humaneval_plus", "'solve' is not for humaneval_plus: expected evalplus_chat or plain"),
    ],
)
def test_templates_that_do_not_exist_or_fit_are_refused(template, benchmark, message):
    with pytest.raises(ConfigError, match=message):
        load_template(template, BENCHMARKS[benchmark], AZR)


def test_of_two_templates_for_a_benchmark_the_later_counts():
    benchmarks = suite(["code"])
    assert parse_templates("code=plain,mbpp_plus=evalplus_chat", benchmarks) == {"humaneval_plus": "plain", "mbpp_plus": "evalplus_chat"}
    assert parse_templates("mbpp_plus=evalplus_chat, code=plain", benchmarks)["mbpp_plus"] == "plain"


def test_each_benchmark_has_a_template_that_fits_and_every_template_a_version():
    for benchmark in BENCHMARKS.values():
        assert load_template(benchmark.template, benchmark, COMPACT).version == 1
    assert set(templates()) == {b.template for b in BENCHMARKS.values()} | {"plain", "azr_math_boxed"}


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=60))
def test_whatever_an_item_says_stands_in_its_prompt_as_it_is(text):
    assert rendered("plain", "humaneval_plus", {"prompt": text}) == f"{INSTRUCTION}\n```\n{text.strip()}\n```\n\n{RESPONSE}\n```python\n"
    assert rendered("azr_math", "gsm8k", {"question": text}) == f"{R1}{text.strip()}\nAssistant:"


def test_items_that_do_not_fit_are_left_out_with_the_reason(crux):
    long = Item("long", crux[0].fields | {"code": "def f(x):\n    return " + "x + " * 200 + "x"})
    rendered = render_prompts(EvalTask(BENCHMARKS["cruxeval_output"], [*crux, long]), build_tokenizer(), 512, TINY_LIMITS, COMPACT)
    assert list(rendered.prompts) == [item.id for item in crux]
    assert rendered.max_tokens == 224 and 0 < rendered.longest_prompt < 50
    assert list(rendered.left_out) == ["long"] and rendered.left_out["long"].endswith("for the response exceed the context of 512")


def test_a_response_may_be_as_long_as_in_azrs_evaluation_unless_the_context_is_too_small():
    task, tiny = EvalTask(BENCHMARKS["math500"], ()), EvalTask(BENCHMARKS["tiny"], ())
    assert response_limit(task, SelfplayConfig(), 32768, 700) == 16000
    assert response_limit(task, TINY_LIMITS, 512, 100) == 224
    assert response_limit(task, SelfplayConfig(), 4096, 700) == 3396
    assert response_limit(EvalTask(BENCHMARKS["livecodebench"], ()), SelfplayConfig(), 8192, 6000) == 4096  # half of the context
    assert response_limit(tiny, TINY_LIMITS, 512, 100) == 224
    assert response_limit(EvalTask(BENCHMARKS["math500"], (), max_tokens=100), TINY_LIMITS, 512, 500) == 100
    with pytest.raises(ConfigError, match="math500: max_tokens is 512, and the base's context of 512 tokens"):
        response_limit(EvalTask(BENCHMARKS["math500"], (), max_tokens=512), TINY_LIMITS, 512, 100)


def test_a_lowered_limit_is_recorded_and_does_not_depend_on_the_number_of_items(crux):
    long = Item("long", crux[0].fields | {"code": "def f(x):\n    return " + "x + " * 60 + "x"})
    task = EvalTask(replace(BENCHMARKS["cruxeval_output"], max_tokens=600), [*crux, long])
    rendered = render_prompts(task, build_tokenizer(), 612, TINY_LIMITS, COMPACT)
    assert len(rendered.prompts) == 4 and rendered.max_tokens == 612 - rendered.longest_prompt < 600 == rendered.lowered_from
    assert rendered.settings()["lowered_from"] == 600
    first = render_prompts(replace(task, limit=2), build_tokenizer(), 612, TINY_LIMITS, COMPACT)
    assert list(first.prompts) == ["made_0", "made_1"] and first.max_tokens == rendered.max_tokens
    by_api = render_prompts(replace(task, limit=1), None, 1 << 20, SelfplayConfig(), COMPACT)  # of a served model
    assert (list(by_api.prompts), by_api.max_tokens) == (["made_0"], 600)
    roomy = render_prompts(task, build_tokenizer(), 2048, TINY_LIMITS, COMPACT)
    assert roomy.max_tokens == 600 and not roomy.lowered_from and "lowered_from" not in roomy.settings()


@pytest.mark.parametrize("benchmark", ["cruxeval_input", "cruxeval_output"])
def test_the_tiny_base_holds_all_of_cruxeval(benchmark, benchmark_data):
    lines = (benchmark_data / "cruxeval.jsonl").read_text().splitlines()
    items = [Item(fields["id"], fields) for fields in map(json.loads, lines)]
    tokenizer = build_tokenizer()
    rendered = render_prompts(EvalTask(BENCHMARKS[benchmark], items), tokenizer, 512, TINY_LIMITS, COMPACT)
    assert len(rendered.prompts) == 800 and not rendered.left_out
    for prompt in rendered.prompts.values():
        assert tokenizer.decode(tokenizer(prompt)["input_ids"], clean_up_tokenization_spaces=False) == prompt


@pytest.mark.parametrize(("limit", "asked"), [(0, "3 items"), (5, "3 items"), (2, "the first 2 items"), (1, "the first 1 item")])
def test_a_task_says_how_many_items_are_asked_for(limit, asked):
    assert EvalTask(BENCHMARKS["gsm8k"], [Item(str(n), {}) for n in range(3)], limit=limit).asked == asked
