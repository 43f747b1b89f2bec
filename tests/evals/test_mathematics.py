"""Gold answers, the readings of a completion, and the verdict; but for one test, math-verify is called here, without the sandbox."""

import pytest

from populora.core.errors import ConfigError
from populora.evals.benchmarks import BENCHMARKS
from populora.evals.eval_records import Item
from populora.evals.graders.mathematics import LONGEST_ANSWER, gold_of, grade_answers, grade_mathematics

LONG = 1 << 18


def never(gold, answer):
    raise AssertionError(f"compared {gold} and {answer}")


def graded(compare, benchmark, completion, **fields):
    return grade_answers(compare, BENCHMARKS[benchmark], Item("7", fields), completion)


@pytest.mark.parametrize(
    ("benchmark", "fields", "gold"),
    [
        ("aime24", {"answer": "204"}, "204"),
        ("amc23", {"answer": 27.0}, "27"),
        ("amc23", {"answer": 0.5}, "0.5"),
        ("math500", {"solution": "no \\boxed{1} but $\\boxed{x=5}$", "answer": "5"}, "x=5"),
        ("minerva_math", {"solution": "\\boxed{4.5e33} J"}, "4.5e33"),
        ("gsm8k", {"answer": "16 - 3\n#### 1,234"}, "1,234"),
        ("olympiadbench", {"final_answer": ["$A=1$, $B=2$."]}, "A=1, B=2"),
    ],
)
def test_the_gold_answer_is_taken_from_where_azr_takes_it(benchmark, fields, gold):
    assert gold_of(BENCHMARKS[benchmark], Item("7", fields)) == gold


@pytest.mark.parametrize(
    ("benchmark", "fields"),
    [("aime24", {}), ("aime24", {"answer": " "}), ("math500", {"solution": "no box"}), ("olympiadbench", {"final_answer": []})],
)
def test_an_item_without_a_gold_answer_is_named(benchmark, fields):
    with pytest.raises(ConfigError, match=f"{benchmark}, item '7': expected its answer"):
        gold_of(BENCHMARKS[benchmark], Item("7", fields))


@pytest.mark.parametrize(
    ("completion", "reason", "expected"),
    [
        ("\\boxed{18}", "", (True, True)),
        ("The answer is 18.", "", (False, True)),
        ("\\boxed{19} or 18", "wrong", (False, False)),
        ("\\boxed{18} \\boxed{1", "no_answer", (False, False)),
        ("\\boxed{$$}", "unreadable:nothing", (False, False)),
        ("", "no_answer", (False, False)),
        ("\\boxed{18} <answer>19</answer>", "wrong", (True, False)),
    ],
)
def test_a_completion_is_graded_in_both_readings(compare, completion, reason, expected):
    grade = graded(compare, "aime24", completion, answer="18")
    assert (grade.item_id, grade.reason, grade.correct) == ("7", reason, reason == "")
    assert grade.modes == dict(zip(("strict", "lenient"), expected, strict=True))


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("2", "two"),
        ("12", "Total: 12"),
        ("27", "(C) 27"),
        ("73", "Answer: $73$."),
        ("1234", "1 234"),
        ("62.5\\%", "0.625"),
        ("3+4i", "3+4j"),
        ("864 \\mbox{ inches}^2", "864 \\text{ in}^2"),
        ("1 \\pm \\sqrt{19}", "1+\\sqrt{19}, 1-\\sqrt{19}"),
        ("(a+5)(b+2)", "ab+2a+5b+10"),
        ("\\frac{3 m}{2}-1", "\\frac{3m}{2}-1"),
        ("\\text{east}", "east"),
        ("-1./3", "-\\frac{1}{3}"),
        ("np.arcsin(10/13)", "\\arcsin\\frac{10}{13}"),
        (
            "x_{0} \\cos (\\omega t)+$ $\\dot{x}_{0} \\sin (\\omega t) / \\omega",
            "x_0\\cos(\\omega t)+\\frac{\\dot{x}_{0}\\sin(\\omega t)}{\\omega}",
        ),
    ],
)
def test_what_azr_accepts_is_accepted_and_what_its_rules_spoil_is_right(compare, gold, answer):
    assert graded(compare, "math500", f"\\boxed{{{answer}}}", solution=f"\\boxed{{{gold}}}").correct


@pytest.mark.parametrize(
    ("gold", "answer"), [("864 \\mbox{ inches}^2", "746496"), ("(a+5)(b+2)", "(c+5)(d+2)"), ("\\frac{3 m}{2}-1", "0.5")]
)
def test_what_only_azrs_rules_make_equal_is_wrong(compare, gold, answer):
    assert graded(compare, "math500", f"\\boxed{{{answer}}}", solution=f"\\boxed{{{gold}}}").reason == "wrong"


def test_answers_are_compared_until_one_form_is_right():
    pairs = []

    def compare(gold, answer):
        pairs.append((gold, answer))
        return "unreadable:timeout" if answer == "two" else "different"

    assert graded(compare, "aime24", "\\boxed{two}", answer="3").reason == "wrong" and pairs == [("3", "two"), ("3", "2")]
    assert graded(lambda *_: "unreadable:timeout", "aime24", "\\boxed{2}", answer="3").reason == "unreadable:timeout"
    assert graded(lambda *_: "equal", "aime24", "\\boxed{two}", answer="3").correct


def test_no_answer_and_an_endless_one_are_not_compared():
    assert graded(never, "aime24", "nothing", answer="3").reason == "no_answer"
    grade = graded(never, "aime24", f"\\boxed{{{'9' * LONG}}}", answer="3")
    assert grade.reason == "unreadable:too_long" and len(grade.answer) == LONGEST_ANSWER


def test_answers_are_compared_in_the_sandbox_too(pool_of):
    """math-verify asks for the version of another package at its import, which the sandbox does not show by itself."""
    pytest.importorskip("math_verify", reason="needs math-verify")
    item = Item("7", {"answer": "a\n#### 18"})
    completions = ("\\boxed{36/2}", "\\boxed{19}", "<answer>18 dollars</answer>")
    grades = [grade_mathematics(pool_of("gsm8k"), BENCHMARKS["gsm8k"], item, text) for text in completions]
    assert [grade.reason for grade in grades] == ["", "wrong", ""]
