"""What a run is said to have shown: changes only if they are larger than the noise."""

import pytest

from populora.runs.highlights import highlights, lost_domains

PROBLEMS_PER_TYPE = 216


def make_log(steps: int = 32, noise: float = 0.02, **changes: float) -> list[dict[str, float]]:
    """Return a log whose metrics move by ``changes`` from the first to the last step, with noise of alternating sign."""
    starts, lines = {"difficulty": 0.4, "loc": 5.0}, []
    for index in range(steps):
        at, sign = index / max(1, steps - 1), 1 if index % 2 else -1
        values = {f"teacher/{name}": start + changes.get(name, 0.0) * at + sign * noise for name, start in starts.items()}
        lines.append({"step": index + 1, "evolution/children": 2.0 * (index % 10 == 9), **values})
    return lines


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"difficulty": 0.2}, "Problems got harder: 42% of the attempts at them failed in the first 8 steps, 58% in the last 8."),
        ({"difficulty": -0.2}, "Problems got easier: 38% of the attempts"),
        ({"difficulty": 0.01}, "Problems did not clearly get harder or easier: 4"),
        ({"loc": 2.0}, "Programs got longer: 5.2 lines of code in the first 8 steps, 6.8 in the last 8."),
        ({"loc": -2.0}, "Programs got shorter: 4.8 lines of code in the first 8 steps, 3.2 in the last 8."),
        ({}, "Programs did not clearly get longer or shorter: 5.0 lines"),
    ],
)
def test_a_change_is_named_only_if_it_is_larger_than_the_noise(changes, sentence):
    assert any(line.startswith(sentence) for line in highlights(make_log(**changes), PROBLEMS_PER_TYPE))


@pytest.mark.parametrize(
    ("last", "sentence"),
    [
        (0.70, "Accuracy on 648 held-out problems rose: 60.0% after step 1, 70.0% after step 32."),
        (0.63, "Accuracy on 648 held-out problems did not clearly change: 60.0% after step 1, 63.0% after step 32."),
        (0.50, "Accuracy on 648 held-out problems fell: 60.0% after step 1, 50.0% after step 32."),
    ],
)
def test_held_out_accuracy_is_judged_by_the_number_of_problems(last, sentence):
    log = make_log()
    log[0]["held_out/accuracy"], log[15]["held_out/accuracy"], log[-1]["held_out/accuracy"] = 0.6, 0.1, last
    assert sentence in highlights(log, PROBLEMS_PER_TYPE)
    assert not any("Accuracy" in line for line in highlights(log, 0))
    assert any("Accuracy on 12 held-out problems did not clearly change" in line for line in highlights(log, 4))


def test_children_and_rounds_are_counted():
    assert "Evolution: 6 children replaced weak members in 3 rounds." in highlights(make_log(), PROBLEMS_PER_TYPE)
    log = make_log(steps=15)
    log[9]["evolution/children"] = 1.0
    assert "Evolution: 1 child replaced a weak member in 1 round." in highlights(log, PROBLEMS_PER_TYPE)
    log[9]["evolution/spared"] = 1.0
    assert "Evolution: 1 child replaced a weak member in 1 round; 1 newborn at the bottom stayed." in highlights(log, PROBLEMS_PER_TYPE)


def test_what_the_log_lacks_is_left_out():
    log = [{"step": step, "evolution/children": 0.0} for step in range(1, 33)]
    assert highlights(log, PROBLEMS_PER_TYPE) == [] and highlights([], PROBLEMS_PER_TYPE) == []
    log[0]["held_out/accuracy"] = 0.5
    assert highlights(log, PROBLEMS_PER_TYPE) == [], "one evaluation is no change"


def test_a_short_run_is_not_judged():
    assert highlights(make_log(1), PROBLEMS_PER_TYPE) == ["1 step: too few to see a change, which takes 12."]
    assert len(highlights(make_log(12), PROBLEMS_PER_TYPE)) == 3


def make_mixed_log(steps: int = 32, valid: float = 0.9, valid_at_end: float = 0.9, **changes: float) -> list[dict[str, float]]:
    """Return such a log of Python and SQL, in which ``valid`` and in the last quarter ``valid_at_end`` of SQL's problems are valid."""
    log = make_log(steps, **changes)
    shares = [valid] * (steps - steps // 4) + [valid_at_end] * (steps // 4)
    names = ("teacher/difficulty", "teacher/loc")
    return [
        {**line, **{f"{name}/python": line[name] for name in names}, "teacher/validity/python": 0.9, "teacher/validity/sql": share}
        for line, share in zip(log, shares, strict=True)
    ]


DOMAINS = ("python", "sql")


@pytest.mark.parametrize("steps", [1, 12, 32])
def test_a_domain_without_any_valid_problem_is_said_first_however_short_the_run(steps):
    log = make_mixed_log(steps, 0.0, 0.0)
    steps_said = "1 step" if steps == 1 else f"{steps} steps"
    assert highlights(log, PROBLEMS_PER_TYPE, DOMAINS)[0] == f"No valid problem of sql in {steps_said}, the whole run."
    assert lost_domains(log, DOMAINS) == highlights(log, PROBLEMS_PER_TYPE, DOMAINS)[:1]


def test_a_domain_that_was_lost_on_the_way_is_said_and_one_that_has_a_single_valid_problem_is_not():
    assert lost_domains(make_mixed_log(32, 0.5, 0.0), DOMAINS) == ["No valid problem of sql in the last 8 steps."]
    assert lost_domains(make_mixed_log(32, 0.0, 0.01), DOMAINS) == [] == lost_domains(make_mixed_log(8, 0.5, 0.0), DOMAINS)
    assert lost_domains([{**line, "teacher/validity": 0.0} for line in make_log()], ["sql"]) == [
        "No valid problem of sql in 32 steps, the whole run."
    ]
    assert lost_domains(make_log(), ["python"]) == [], "nothing is known of it"


def test_each_of_several_domains_has_its_own_sentences():
    log = make_mixed_log(difficulty=0.2)
    for index, line in enumerate(log):
        line.update({"teacher/difficulty/sql": 0.8 - index / 50, "teacher/clauses/sql": 2.0 + index / 10})
    log[0]["held_out/accuracy/sql"], log[-1]["held_out/accuracy/sql"] = 0.2, 0.5
    sentences = highlights(log, 216, DOMAINS)
    for sentence in (
        "Problems in python got harder: 42%", "Problems in sql got easier: 73%", "Programs in sql got longer: 2.4 clauses",
        "Accuracy on 648 held-out problems in sql rose: 20.0% after step 1, 50.0% after step 32.",
    ):  # fmt: skip
        assert any(line.startswith(sentence) for line in sentences), sentences
    assert not any(line.startswith("Problems got") for line in sentences), "a mean over domains would hide one"
