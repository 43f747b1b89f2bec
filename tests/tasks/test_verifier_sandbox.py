"""The verifier with the real sandbox: task semantics, hostile proposals and hostile answers."""

from dataclasses import replace

import numpy as np
import pytest
from experiments.tiny_base.corpus import propose_document, solve_document
from experiments.tiny_base.mixtures import REASONING
from experiments.tiny_base.samples import draw_sample

from populora.core.config import TasksConfig
from populora.core.types import CODE_TYPES, Example, Generation, Problem, TaskType
from populora.sandbox.pool import SandboxPool
from populora.sandbox.protocol import Job, Limits
from populora.tasks.attempts import SolveRequest
from populora.tasks.proposals import ProposalRequest
from populora.tasks.render import load_prompts
from populora.tasks.verifier import TaskVerifier

I, O, F = CODE_TYPES
ADD = "def f(x):\n    return x + 1"
SOURCE = Problem("source", O, ADD, (Example("3", "4"),))
MIXTURE = replace(REASONING, styles={"direct": 1, "brief": 1, "full": 1})


@pytest.fixture(scope="module")
def pool():
    with SandboxPool(Limits(cpu_seconds=1.0), workers=1, allow_weak=True) as started:
        yield started


@pytest.fixture(scope="module")
def verifier(pool) -> TaskVerifier:
    return TaskVerifier(pool, {"python": load_prompts("compact")}, TasksConfig(), seed=0)


def generation(content: str) -> Generation:
    return Generation(f"so</think><answer>{content}</answer>", (), (), (), 0.0)


def fenced(tag: str, text: str) -> str:
    return f"```{tag}\n{text}\n```"


def asked(task: TaskType, *responses: Generation, source: Problem = SOURCE):
    return ProposalRequest("", 0, len(responses), (), "T0", task, 0, 1, "p", source), responses


def proposed(program: str, inputs: str = "3", task: TaskType = O):
    return asked(task, generation(f"{fenced('python', program)}\n{fenced('input', inputs)}"))


def described(program: str, *inputs: str, message: str = "a hint"):
    content = "\n".join([*(fenced("input", text) for text in inputs), fenced("message", message)])
    return asked(F, generation(content), source=Problem("source", O, program, (Example("3", "4"),)))


def attempted(problem: Problem, *responses: Generation):
    return SolveRequest("", 0, len(responses), (), "S0", problem), responses


def attempt(problem: Problem, *contents: str):
    return attempted(problem, *map(generation, contents))


def returning(expression: str) -> str:
    return f"def f(x):\n    return {expression}"


# -- the tiny base's own documents ---------------------------------------------------------------------------------


REMEMBERS = {
    "the program": "first = []\ndef f(x):\n    if not first: first.append(x)\n    return x - first[0]",
    "a module": "import math\ndef f(x):\n    math.first = math.__dict__.setdefault('first', x)\n    return x - math.first",
}


@pytest.mark.parametrize("place", REMEMBERS)
def test_what_an_input_leaves_behind_decides_no_verdict_of_another(pool, place):
    """In the program it is gone with the input. In a module it stays, and the problem pays nobody."""
    for seed in range(4):
        judge = TaskVerifier(pool, {"python": replace(load_prompts("compact"), inputs_wanted=4)}, TasksConfig(), seed)
        ((proposal,),) = judge.validate([described(REMEMBERS[place], "3", "5", "7", "11")])
        if place == "the program":
            assert proposal.rejection == "constant_outputs", "each input is the first one"
            continue
        assert proposal.problem
        ((attempt,),) = judge.judge([attempted(proposal.problem, generation(fenced("python", REMEMBERS[place])))])
        assert attempt.void != attempt.correct, "the program is right as an answer, unless nobody is paid"


def test_a_large_table_of_a_program_counts_once_whatever_the_number_of_inputs():
    program = "TABLE = [0] * 5_000_000\ndef f(x):\n    return TABLE[0] + x"  # 40 MB
    with SandboxPool(Limits(cpu_seconds=10.0, memory_mb=300), workers=1, allow_weak=True) as pool:
        (verdict,) = pool.run([Job("run", program, tuple(map(str, range(10))))])
    assert verdict.ok, verdict


@pytest.mark.parametrize("task", CODE_TYPES)
def test_documents_of_the_tiny_base_are_valid_and_their_solutions_correct(verifier, task):
    rng, prompts = np.random.default_rng(5), load_prompts("compact")
    proposals, attempts = [], []
    for index in range(6):
        sample = draw_sample(rng, 1 + index)
        response = propose_document(rng, task, sample, prompts, MIXTURE).response
        source = sample.problem(O)
        proposals.append(asked(task, Generation(response, (), (), (), 0.0), source=source))
        problem = sample.problem(task) if task is not F else replace(sample.problem(F), hidden=tuple(map(sample.example, (3, 4, 5))))
        response = solve_document(rng, task, sample, prompts, MIXTURE).response
        attempts.append(attempted(problem, Generation(response, (), (), (), 0.0)))
    validated = [proposal for (proposal,) in verifier.validate(proposals)]
    results = [attempt for (attempt,) in verifier.judge(attempts)]
    assert [proposal.rejection for proposal in validated] == [""] * 6
    assert all(pair.inputs in item.generation.text for item in validated for pair in item.problem.shown)
    assert [result.reason for result in results] == [""] * 6 and not any(result.void for result in results)


