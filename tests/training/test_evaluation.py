"""Held-out evaluation in training: when, on which problems, and that every solver's greedy answers are its own."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from small_run import SMALL

from populora.core.config import BaseConfig, EvaluationConfig
from populora.core.types import CODE_TYPES
from populora.training.evaluation import evaluate_if_due, evaluation_due, load_held_out
from populora.training.loop import build_run


@pytest.mark.parametrize(("every", "due"), [(4, [1, 4, 8, 10]), (20, [1, 10]), (0, [])])
def test_due_after_the_first_step_every_k_steps_and_after_the_last(every, due):
    config = replace(SMALL, steps=10, evaluation=EvaluationConfig(every=every))
    assert [step for step in range(1, 11) if evaluation_due(config, step)] == due


@pytest.mark.parametrize(("per_type", "of_each_level"), [(6, 1), (12, 2)])
def test_the_suite_has_equally_many_problems_of_each_type_and_level(per_type, of_each_level):
    suite = load_held_out(BaseConfig(), per_type)
    levels = Counter((problem.task, problem.author) for problem in suite)
    assert levels == {(task, f"level-{level}"): of_each_level for task in CODE_TYPES for level in range(1, 7)}


def test_answers_are_greedy_and_each_solver_has_its_own_results():
    def of(member):
        return {name.removeprefix(f"{member}/"): value for name, value in results.items() if name.startswith(f"{member}/")}

    with build_run(SMALL) as run:
        results = evaluate_if_due(run, 1)
        untrained = of("S0")
        assert untrained.keys() == {*CODE_TYPES, "all", "tokens"} and len(results) == 2 * len(untrained)
        assert of("S1") == untrained, "adapters that do nothing yet give the base's greedy answers, whatever the stream"
        slot, generator = run.population.slots["S0"], torch.Generator().manual_seed(0)
        run.bank.master[slot] += 0.1 * torch.randn(run.bank.master.shape[1:], generator=generator)
        run.bank.sync(slot)
        run.sync_weights()
        results = evaluate_if_due(run, 1)
        assert of("S1") == untrained != of("S0")
