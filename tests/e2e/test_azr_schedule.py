"""A run with the schedule of Absolute Zero's code, from its tables alone: what is trained on, what makes rho, and that it resumes."""

from collections import Counter
from dataclasses import replace

import pytest
from small_run import SMALL, Silent, contents

from populora.core.config import EvaluationConfig, PopulationConfig
from populora.runs.tables import read_table
from populora.training.loop import resume, train

PROMPTS = 2
AZR = replace(
    SMALL, steps=3, population=PopulationConfig(single_agent=True), evaluation=EvaluationConfig(),
    selfplay=replace(SMALL.selfplay, prompts_per_type=PROMPTS, samples_per_prompt=1, previous_step_attempts=1),
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "azr"
    train(AZR, folder, Silent())
    return folder


def test_each_step_trains_on_one_attempt_at_problems_of_the_step_before_as_far_as_there_are_any(folder):
    born = {(row["step"], row["problem_id"]): row["born"] for row in read_table(folder, "problems").to_pylist()}
    attempts, proposals = (read_table(folder, name).to_pylist() for name in ("attempts", "proposals"))
    stored = Counter((row["step"], row["task"]) for row in proposals if row["valid"] and not row["repeat"])
    assert any(step < AZR.steps for step, _ in stored)
    for step in range(1, AZR.steps + 1):
        for task in ("code_i", "code_o", "code_f"):
            trained = [row for row in attempts if row["step"] == step and row["task"] == task and row["trained"]]
            assert len({row["problem_id"] for row in trained}) == len(trained) == PROMPTS and all(row["filled"] for row in trained)
            fresh = [row for row in trained if born[step, row["problem_id"]] == step - 1]
            assert len(fresh) == (PROMPTS if step == 1 else min(PROMPTS, stored[step - 1, task]))


def test_the_attempts_that_make_rho_train_nobody(folder):
    attempts = read_table(folder, "attempts").to_pylist()
    rated = [row for row in attempts if not row["filled"]]
    assert rated and not any(row["trained"] for row in rated)
    for row in read_table(folder, "proposals").to_pylist():
        if row["valid"]:
            correct = [a["correct"] for a in rated if (a["step"], a["problem_id"]) == (row["step"], row["problem_id"])]
            assert len(correct) == AZR.selfplay.rho_samples and row["rho"] == pytest.approx(sum(correct) / len(correct))


@pytest.mark.slow
def test_a_resumed_run_is_bit_identical(folder, tmp_path):
    train(AZR, tmp_path / "stopped", Silent(), stop=iter([False, True]).__next__)
    resume(tmp_path / "stopped", Silent())
    assert contents(tmp_path / "stopped") == contents(folder)
