"""What is taken for the answer in a completion, and what is taken off it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from populora.evals.graders.mathematics import boxed, lenient, tidied

LONG = 1 << 18

surroundings = st.text(max_size=60).filter(lambda text: "box" not in text and "<" not in text)
plain_text = st.text("ab\\ +^_,.$\n12", max_size=8)
contents = st.recursive(plain_text, lambda inner: st.lists(inner.map("{{{}}}".format) | plain_text, max_size=4).map("".join), max_leaves=12)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so \\boxed{18}.", "18"),
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed {\\{1, 2\\}}", "\\{1, 2\\}"),
        ("\\boxed{\\boxed{5}}", "5"),
        ("\\fbox{7} is it", "7"),
        ("$\\boxed 5$ is it", "5"),
        ("\\boxed 42 is it. And more", "42 is it"),
        ("\\boxed{}", ""),
        ("\\boxed{3} and then \\boxed{\\frac{1}{2}", ""),
        ("\\boxed", ""),
        ("they boxed 7 of them", None),
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
        ("The answer is 1,234.", "1,234"),
        ("It is the case that the final answer is $\\frac{1}{2}$. I hope it is correct.", "\\frac{1}{2}$"),
        ("The answer is:\n\n\\[\nx = 5\n\\]", "x = 5"),
        ("The answer is 18.\nTo check: 7 + 11 = 18, not 20.", "18"),
        ("The answer is **Evelyn**", "Evelyn**"),
        ("The answer is \\boxed{18}. Or was it 20?", "18"),
        ("所以答案是 18。", "18"),
        ("That makes 1,200 in 3 days", "3"),
        ("That makes $1,200,000.50 in all", "1200000.50"),
        ("Hence 16-3", "3"),
        ("<think>\\boxed{4}</think> <answer>5</answer>", "5"),
        ("<think>4</think> <answer>\\frac{3}{4}</answer> done 7", "\\frac{3}{4}"),
        ("<think>4</think> <answer>He makes 18 dollars a day</answer>", "18"),
        ("<think>\\boxed{4}</think> <answer></answer>", "4"),
        ("<answer>1</answer> wait <answer>2", "2"),
        ("", ""),
    ],
)
def test_an_answer_without_a_box_is_looked_for(text, answer):
    assert lenient(text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is near.\n#### 18", "18"),
        ("#### 3. Third step\nso 20 in all\n#### $1,800 \nNext question: 7", "1800"),
        ("#### 3. Third step\nso 20 in all", "20"),
        ("#### 18\n#### \\boxed{19}", "19"),
        ("<answer>20 dollars.</answer>", "20"),
        ("so 3</think> <answer>Total: $1,200 eggs/day</answer>", "1200"),
        ("<answer>-20 km/h</answer>", "-20"),
        ("<answer>20/3 cups</answer>", "20/3 cups"),
        ("<answer>2^5</answer>", "2^5"),
        ("<answer>\\sqrt{2} cups</answer>", "\\sqrt{2} cups"),
        ("<answer>twenty</answer>", "twenty"),
    ],
)
def test_the_ending_of_gsm8k_is_read_where_it_is_expected(text, answer):
    assert lenient(text, gsm8k=True) == answer
    assert lenient("#### 18\nor 19") == "19"


@given(st.text("abc ,;:\n", max_size=40), st.integers(), st.text("abc ;:\n", max_size=40))
def test_the_last_number_is_found_whatever_surrounds_it(before, value, after):
    assert lenient(f"7 {before} {value:,}{after}") == str(value)


@given(st.text(max_size=300))
def test_any_text_has_a_reading(text):
    for reading in (boxed(text) or "", lenient(text), lenient(text, gsm8k=True)):
        assert isinstance(tidied(reading), str)


@pytest.mark.parametrize(
    "part",
    ["\\boxed{", "{", "}", "\\boxed ", "9", "1,234", ",123", ".", "#### ", "####\t", "he answer is ", " ", "\n", "<answer>", "-", "$"],
)
def test_long_completions_are_read_in_linear_time(part):  # in quadratic time this would not end
    for text in (part * (LONG // len(part)), "\\boxed{" + part * (LONG // len(part)), "#### 1" + part * (LONG // len(part)) + "x"):
        boxed(text)
        lenient(text, gsm8k=True)


@pytest.mark.parametrize(
    ("answer", "tidy"),
    [
        ("$18$.", "18"),
        ("\\$32,348", "32,348"),
        ("\\text{1} + \\text{2}", "\\text{1} + \\text{2}"),
        ("\\text{\\sqrt{51}}", "\\sqrt{51}"),
        ("= \\mathbf{x}", "{x}"),
        ("Forty-two", "42"),
        ("10\\,000\\,000", "10000000"),
        ("1.05, 2, \\ldots", "1.05, 2, \\ldots"),
        ("\\begin{pmatrix} 1 \\\\[2pt] j \\end{pmatrix}", "\\begin{pmatrix} 1 \\\\[2pt] j \\end{pmatrix}"),
        ("18</answer>", "18"),
    ],
)
def test_what_surrounds_an_answer_in_prose_is_taken_off(answer, tidy):
    assert tidied(answer) == tidy
