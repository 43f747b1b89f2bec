"""What is taken for the answer of a completion, the readings, and the verdict (math-verify is called here, without the sandbox)."""

import json
import runpy
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import populora.evals
from populora.errors import ConfigError
from populora.evals.answers import boxed, lenient, tidied
from populora.evals.benchmarks import BENCHMARKS
from populora.evals.mathematics import LONGEST_ANSWER, gold_of, grade_mathematics
from populora.evals.numerals import number, same_number
from populora.evals.records import Item

LONG = 1 << 18
HARNESS = Path(populora.evals.__file__).with_name("harness") / "mathematics.py"

surroundings = st.text(max_size=60).filter(lambda text: "box" not in text and "<" not in text)
plain_text = st.text("ab\\ +^_,.$\n12", max_size=8)
contents = st.recursive(plain_text, lambda inner: st.lists(inner.map("{{{}}}".format) | plain_text, max_size=4).map("".join), max_leaves=12)


@pytest.fixture(scope="module")
def compare():
    pytest.importorskip("math_verify", reason="needs math-verify")
    harness = runpy.run_path(str(HARNESS))["f"]
    return lambda pairs: json.loads(harness(json.dumps({"pairs": pairs})))


def never(pairs):
    raise AssertionError(f"compared {pairs}")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so \\boxed{18}.", "18"),
        ("first \\boxed{3}, then \\boxed{4}", "4"),
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed {\\{1, 2\\}}", "\\{1, 2\\}"),
        ("\\boxed{\\boxed{5}}", "5"),
        ("\\fbox{7} is it", "7"),
        ("boxed{7} is it", "7"),
        ("$\\boxed 5$ is it", "5"),
        ("\\boxed 42 is it. And more", "42 is it"),
        ("\\boxed{}", ""),
        ("\\boxed{3} and then \\boxed{\\frac{1}{2}", ""),
        ("\\boxed", ""),
        ("they boxed 7 of them", None),
        ("no answer at all", None),
    ],
)
def test_the_last_box_is_the_answer(text, answer):
    assert boxed(text) == answer


@given(surroundings, contents, surroundings)
def test_a_box_is_found_whatever_surrounds_it(before, content, after):
    assert boxed(f"{before}\\boxed{{0}}{before}\\boxed{{{content}}}{after}") == content.strip()


@given(surroundings, contents, plain_text)
def test_a_box_that_is_never_closed_is_no_answer(before, content, after):
    assert boxed(f"{before}\\boxed{{5}}\\boxed{{{content}{after}") == ""


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("He has 16 - 3 = <<16-3=13>>13, so 13 + 5 = <<13+5=18>>18\n#### 18", "18"),
        ("The answer is 1,234.", "1234"),
        ("It is the case that the final answer is $\\frac{1}{2}$. I hope it is correct.", "\\frac{1}{2}$"),
        ("The answer is:\n\n\\[\nx = 5\n\\]", "x = 5"),
        ("The answer is 18.\nTo check: 7 + 11 = 18, not 20.", "18"),
        ("The answer is 3.5. The rest is 20.", "3.5"),
        ("The answer is **Evelyn**", "Evelyn**"),
        ("The answer is \\boxed{18}. Or was it 20?", "18"),
        ("所以答案是 18。", "18"),
        ("That makes 1,200 in 3 days", "3"),
        ("That makes $1,200,000.50 in all", "1200000.50"),
        ("Hence 16-3", "3"),
        ("Hence x = -3", "-3"),
        ("Hence .5", ".5"),
        ("<think>\\boxed{4}</think> <answer>5</answer>", "5"),
        ("<think>4</think> <answer>\\frac{3}{4}</answer> done 7", "\\frac{3}{4}"),
        ("<think>4</think> <answer>He makes 18 dollars a day</answer>", "18"),
        ("<think>4</think> <answer> so \\boxed{6} </answer>", "6"),
        ("<think>\\boxed{4}</think> <answer></answer>", "4"),
        ("<answer>1</answer> wait <answer>2", "2"),
        ("I cannot tell", ""),
        ("", ""),
    ],
)
def test_an_answer_without_a_box_is_looked_for(text, answer):
    found = lenient(text)
    assert found == answer or tidied(found) == tidied(answer) or found.replace(",", "") == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is near.\n#### 18", "18"),
        ("#### 3. Third step\nso 20 in all\n#### $1,800 \nNext question: 7", "1800"),
        ("#### 3. Third step\nso 20 in all", "20"),
        ("#### 18\n#### \\boxed{19}", "19"),
    ],
)
def test_the_ending_of_gsm8k_is_read_where_it_is_expected(text, answer):
    assert lenient(text, gsm8k_ending=True) == answer
    assert lenient("#### 18\nor 19") == "19"


@given(st.text("abc ,;:\n", max_size=40), st.integers(), st.text("abc ;:\n", max_size=40))
def test_the_last_number_is_found_whatever_surrounds_it(before, value, after):
    assert lenient(f"7 {before} {value:,}{after}") == str(value)