# -- what a real model replies to the azr prompts ------------------------------------------------------------------


def replied(thought: str, *parts: str) -> Generation:
    """After the prompt's ``<think>``: prose, an answer with some words around its fences, and more turns than it was asked for."""
    answer = "Here it is.\n\n" + "\n\n".join(parts)
    return Generation(
        f" {thought}\n</think>\n<answer>\n{answer}\n</answer>\n\nUser: Thanks!\n\nAssistant: You are welcome", (), (), (), 0.0
    )


def test_replies_in_the_style_of_the_azr_prompts_become_problems_and_are_judged(pool):
    judge = TaskVerifier(pool, {"python": load_prompts("azr")}, TasksConfig(), 0)
    program = "def helper(word):\n    return word[::-1]\n\n\ndef f(word, times):\n    return helper(word) * times"
    told = fenced("message", "The first argument is a word.")
    ten = [fenced("input", f"'ab{letter}', {n}") for n, letter in enumerate("cdefghijkl", start=1)]
    inventing = replied("I want something with a helper.", fenced("python", program), fenced("input", "'abc', 2"))
    source = Problem("source", O, program, (Example("'abc', 2", "'cbacba'"),))
    described, one_too_few = (replied("Ten inputs.", *inputs, told) for inputs in (ten, ten[1:]))
    requests = [asked(I, inventing), asked(O, inventing), asked(F, described, one_too_few, source=source)]
    proposals = [proposal for validated in judge.validate(requests) for proposal in validated]
    assert [proposal.rejection for proposal in proposals] == ["", "", "", "wrong_input_count"]
    problems = [proposal.problem for proposal in proposals if proposal.problem]
    assert problems[1].shown == source.shown and (len(problems[2].shown), len(problems[2].hidden)) == (5, 5)
    right = ["'abcabc', 1", "'cbacba'", "def f(a, b):\n    return ''.join(reversed(a)) * b"]
    wrong = ["'abc', 3", "'abcabc'", "def f(a, b):\n    return a * b"]
    for answers, correct in ((right, [True] * 3), (wrong, [False] * 3)):  # any input with the right output will do
        tags = ("input", "output", "python")
        triples = zip(problems, tags, answers, strict=True)
        responses = [attempted(problem, replied("Let me see.", fenced(tag, text))) for problem, tag, text in triples]
        assert [result.correct for (result,) in judge.judge(responses)] == correct


# -- proposals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "kind"),
    [
        ("def f(x):\n    return x +", "error"),
        ("def g(x):\n    return x", "error"),
        (returning("1 // 0"), "error"),
        ("def f(x):\n    raise StopIteration", "error"),
        ("def f(x):\n    raise SystemExit", "error"),
        (returning("float('nan')"), "error"),
        (returning("object()"), "error"),
        (returning("lambda: 1"), "error"),
        (returning("'a' * 10000"), "error"),
        (returning("f(x)"), "error"),
        ("import random\ndef f(x):\n    return 1", "error"),
        ("def f(x):\n    import subprocess\n    return 1", "error"),
        ("from os import path\ndef f(x):\n    return 1", "error"),
        ("def f(x):\n    while True:\n        pass", "out_of_resources"),
        ("def f(x):\n    while True:\n        x = x * x + 2", "out_of_resources"),
        ("def f(x):\n    s = 'ab'\n    while True:\n        s += s", "out_of_resources"),
        (returning("list({'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'})"), "rejected_nondeterministic"),
        (returning("[hash('abc')]"), "rejected_nondeterministic"),
        (returning("'</thi' + 'nk>'"), "contains_markup"),
        ("def f(x):\n    return " + "-" * 30_000 + "1", "error"),
    ],
)  # fmt: skip
def test_bad_programs_are_rejected_by_name(verifier, program, kind):
    ((proposal,),) = verifier.validate([proposed(program)])
    assert proposal.problem is None and proposal.formatted
    assert proposal.rejection.split(":")[0] == kind, proposal.rejection


def test_inputs_are_written_back_without_white_space_and_comments(verifier):
    ((proposal,),) = verifier.validate([proposed("def f(a, b):\n    return len(a) + b", "[1,2 ,  3] ,4  # the answer is 9")])
    assert proposal.problem is not None and proposal.problem.shown == (Example("[1, 2, 3], 4", "7"),)


