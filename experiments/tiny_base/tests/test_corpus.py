"""Documents: deterministic, right, parsed by the product's own parsers, and disjoint from the held-out programs."""

import ast
from collections import Counter
from dataclasses import replace

import pytest
from experiments.tiny_base import build as building
from experiments.tiny_base.build import seed_problems
from experiments.tiny_base.corpus import bindings, draw_shard, message_weights, solve_document
from experiments.tiny_base.grammar import parameters
from experiments.tiny_base.mixtures import FINAL, GUESSING, MESSAGES, REASONING, SETTLED, SUMMARISING
from experiments.tiny_base.samples import draw_sample, held_out, inputs_text, spread_arguments
from experiments.tiny_base.trace import Program

from populora.core.config import BaseConfig
from populora.core.rng import stream
from populora.core.types import CODE_TYPES, TaskType
from populora.engine.model.loading import base_folder
from populora.tasks.parsing import ProposalText, answer_text, is_formatted, parse_proposal, parse_solution, reasons
from populora.tasks.render import load_prompts
from populora.training.buffer import read_problems

FULL = replace(REASONING, styles={"full": 1})


@pytest.fixture(scope="module")
def shard():
    return draw_shard(3, 0, 400, REASONING)


def solved(rng, task, sample, mixture):
    return solve_document(rng, task, sample, load_prompts("compact"), mixture)


def test_a_shard_is_a_function_of_seed_and_index(shard):
    assert draw_shard(3, 0, 400, REASONING) == shard
    assert draw_shard(3, 1, 50, REASONING) != shard[:50]
    assert draw_shard(4, 0, 50, REASONING) != shard[:50]


def test_every_response_is_formatted_and_parsed_by_the_product(shard):
    inputs = load_prompts("compact").inputs_wanted
    for document in shard:
        role, name = document.kind.split()
        assert is_formatted(document.response)
        answer = answer_text(document.response)
        if role == "solve":
            assert parse_solution(TaskType(name), answer)
        else:
            assert isinstance(parse_proposal(TaskType(name), answer, inputs), ProposalText)


def test_all_kinds_occur(shard):
    assert len({document.kind for document in shard}) == 6


def test_no_held_out_program_is_in_the_corpus(shard):
    for document in shard:
        for part in (document.prompt + document.response).split("```python\n")[1:]:
            assert not held_out(part.partition("\n```")[0])


@pytest.mark.slow
def test_the_held_out_problems_that_ship_are_drawn_by_the_recipe_held_out_and_right(monkeypatch):
    problems = read_problems(base_folder(BaseConfig()) / "held_out.jsonl")
    assert len(problems) == 648 and len({problem.id for problem in problems}) == 648
    monkeypatch.setattr(building, "HELD_OUT_PER_CELL", 2)
    drawn = building.held_out_problems(0)
    assert drawn[:2] == problems[:2] and len({problem.id for problem in drawn}) == len(drawn) == 648 * 2 // 36
    for problem in problems[::20]:
        assert held_out(problem.program)
        for example in (*problem.shown, *problem.hidden):
            arguments = ast.literal_eval(f"({example.inputs},)")
            assert repr(Program(problem.program).run(arguments).value) == example.output


def test_seeds_are_of_every_type_and_never_held_out():
    problems = seed_problems(0)
    assert Counter(problem.task for problem in problems) == dict.fromkeys(CODE_TYPES, 128)
    assert not any(held_out(problem.program) for problem in problems[::10])


@pytest.mark.parametrize(("mixture", "direct"), [(REASONING, 0.15), (FINAL, 0.54), (SETTLED, 0.45)])
def test_share_of_direct_answers(mixture, direct):
    rng = stream(5, "styles")
    sample = draw_sample(rng, 3)
    responses = [solved(rng, TaskType.CODE_O, sample, mixture).response for _ in range(1000)]
    assert sum(not reasons(response) for response in responses) / 1000 == pytest.approx(direct, abs=0.05)


