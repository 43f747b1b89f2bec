"""The paper's largest configuration, 16 teachers and 16 students, on the tiny base: three steps with evolution after each."""

from collections import Counter
from dataclasses import replace

import pytest
from small_run import SMALL, Silent

from populora.core.config_file import load_config
from populora.core.presets import settings_file
from populora.runs.metrics_log import read_log
from populora.runs.tables import read_table
from populora.training.loop import train

STEPS, SIZE = 3, 16


@pytest.mark.thorough
def test_sixteen_teachers_and_sixteen_students_meet_learn_and_evolve(tmp_path):
    paper = load_config(settings_file("paper_16t16s"))
    play = replace(SMALL.selfplay, samples_per_prompt=2, rho_samples=2, max_response_tokens=64)
    evolution = replace(paper.evolution, every=1)
    roles = replace(SMALL, population=paper.population, league=paper.league, evolution=evolution)
    config = replace(roles, steps=STEPS, selfplay=play, evaluation=replace(SMALL.evaluation, every=0))
    train(config, tmp_path, Silent())

    matchups = read_table(tmp_path, "matchups").to_pylist()
    for step in range(1, STEPS + 1):
        met = [(row["teacher"], row["student"]) for row in matchups if row["step"] == step]
        assert [teacher for teacher, _ in met] == [f"T{number}" for number in range(SIZE)]
        assert {student for _, student in met} == {f"S{number}" for number in range(SIZE)}

    children = read_table(tmp_path, "children").to_pylist()
    born = Counter((child["born"], child["member"][0]) for child in children)
    assert born[1, "T"] == born[1, "S"] == 4, "a quarter of each role"
    assert {step for step, _ in born} <= {1, 2}, "none after the last step"
    first = [child for child in children if child["born"] == 1]
    culled = {child["member"] for child in first}
    assert {child["generation"] for child in first} == {1}
    second = [child for child in children if child["born"] == 2]  # newborns among their predecessors: the paper spares nobody
    assert all(child["generation"] == 1 + (child["member"] in culled) for child in second)
    for child in first:
        parents = {parent.split("#")[0] for parent in child["parents"]}
        assert {parent[0] for parent in parents} == {child["member"][0]} and not parents & culled

    rated = read_table(tmp_path, "ratings").to_pylist()
    assert Counter(row["step"] for row in rated) == dict.fromkeys(range(1, STEPS + 1), 2 * SIZE)
    assert {row["member"] for row in rated if row["step"] == 2 and row["generation"] == 1} == culled
    members = {row["member"] for row in rated}
    for line in read_log(tmp_path):
        skipped = [line[f"learner/skipped/{member}"] for member in members]
        assert len(skipped) == 2 * SIZE and sum(skipped) < SIZE, "most have something to learn"