EXPRESSIONS = (
    "None", "True", "-0.0", "1e300", "(x,)", "()", "[]", "{}", "set()", "{3, 1, 2}", "frozenset('ab')", "{'b': 1, 'a': (2, [x])}",
    "'quote \\' and \" and \\n'", "'ünï'", "b'ab'", "10**50", "float('inf')", "-float('inf')", "'\\ud800'", "'\\u2028'", "''",
)  # fmt: skip


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_output_that_is_accepted_can_be_answered(verifier, expression):
    ((proposal,),) = verifier.validate([proposed(returning(expression))])
    assert proposal.problem is not None, proposal.rejection
    output = proposal.problem.shown[0].output
    ((right, wrong),) = verifier.judge([attempt(proposal.problem, fenced("output", output), fenced("output", "['other']"))])
    assert (right.correct, right.void) == (True, False) and not wrong.correct


# -- answers -------------------------------------------------------------------------------------------------------

DOUBLE = Problem("i", I, "def f(x, y=0):\n    return x * 2 + y", (Example("13", "26"),))
HOSTILE = (
    "0) or (26", "0) or print(True", "setattr(f, '__code__', (lambda x: 26).__code__) or 0", "f", "26 if True else 0", "\0",
    "type('X', (), {'__eq__': lambda s, o: True})()", "__import__('os')", "[" * 3000, "-" * 30_000 + "1", "9" * 20_000,
)  # fmt: skip


INPUTS = [("13", True), ("10, 6", True), ("(13)", True), ("13.0", True), ("12", False), ("'13'", False), ("", False)]


@pytest.mark.parametrize(("inputs", "correct"), INPUTS)
def test_any_input_with_the_right_output_solves_code_i(verifier, inputs, correct):
    ((result,),) = verifier.judge([attempt(DOUBLE, fenced("input", inputs))])
    assert result.correct is correct and not result.void


def test_an_empty_input_calls_the_program_without_arguments(verifier):
    shown = (Example("2", "3"),)
    problems = [Problem(name, I, f"def f({name}):\n    return 3", shown) for name in ("x=2", "x")]
    (optional,), (needed,) = verifier.judge([attempt(problem, fenced("input", "")) for problem in problems])
    assert optional.correct and (needed.correct, needed.reason) == (False, "error:exception:TypeError")


@pytest.mark.parametrize(
    ("problem", "tag", "texts"),
    [
        (DOUBLE, "input", HOSTILE),
        (Problem("o", O, returning("26"), (Example("3", "26"),)), "output", (*HOSTILE, "f(3)", "x", "13 * 2", "[26][0]")),
    ],
    ids=["code_i", "code_o"],
)
def test_hostile_answers_are_never_correct(verifier, problem, tag, texts):
    (results,) = verifier.judge([attempt(problem, *(fenced(tag, text) for text in texts))])
    for text, result in zip(texts, results, strict=True):
        assert not result.correct and not result.void and result.reason.startswith("error:"), text[:40]


@pytest.mark.parametrize(
    ("gold", "answer", "python", "strict"),
    [("1", "True", True, False), ("1", "1.0", True, False), ("[1, 'a']", '[1,"a"]', True, True), ("(1, 2)", "[1, 2]", False, False),
     ("'1+1'", "'2'", False, False), ("{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}", True, True), ("'a'", "a", False, False)],
)  # fmt: skip
def test_code_o_compares_values(pool, gold, answer, python, strict):
    problem = Problem("o", O, returning(gold), (Example("3", gold),))
    for equality, correct in (("python", python), ("strict", strict)):
        judge = TaskVerifier(pool, {"python": load_prompts("compact")}, TasksConfig(equality=equality), 0)
        ((result,),) = judge.judge([attempt(problem, fenced("output", answer))])
        assert result.correct is correct


ADDING = Problem("f", F, ADD, (Example("1", "2"), Example("2", "3")), (Example("5", "6"), Example("9", "10")), "adds one")


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("def f(n):\n    return 1 + n", ""),
        ("def add(a, b):\n    return a + b\n\n\ndef f(n):\n    return add(n, 1)", ""),
        ("def f(n):\n    return {1: 2, 2: 3}.get(n)", "wrong"),
        ("def f(n):\n    return {5: 6}.get(n, 0)", "wrong"),
        ("class Equal:\n    def __eq__(self, other):\n        return True\n\n\ndef f(n):\n    return Equal()", "error"),
        ("class Number(int):\n    def __eq__(self, other):\n        return True\n\n\ndef f(n):\n    return Number(n)", "error"),
        ("import random\n\n\ndef f(n):\n    return n + 1", "error"),
        ("def f(n):\n    while n:\n        pass", "out_of_resources"),
        ("def g(n):\n    return n + 1", "error"),
        ("f = None", "error"),
    ],
)
def test_code_f_solutions_are_run_on_the_hidden_inputs(verifier, program, reason):
    ((result,),) = verifier.judge([attempt(ADDING, fenced("python", program))])
    assert result.reason.split(":")[0] == reason and result.correct is (reason == "") and not result.void