@given(st.text(max_size=300))
def test_any_text_has_a_reading(text):
    for reading in (boxed(text) or "", lenient(text), lenient(text, gsm8k_ending=True)):
        assert isinstance(tidied(reading), str)


@pytest.mark.parametrize(
    "part",
    ["\\boxed{", "{", "}", "\\boxed ", "9", "1,234", ",123", ".", "#### ", "####\t", "he answer is ", " ", "\n", "<answer>", "-", "$"],
)
def test_long_completions_are_read_in_linear_time(part):  # in quadratic time this would not end
    for text in (part * (LONG // len(part)), "\\boxed{" + part * (LONG // len(part)), "#### 1" + part * (LONG // len(part)) + "x"):
        boxed(text)
        lenient(text, gsm8k_ending=True)


@pytest.mark.parametrize(
    ("answer", "tidy"),
    [
        ("$18$.", "18"),
        ("\\$32,348", "32,348"),
        ("\\( x \\)", "x"),
        ("62.5\\%", "62.5"),
        ("18°", "18^{\\circ}"),
        ("**18**", "18"),
        ("\\text{two}", "2"),
        ("Forty-two", "42"),
        ("1 234", "1234"),
        ("10\\,000\\,000", "10000000"),
        ("3+4j", "3+4i"),
        ("\\begin{pmatrix} 1 \\\\[2pt] j \\end{pmatrix}", "\\begin{pmatrix} 1 \\\\[2pt] j \\end{pmatrix}"),
        ("18</answer>", "18"),
    ],
)
def test_what_surrounds_an_answer_in_prose_is_taken_off(answer, tidy):
    assert tidied(answer) == tidy


def item(benchmark, **fields):
    return Item("7", fields), BENCHMARKS[benchmark]


@pytest.mark.parametrize(
    ("benchmark", "fields", "gold"),
    [
        ("aime24", {"answer": "204"}, "204"),
        ("aime25", {"answer": 70}, "70"),
        ("amc23", {"answer": 27.0}, "27"),
        ("amc23", {"answer": 0.5}, "0.5"),
        ("math500", {"solution": "no \\boxed{1} but $\\boxed{x=5}$", "answer": "5"}, "x=5"),
        ("minerva_math", {"solution": "\\boxed{4.5e33} J"}, "4.5e33"),
        ("gsm8k", {"answer": "16 - 3\n#### 1,234"}, "1,234"),
        ("olympiadbench", {"final_answer": ["$A=1$, $B=2$."]}, "A=1, B=2"),
    ],
)
def test_the_gold_answer_is_taken_from_where_azr_takes_it(benchmark, fields, gold):
    it, bench = item(benchmark, **fields)
    assert gold_of(bench, it) == gold


@pytest.mark.parametrize(
    ("benchmark", "fields"),
    [
        ("aime24", {}),
        ("aime24", {"answer": " "}),
        ("math500", {"solution": "no box"}),
        ("math500", {"solution": None}),
        ("gsm8k", {"answer": "18"}),
        ("olympiadbench", {"final_answer": []}),
    ],
)
def test_an_item_without_a_gold_answer_is_named(benchmark, fields):
    it, bench = item(benchmark, **fields)
    with pytest.raises(ConfigError, match=f"{benchmark}, item '7': expected its answer"):
        gold_of(bench, it)


@pytest.mark.parametrize(
    ("completion", "reason", "readings"),
    [
        ("\\boxed{18}", "", (True, True)),
        ("\\boxed{\\frac{36}{2} \\text{ dollars}}", "", (True, True)),
        ("The answer is 18.", "", (False, True)),
        ("16 + 2 = 18 eggs", "", (False, True)),
        ("\\boxed{19} or 18", "wrong", (False, False)),
        ("\\boxed{18} \\boxed{1", "no_answer", (False, False)),
        ("\\boxed{$$}", "unreadable:nothing", (False, False)),
        ("", "no_answer", (False, False)),
        ("\\boxed{18} <answer>19</answer>", "wrong", (True, False)),
    ],
)
def test_a_completion_is_graded_in_both_readings(compare, completion, reason, readings):
    it, bench = item("aime24", answer="18")
    grade = grade_mathematics(compare, bench, it, completion)
    assert (grade.item_id, grade.reason, grade.correct) == ("7", reason, reason == "")
    assert grade.readings == dict(zip(("strict", "lenient"), readings, strict=True))


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("2", "two"),
        ("1234", "1 234"),
        ("62.5\\%", "62.5"),
        ("62.5\\%", "0.625"),
        ("3+4i", "3+4j"),
        ("864 \\mbox{ inches}^2", "864"),
        ("864 \\mbox{ inches}^2", "864 \\text{ in}^2"),
        ("1 \\pm \\sqrt{19}", "1+\\sqrt{19}, 1-\\sqrt{19}"),
        ("(a+5)(b+2)", "ab+2a+5b+10"),
        ("\\frac{3 m}{2}-1", "\\frac{3m}{2}-1"),
        ("k \\geqslant 2", "k \\ge 2"),
        ("1, 2", "1 \\text{ and } 2"),
        ("\\text{east}", "east"),
    ],
)
def test_what_azr_accepts_is_accepted_and_what_its_rules_spoil_is_right(compare, gold, answer):
    it, bench = item("math500", solution=f"\\boxed{{{gold}}}")
    assert grade_mathematics(compare, bench, it, f"\\boxed{{{answer}}}").correct