@pytest.mark.parametrize("mixture", [FULL, replace(SETTLED, styles={"full": 1})])
def test_reasoning_about_code_i_guesses_until_the_output_fits(mixture):
    sample = draw_sample(stream(5, "guesses"), 3)
    wanted, wrong, unchecked = sample.example(0).output, Counter(), 0
    for index in range(300):
        document = solved(stream(index, "a"), TaskType.CODE_I, sample, mixture)
        assert wanted in document.prompt and sample.example(0).inputs in document.response.partition("</think>")[2]
        results = guessed_outputs(document)
        assert wanted not in results[:-1]
        assert results[-1] == wanted or not mixture.last_guess_checked
        unchecked += results[-1] != wanted
        wrong[sum(result != wanted for result in results)] += 1
    assert wrong[0] > 100 and wrong[1] > 30 and unchecked < 150
    assert set(wrong) <= set(range(len(mixture.wrong_guesses)))


def test_a_search_without_room_for_another_execution_answers_at_once():
    sample = draw_sample(stream(5, "guesses"), 3)
    tight = replace(SETTLED, styles={"full": 1}, search_chars=150)
    documents = [solved(stream(index, "a"), TaskType.CODE_I, sample, tight) for index in range(100)]
    last = [guessed_outputs(document)[-1] for document in documents]
    assert 10 < sum(result != sample.example(0).output for result in last) < 90
    assert all(len(document.response.partition("</think>")[0]) <= 150 + len(guessed_outputs(document)) for document in documents)


@pytest.mark.parametrize("mixture", [GUESSING, SETTLED])
def test_the_arguments_of_wrong_guesses_are_not_learned_and_all_the_rest_is(mixture):
    sample = draw_sample(stream(5, "guesses"), 3)
    wrong = [pair for index in range(1, len(sample.runs)) for pair in bindings(sample, index)]
    names, values = ({texts[place] for texts in wrong} for place in (0, 1))
    seen = Counter()
    for index in range(100):
        document = solved(stream(index, "a"), TaskType.CODE_I, sample, replace(mixture, styles={"full": 1}))
        for text, weight in document.pieces:
            assert weight == (0.0 if text in values else mixture.wrong_names_weight if text in names else 1.0)
            seen[weight] += 1
    assert seen[0.0] > 60


def guessed_outputs(document):
    """What the guesses of a search returned, in order."""
    effects = [line.partition("  # ")[2] for line in document.response.partition("</think>")[0].split("\n") if line.startswith("return ")]
    return [effect.rpartition("; ")[2] for effect in effects]


def test_full_reasoning_binds_the_arguments_and_names_every_executed_line():
    sample = draw_sample(stream(5, "forwards"), 3)
    response = solved(stream(1, "a"), TaskType.CODE_O, sample, FULL).response
    bound = [f"{name} = {value!r}" for name, value in zip(parameters(sample.source), sample.arguments[0], strict=True)]
    executed = [f"{line}  # {effect}" for line, effect in sample.runs[0].trace]
    assert response.partition("</think>")[0].split("\n") == [*bound, *executed]


def test_a_longer_program_is_told_in_less_detail_by_the_proposals_of_the_last_stage():
    weights = [tuple(message_weights(budget, SUMMARISING).values()) for budget in range(1, 9)]
    assert weights[0] == SUMMARISING.short_messages and weights[-1] == SUMMARISING.long_messages
    assert all(sum(each) == pytest.approx(100) for each in weights)
    assert [each[0] for each in weights] == sorted((each[0] for each in weights), reverse=True)
    assert {tuple(message_weights(budget, SETTLED).values()) for budget in range(1, 9)} == {MESSAGES}


def test_spread_arguments_are_distinct_and_their_outputs_are_not_all_equal():
    rng, redrawn = stream(5, "spread"), 0
    for _ in range(100):
        sample = draw_sample(rng, 3)
        chosen = spread_arguments(rng, sample)
        assert len({inputs_text(values) for values in chosen}) == len(sample.arguments)
        assert len({repr(Program(sample.source).run(values).value) for values in chosen}) >= 2
        redrawn += chosen != sample.arguments
    assert redrawn > 80