@pytest.mark.parametrize(
    ("gold", "answer"), [("864 \\mbox{ inches}^2", "746496"), ("(a+5)(b+2)", "(c+5)(d+2)"), ("\\frac{3 m}{2}-1", "0.5")]
)
def test_what_only_azrs_rules_make_equal_is_wrong(compare, gold, answer):
    it, bench = item("math500", solution=f"\\boxed{{{gold}}}")
    assert grade_mathematics(compare, bench, it, f"\\boxed{{{answer}}}").reason == "wrong"


def test_answers_are_compared_until_one_form_is_right():
    asked = []

    def compare(pairs):
        asked.extend(pairs)
        return ["unreadable:timeout" if "two" in pairs[0][1] else "different"]

    it, bench = item("aime24", answer="3")
    assert grade_mathematics(compare, bench, it, "\\boxed{two}").reason == "wrong"
    assert asked == [("3", "two"), ("3", "2")]
    assert grade_mathematics(lambda _: ["unreadable:timeout"], bench, it, "\\boxed{2}").reason == "unreadable:timeout"
    assert grade_mathematics(lambda _: ["equal"], bench, it, "\\boxed{two}").correct


def test_no_answer_and_an_endless_one_are_not_compared():
    it, bench = item("aime24", answer="3")
    assert grade_mathematics(never, bench, it, "nothing").reason == "no_answer"
    grade = grade_mathematics(never, bench, it, f"\\boxed{{{'9' * LONG}}}")
    assert grade.reason == "unreadable:too_long" and len(grade.answer) == LONGEST_ANSWER


@pytest.mark.parametrize(
    ("answer", "readings"),
    [
        ("4.5 \\times 10^{33}", (False, False, True)),
        ("4.5e33", (True, True, True)),
        ("E = 4.5 \\cdot 10^{33} \\mathrm{~erg}", (False, False, True)),
        ("45e33", (False, False, False)),
        ("4.5 \\times 10^{32}", (False, False, False)),
        ("\\frac{9}{2}", (False, False, False)),
    ],
)
def test_numbers_of_minerva_have_a_reading_of_their_own(compare, answer, readings):
    it, bench = item("minerva_math", solution="\\boxed{4.5e33} \\mathrm{~erg}")
    grade = grade_mathematics(compare, bench, it, f"\\boxed{{{answer}}}")
    assert grade.readings == dict(zip(("strict", "lenient", "fixed"), readings, strict=True))
    assert grade.correct == grade.readings["lenient"]


def test_what_math_verify_takes_for_equal_is_not_where_numbers_are_compared(compare):
    it, bench = item("minerva_math", solution="\\boxed{3e6}")
    readings = grade_mathematics(compare, bench, it, "\\boxed{6e3}").readings  # 3·e·6 = 6·e·3
    assert readings["lenient"] and not readings["fixed"]


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**6), max_value=10**6), st.integers(-300, 300))
def test_a_number_is_read_in_every_notation(value, power):
    wanted = value.scaleb(power)
    forms = (
        f"{value}e{power}",
        f"{value}E{power:+}",
        f"{value} \\times 10^{{{power}}}",
        f"v = {value} \\cdot 10^{{{power}}} \\text{{ m/s}}",
    )
    assert [number(form) for form in forms] == [wanted] * 4
    assert number(f"{wanted:f}") == wanted and number(f"${value:,} \\mathrm{{~J}}$") == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "2^{20}",
        "1, 2",
        "3 + 4e5",
        "\\frac{1}{2}",
        "1e99999",
        "33e4.5",
        "e5",
        "4.5e",
        "10^{x}",
        "1.2.3",
        "2i",
        "3 - 2",
        "3 or 4",
        "3 m = 4 x 5",
    ],
)
def test_what_is_no_number_has_no_value(text):
    assert number(text) is None


def test_numbers_are_compared_only_with_golds_in_the_e_form():
    assert same_number("1e-3", "0.001") and same_number("2e27", "2 \\times 10^{27}") and same_number("1e-8", "10^{-8}")
    assert same_number("4.6e-24", "4.6 \\times 10^{-23}") is False
    assert same_number("1600", "1600") is None and same_number("1e-3", "\\frac{1}{1000}") is None
