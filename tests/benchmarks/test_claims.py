"""The claims campaign: its protocol is complete, its measures are right on cases with known answers, and verdicts follow its rule."""

import ast
import json
import os
import signal
import subprocess
import sys
from argparse import Namespace
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import chain
from statistics import fmean

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from benchmarks.claims import analyse, confirm, draw, ideas, measure, measures, page, protocol, rates, selection, soups, suites, verdicts
from benchmarks.claims import run as campaign
from benchmarks.claims.children import TASKS, parents_kept, recovered, recovered_excess
from benchmarks.claims.dynamics import CURVES, coverage_rate, oscillation, scalars, specialisation
from benchmarks.claims.measures import MeasuredRun, Suite, accuracies
from benchmarks.claims.protocol import (
    PROTOCOL,
    PlannedSoup,
    confirmation_runs,
    control_runs,
    idea_runs,
    pilot_runs,
    planned_runs,
    planned_soups,
    together_runs,
)
from benchmarks.claims.transfer import FAMILIES
from benchmarks.claims.verdicts import Observations, compare, judge, problem_error, shares, verdict
from benchmarks.claims.votes import vote, vote_gain
from scipy import stats

from populora.adapters.peft_format import save_adapter
from populora.cli.arguments import parse_settings
from populora.cli.train import Train
from populora.core.config_file import changed, load_config
from populora.core.presets import settings_file
from populora.core.rng import stream
from populora.core.types import CODE_TYPES, Problem, TaskType
from populora.training.loop import build_run

RATES = {"agent": 1e-3, "4t4s": 2e-3, "agent_x4": 4e-3, "control": 3e-3}


def problems(*groups):
    return [Problem(f"{index}", CODE_TYPES[index % 3], "", (), author=group) for index, group in enumerate(groups)]


@pytest.mark.slow
def test_every_planned_run_has_settings_that_the_trainer_takes():
    runs = [*planned_runs(RATES), *pilot_runs(), *idea_runs(RATES)]
    assert len({run.name for run in runs}) == len(runs)
    for run in {run.arm: run for run in runs}.values():
        settings = parse_settings(Train, [PROTOCOL["preset"], *run.flags()], "train").settings
        assert settings.learner.role_weights == ("tokens" if run.arm == "agent_tokens" else "equal")
        assert settings.threads == 1 and not settings.evaluation.every
        assert settings.steps % settings.keep_checkpoints_every == 0
    assert {run.settings["learner.learning_rate"] for run in planned_runs(RATES) if run.arm.startswith("agent")} == {1e-3, 4e-3}


def test_every_idea_changes_what_a_4t4s_run_does():
    runs = idea_runs(RATES)
    [plain] = [run.settings for run in planned_runs(RATES) if run.name == "4t4s-0"]
    assert len(runs) == len(PROTOCOL["ideas"]["arms"]) * len(PROTOCOL["ideas"]["seeds"])
    assert all(run.settings != plain and plain.keys() <= run.settings.keys() for run in runs)
    assert not {run.seed for run in runs} & {run.seed for run in [*planned_runs(RATES), *pilot_runs()]}
    assert {run.suites for run in [*runs, *pilot_runs()]} == {("validation",)}
    assert {run.suites for run in planned_runs(RATES)} == {("test", "transfer", "validation")}


def test_the_confirmation_gives_its_agent_the_cure_and_the_samples_of_four_pairs():
    runs = confirmation_runs(RATES, ["several", "kl", "soup"])
    assert len(runs) == 32 and {run.suites for run in runs} == {("held_back",)}
    assert not {run.seed for run in runs} & {run.seed for run in [*planned_runs(RATES), *pilot_runs(), *idea_runs(RATES)]}
    cured, agent, plain = ({run.arm: run.settings for run in runs}[f"confirmation/{arm}"] for arm in ("cured", "agent_x4", "4t4s"))
    assert cured == {**plain, **protocol.cure_of(["several", "kl", "soup"])} and cured["evolution.operators"] == ["soup"]
    assert agent["learner.base_kl"] == 0.05 and agent["population.single_agent"] and "evolution.operators" not in agent
    assert (cured["selfplay.prompts_per_type"], agent["selfplay.prompts_per_type"]) == (3, 12)
    assert (cured["selfplay.train_problems"], agent["selfplay.train_problems"]) == (12, 48)
    small = {run.arm: run.settings for run in runs}["confirmation/agent"]
    assert {name: (value, agent[name]) for name, value in small.items() if value != agent[name]} == {
        "learner.learning_rate": (RATES["agent"], RATES["control"]),
        "selfplay.prompts_per_type": (3, 12),
        "selfplay.train_problems": (12, 48),
    }
    assert agent["learner.learning_rate"] == RATES["control"] and cured["learner.learning_rate"] == RATES["4t4s"]
    choices = control_runs(["several", "kl", "soup"])
    assert {run.settings["learner.learning_rate"] for run in choices} == {1.5e-3, 3e-3} and {run.suites for run in choices} == {
        ("validation",)
    }
    assert all(run.settings | {"learner.learning_rate": RATES["control"]} == agent for run in choices)
    assert (agent["learner.role_weights"], cured["learner.role_weights"]) == ("tokens", "equal")
    slow = confirmation_runs(RATES, ["slow_teachers"])
    assert [run.settings.get("learner.teacher_learning_rate", 0) for run in slow[:4]] == [0, 0, 7.5e-4, 0]
    for run in {run.arm: run for run in [*runs, *slow, *together_runs(RATES, ["several", "kl"])]}.values():
        parse_settings(Train, [PROTOCOL["preset"], *run.flags()], "train")
    assert together_runs(RATES, ["kl"]) == [] and len(together_runs(RATES, ["kl", "soup"])) == 2


def test_a_confirmation_says_what_is_ahead_on_the_held_back_suite():
    def run(name, seed, right):
        verdicts = [1] * right + [0] * (40 - right)
        rows = [{"suite": "held_back", "step": 1, "member": "S0", "tokens": 1.0, "correct": verdicts, "answers": None}]
        return MeasuredRun(f"{name}-{seed}", {"contaminated": {"held_back": []}}, {"seconds": np.zeros(1)}, rows)

    seeds = PROTOCOL["confirmation"]["seeds"]
    right = {"cured": 30, "agent_x4": 10, "4t4s": 33, "cured_soup": 10}
    runs = {name: [run(name, seed, count + seed % 2) for seed in seeds] for name, count in right.items()}
    confirmed = confirm.confirm(runs, Suite(problems(*["1"] * 40)))
    first, second, third = confirmed["claims"]
    assert (first["verdict"], second["verdict"], third["verdict"]) == ("holds", "does not", "does not")
    assert first["comparisons"][0]["effect"] == 0.5 and third["comparisons"][0]["effect"] == 0.0
    assert "| `cured` | 8 | 76.2 ± 1.3 | 76.2 | 75.0 |" in page.confirmed_tables(confirmed)
    without = {arm: of_arm for arm, of_arm in runs.items() if arm != "cured_soup"}
    verdicts = [claim["verdict"] for claim in confirm.confirm(without, Suite(problems(*["1"] * 40)))["claims"]]
    assert verdicts == ["holds", "does not", "incomplete"]
    with pytest.raises(SystemExit, match="lacks runs of 4t4s"):
        confirm.confirm({**runs, "4t4s": runs["4t4s"][:7]}, Suite([]))


def test_the_confirmation_waits_for_its_agents_learning_rate(tmp_path, monkeypatch):
    runs, made = control_runs(["kl"]), []
    args = Namespace(out=tmp_path)
    monkeypatch.setattr(campaign, "make", lambda asked, args: made.extend(asked))
    with pytest.raises(SystemExit, match="choose learning rates are not complete"):
        campaign.complete(runs, args)
    assert made == runs
    with pytest.raises(SystemExit, match="names no cure to confirm"):
        campaign.cure_to_confirm(tmp_path)


def test_what_culling_selects_is_read_from_the_steps_between_evolutions():
    steps = PROTOCOL["steps"]
    validity = {"T0": 0.2, "T1": 0.6, "T2": 0.9}
    curves = {f"teacher/validity/{name}": np.full(steps, value) for name, value in validity.items()}
    curves |= {f"rating/mu/{name}": np.full(steps, rating) for name, rating in {"T0": 30.0, "T1": 20.0, "T2": 27.5}.items()}
    curves["teacher/validity/T2"][9::10] = 0.7  # the last step of an interval counts, as do those before
    run = MeasuredRun("4t4s-0", {}, {"seconds": np.zeros(steps), **curves}, [])
    values = selection.selection([run], "teacher/validity")
    means = [0.2, 0.6, 0.88]
    expected = np.corrcoef([30, 20, 27.5], means)[0, 1], fmean(means) - 0.6, fmean(means) - 0.2
    assert [values[name] for name in ("rating", "replaced", "lowest")] == pytest.approx(expected, abs=1e-3) and values["itself"] > 0.99
    assert np.isnan(selection.correlation(np.ones(3), np.arange(3.0)))


def test_the_best_three_ideas_are_taken_if_they_are_better_by_the_margin():
    accuracies = {**dict.fromkeys([*PROTOCOL["ideas"]["references"], *PROTOCOL["ideas"]["arms"]], 0.5)}
    accuracies |= {"decay": 0.53, "kl": 0.516, "soup": 0.6, "slow_teachers": 0.512, "learnability": 0.62}
    medians = {name: dict.fromkeys(ideas.COLUMNS, value) for name, value in accuracies.items()}
    counts = ideas.needed_runs()
    assert counts == {"4t4s": 8, "agent": 24, "agent_x4": 5, "agent_tokens": 5, **dict.fromkeys(PROTOCOL["ideas"]["arms"], 2)}
    assert ideas.taken(medians, counts) == ["soup", "decay", "kl"], "learnability is no finalist"
    assert ideas.taken(medians | {"slow_teachers": medians["decay"], "4t4s": medians["slow_teachers"]}, counts) == [
        "soup",
        "decay",
        "slow_teachers",
    ]
    assert ideas.taken({**medians, "4t4s": medians["soup"]}, counts) == []
    for early in ({"kl": 1}, {"agent_x4": 4}):
        assert ideas.taken(medians, counts | early) is None, "before all runs are there"
    names = ideas.taken(medians, counts | {"learnability": 1})
    assert names == ["soup", "decay", "kl"], "runs of the others are not waited for"
    assert (
        ideas.chosen(None, accuracies, counts) is None
        and ideas.chosen([], accuracies, counts) == []
        and ideas.chosen(["kl"], accuracies, counts) == ["kl"]
    )
    assert ideas.chosen(names, accuracies, counts) is None, "before the runs of all together"
    for accuracy, expected in ((0.61, names), (0.59, ["soup"])):
        assert ideas.chosen(names, {**accuracies, "together": accuracy}, {**counts, "together": 2}) == expected
    rows = page.ideas_table(medians, counts | {"agent_x4-0.003": 1}).splitlines()
    assert rows[-1].startswith("| `agent_x4-0.003` |  | 1 of 2 |")
    assert rows[2].startswith("| `4t4s` |  | 8 of 8 | 0.5 |") and "| `learner.decay_steps = 200` | 2 of 2 |" in rows[7]


def test_a_run_of_an_idea_that_is_no_finalist_does_not_change_what_is_confirmed(tmp_path, monkeypatch):
    def run(arm, seed, right):
        of_arm = run_with([right])
        names = ("teacher/difficulty", "teacher/loc", "teacher/validity/T0/code_f")
        of_arm.facts["contaminated"]["validation"] = [0] if arm == "several" else []
        return replace(of_arm, name=f"{arm}-{seed}", curves={**of_arm.curves, **dict.fromkeys(names, np.ones(1))})

    finalists, needed = PROTOCOL["ideas"]["finalists"], ideas.needed_runs()
    answers = dict.fromkeys(PROTOCOL["ideas"]["references"], (0, 0, 0, 0)) | dict.fromkeys(finalists, (0, 0, 0, 1))
    answers |= {finalists[0]: (0, 0, 1, 1), "together": (1, 1, 0, 1), "several": (1, 1, 1, 1)}
    runs = {arm: [run(arm, seed, right) for seed in range(needed.get(arm, 2))] for arm, right in answers.items()}
    monkeypatch.setattr(sys, "argv", ["ideas", "--out", str(tmp_path)])
    for tried in ([*finalists, "together"], [*finalists, "together", "several"]):
        folders = {"ideas": {arm: runs[arm] for arm in tried}, "measured": {arm: runs[arm] for arm in PROTOCOL["ideas"]["references"]}}
        monkeypatch.setattr(ideas, "read_runs", lambda folder, folders=folders: folders[folder.name])
        ideas.main()
        chosen = json.loads((tmp_path / "ideas.json").read_text())["chosen"]
        assert chosen == finalists[:3], "without problem 0, which a teacher of several proposed, the best alone would be as good"


def test_ideas_are_compared_without_what_any_of_their_runs_proposed_and_with_arms_that_have_all_runs(tmp_path, monkeypatch):
    def run(arm, seed, proposed):
        of_arm = run_with([[1, 1, 0, 0]])
        names = ("teacher/difficulty", "teacher/loc", "teacher/validity/T0/code_f")
        of_arm.facts["contaminated"]["validation"] = proposed
        return replace(of_arm, name=f"{arm}-{seed}", curves={**of_arm.curves, **dict.fromkeys(names, np.ones(1))})

    places = {"4t4s": [0], "agent": [], "agent_x4": [1], "agent_tokens": [], "kl": [2], "centring": [3]}
    counts = {**ideas.needed_runs(), "agent_x4": 4}  # one run of agent_x4 is not there yet
    runs = {arm: [run(arm, seed, places[arm]) for seed in range(counts[arm])] for arm in places}
    folders = {"ideas": {arm: runs[arm] for arm in ("kl", "centring")}, "measured": {arm: runs[arm] for arm in list(places)[:4]}}
    monkeypatch.setattr(ideas, "read_runs", lambda folder: folders[folder.name])
    monkeypatch.setattr(sys, "argv", ["ideas", "--out", str(tmp_path)])
    ideas.main()
    written = json.loads((tmp_path / "ideas.json").read_text())
    assert written["left_out"] == 2 and list(written["medians"]) == ["4t4s", "agent", "agent_tokens", "kl", "centring"]
    accuracies = {arm: values["accuracy"] for arm, values in written["medians"].items()}
    assert accuracies.pop("centring") == 1.0, "of problem 1 alone, because place 3 is left out for it as well, but for no finalist"
    assert set(accuracies.values()) == {0.5} and written["taken"] is None
    assert (written["runs"]["agent_x4"], written["runs"]["kl"]) == (4, 2)


def test_finalists_are_trained_before_all_together_and_the_other_ideas_last(tmp_path):
    (tmp_path / "ideas.json").write_text('{"taken": ["kl", "soup"]}')
    arms = [run.arm.removeprefix("ideas/") for run in campaign.runs_of("ideas", RATES, tmp_path)]
    assert set(arms[:8]) == set(PROTOCOL["ideas"]["finalists"]) and arms[8:10] == ["together"] * 2
    assert set(arms[10:]) == {"centring", "earned", "learnability", "several"} and len(arms) == 18


def test_an_idea_has_its_numbers_on_record():
    verdicts = [[1, 0, 1, 1], [0, 0, 1, 0]]
    run = run_with(verdicts)
    names = ("teacher/difficulty", "teacher/loc", "tokens/propose", "tokens/solve")
    curves = {name: np.array([1e6, 3e6]) for name in names} | {"teacher/validity/T0/code_f": np.array([0.5, 0.25]), "seconds": np.zeros(1)}
    run = MeasuredRun("kl-910", run.facts, curves, run.answers)
    values = ideas.values_of(run, [3])
    assert (values["accuracy"], values["least valid"], values["sampled"]) == (0.5, 0.375, 8)
    kept = ("learner/base_kl/T0", "teacher/validity/T0/code_f", "student/format_rate", "teacher/rho_zero", "tokens/solve")
    assert all(measure.KEPT.fullmatch(name) for name in kept)


def test_no_snapshot_has_children_that_did_not_train():
    every = parse_settings(Train, [PROTOCOL["preset"]], "train").settings.evolution.every
    assert all(step % every or step == PROTOCOL["steps"] for step in PROTOCOL["snapshots"])


def test_claims_name_measures_and_arms_of_the_protocol():
    arms = {*PROTOCOL["arms"], *PROTOCOL["derived"], *PROTOCOL["soups"]}
    assert sorted(chain.from_iterable(PROTOCOL["order"]["arms"])) == sorted(PROTOCOL["arms"])
    known = {*PROTOCOL["measures"], "cyclomatic", "ast_depth", "variables"}
    for claim in PROTOCOL["claims"]:
        for each in claim["comparisons"]:
            assert each["measure"].removesuffix("/change") in known and each["arm"] in arms and each["sign"] in "+-"
            assert isinstance(each["against"], float) or each["against"] in arms


def test_transfer_programs_have_what_the_generator_never_writes():
    """A construct of each family is in none of 2,000 programs of the generator."""
    from experiments.tiny_base.grammar import random_program

    rng = stream(0, "transfer test")
    corpus = [random_program(rng, 1 + index % 8) for index in range(2000)]
    known = Counter(type(node).__name__ for source in corpus for node in ast.walk(ast.parse(source)))
    calls = Counter(
        node.func.id
        for source in corpus
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    )
    assert (
        calls["len"]
        and not any(calls[name] for name in ("f", "set", "zip", "map", "any", "all"))
        and not known["Lambda"]
        and not known["Break"]
        and not known["Continue"]
        and not known["BitAnd"]
    )
    assert len({family.name for family in FAMILIES}) == len(FAMILIES) == 20


@pytest.mark.parametrize(("right", "level"), [(16, "1"), (13, "1"), (12, "2"), (8, "2"), (7, "3"), (3, "3"), (2, "4"), (1, "4"), (0, "5")])
def test_levels_follow_the_base(right, level):
    assert suites.level_of(right) == level


def test_a_vote_takes_the_most_frequent_answer_and_no_answer_has_no_vote():
    answers = np.array([[1, 2, 2, 0], [0, 0, 0, 0], [3, 1, 1, 3], [0, 0, 0, 4]])
    correct = np.array([[1, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 1], [0, 0, 0, 1]])
    assert vote(answers, correct).tolist() == [0, 0, 1, 1]  # of equally frequent ones the earliest


def run_with(verdicts, contaminated=(), votes=None):
    """A run of one step whose solvers have these verdicts on each suite."""
    rows = [
        {"suite": suite, "step": 1, "member": f"S{index}", "tokens": 1.0, "correct": row, "answers": None}
        for suite in ("test", "transfer", "validation")
        for index, row in enumerate(verdicts)
    ]
    rows += [{"suite": "vote", "step": 1, "member": "S", "correct": right, "answers": given} for given, right in votes or ()]
    facts = {"contaminated": {"test": list(contaminated), "transfer": [], "validation": []}, "children": []}
    curves = {"seconds": np.zeros(1), "tokens/propose": np.full(1, 1e6), "tokens/solve": np.full(1, 2e6)}
    return MeasuredRun("r", facts, curves, rows)


def test_accuracies_are_of_all_solvers_the_weakest_the_chosen_and_any_without_what_was_proposed():
    suite = {"test": Suite(problems("1", "1", "2", "2")), "transfer": Suite(problems("a", "a", "b", "b"))}
    run = run_with([[1, 0, 1, 1], [0, 0, 1, 0]], contaminated=[3])
    rows = accuracies([run], suite)
    np.testing.assert_equal(rows["test"], [0.5, 0, 1, np.nan])
    assert measures.grouped(rows["test"], suite["test"].groups) == pytest.approx((0.25 + 1) / 2)
    np.testing.assert_equal(rows["weakest"], [0, 0, 1, np.nan])
    np.testing.assert_equal(rows["chosen"], [1, 0, 1, np.nan])
    np.testing.assert_equal(rows["union"], [1, 0, 1, np.nan])
    assert rows["transfer"].tolist() == [0.5, 0, 1, 0.5]


def test_groups_of_runs_are_disjoint_in_the_order_of_the_seeds_and_whole():
    derived, planned = PROTOCOL["derived"], analyse.planned_observations()
    groups = {name: analyse.in_groups(list(range(24)), part) for name, part in derived.items()}
    assert groups["agents4"] == [list(range(start, start + 4)) for start in range(0, 24, 4)]
    assert groups["later_agents4"] == groups["agents4"][2:] and {name: len(of_arm) for name, of_arm in groups.items()} == {
        name: planned[name] for name in derived
    }
    assert analyse.in_groups(list(range(7)), derived["agents4"]) == [[0, 1, 2, 3]]


def test_a_group_of_runs_has_the_samples_of_all_the_validity_of_the_worst_and_an_accuracy_for_each_level():
    suite = {"test": Suite(problems(*"112233112233")), "transfer": Suite(problems(*"aaaaaabbbbbb"))}
    runs = [run_with([[1, 1, 1, 0, 0, 0] * 2, [1, 1, 0, 0, 0, 0] * 2]) for _ in range(2)]
    for run, validity in zip(runs, (0.9, 0.2), strict=True):
        run.curves["teacher/validity/T0/code_f"] = np.full(1, validity)
    arm = analyse.observe([runs], suite)
    assert arm["sampled"].values.tolist() == [6.0] and arm["least_valid"].values.tolist() == [0.2]
    assert [arm[f"test/{level}"].values.tolist() for level in (1, 2, 3)] == [[1.0], [0.25], [0.0]]
    assert arm["weakest"].values == pytest.approx(1 / 3) and "solve_rate" not in arm  # curves of training are of single runs


def test_runs_are_in_the_order_of_their_seeds(tmp_path):
    for name in ("agent-10", "agent-2", "4t4s-0", "agent-1"):
        pq.write_table(pa.table({"seconds": [1.0]}).replace_schema_metadata({"children": "[]"}), tmp_path / f"{name}.parquet")
        pq.write_table(pa.table({"suite": ["test"]}), tmp_path / f"{name}.answers.parquet")
    runs = measures.read_runs(tmp_path)
    assert {arm: [run.name for run in of_arm] for arm, of_arm in runs.items()} == {
        "4t4s": ["4t4s-0"], "agent": ["agent-1", "agent-2", "agent-10"],
    }  # fmt: skip


def test_soups_are_of_adapters_that_the_planned_runs_leave():
    planned = {run.name: run for run in [*planned_runs(RATES), *confirmation_runs(RATES, ["kl"])]}
    arms = Counter(soup.arm for soup in planned_soups())
    assert arms == {"students": 6, "agents": 4, "confirmation/cured_soup": 8} and len({soup.name for soup in planned_soups()}) == 18
    for soup in planned_soups():
        assert len(set(soup.adapters)) == 4 and all(planned[name].suites == protocol.suites_of(soup.arm) for name in soup.runs)
    assert [soup.runs for soup in planned_soups()[5:7]] == [["4t4s-7"], ["agent-8", "agent-9", "agent-10", "agent-11"]]


def test_a_soup_leaves_out_what_any_of_its_runs_proposed_and_its_gain_is_over_their_solvers(tmp_path, monkeypatch):
    suite = {"test": Suite(problems("1", "1", "2", "2")), "transfer": Suite(problems("a", "a", "b", "b"))}
    runs = [replace(run_with([[0, 0, 1, 1]], contaminated=[place]), name=f"agent-{place}") for place in (1, 3)]
    rows = [{**row, "step": 0, "member": name} for name in ("uncut", "soup") for row in run_with([[int(name == "soup"), 0, 1, 0]]).answers]
    planned = PlannedSoup("agents", ("agent-1/A0", "agent-3/A0"))
    (tmp_path / "soups").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "soups/agents-1.answers.parquet")
    monkeypatch.setattr(measures, "planned_soups", lambda: [planned])
    assert measures.read_soups(tmp_path, runs[:1]) == {}, "a run is not measured yet"
    (soup,) = measures.read_soups(tmp_path, runs)["agents"]
    assert soup.runs == runs
    arm = analyse.observe_soups([soup], suite)
    np.testing.assert_equal(arm["test"].rows, [[1, np.nan, 1, np.nan]])
    np.testing.assert_equal(arm["gain"].rows, [[1, np.nan, 0, np.nan]])
    np.testing.assert_equal(arm["ahead"].rows, [[1, np.nan, 0, np.nan]])
    np.testing.assert_equal(arm["uncut"].rows, [[0, np.nan, 1, np.nan]])
    assert arm["sampled"].values.tolist() == [6.0]


needs_runs = pytest.mark.skipif(not (page.HERE / "measured").exists(), reason="a source distribution has no runs of the claims")


@cache
def all_runs(folder):
    """Read each folder once: it takes two seconds."""
    return measures.read_runs(folder)


@needs_runs
def test_the_committed_ideas_and_learning_rates_are_those_of_the_measured_runs(tmp_path, monkeypatch):
    (tmp_path / "measured").symlink_to(page.HERE / "measured")
    monkeypatch.setattr(sys, "argv", ["ideas", "--out", str(tmp_path)])
    monkeypatch.setattr(ideas, "read_runs", lambda folder: all_runs(folder.resolve()))
    ideas.main()
    monkeypatch.setattr(selection, "read_runs", lambda folder: all_runs(folder.resolve()))
    selection.main()
    rates.chosen_rates(tmp_path)
    for name in ("ideas.json", "pilot.json", "selection.json"):
        assert (tmp_path / name).read_text() == (page.HERE / name).read_text(), "call python -m benchmarks.claims.page"


@needs_runs
def test_the_committed_means_are_those_of_the_measured_runs(tmp_path):
    """Of the effects and their intervals only the runs, because drawing problems again takes long."""
    runs, planned = all_runs(page.HERE / "measured"), analyse.planned_observations()
    arms = analyse.observe_arms(runs, page.HERE / "measured")
    analyse.write_means(tmp_path / "means.csv", analyse.means_of(arms, planned))
    assert (tmp_path / "means.csv").read_text() == (page.HERE / "means.csv").read_text(), "call python -m benchmarks.claims.page"
    results = json.loads((page.HERE / "results.json").read_text())
    assert {name: results[name] for name in ("runs", "left_out")} == analyse.counts_of(runs, arms, planned)


@needs_runs
def test_the_page_has_the_tables_of_the_committed_results(monkeypatch):
    monkeypatch.setattr(page, "read_runs", all_runs)
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.filled(text, page.parts_of(page.HERE)) == text, "call python -m benchmarks.claims.page"
    with pytest.raises(SystemExit, match="has 0 places for claims"):
        page.filled("<!-- begin claims -->", {"claims": ""})


def test_the_page_says_what_an_arm_solves_once_all_its_runs_are_there():
    means = {measure: {"mean": 0.5, "sd": 0.02} for measure in ("test", "transfer")}
    means |= {"sampled": {"mean": 3.66}, "least_valid": {"values": [0.05, 0.9, 0.0]}}
    base = {"test": {level: {"greedy": int(level) / 10} for level in "12345"}, "transfer": {"set": {"greedy": 0.5}, "map": {"greedy": 0.0}}}
    untrained, agent, pair = page.arms_table({"agent": [24, 24], "1t1s": [2, 8]}, {"agent": means}, base).splitlines()[2:]
    assert untrained == "|  | the untrained base |  | 0 | 30.0 | 10.0 | 20.0 | 30.0 | 40.0 | 50.0 | 25.0 |  |  |  |  |"
    assert agent == "| `agent` | one agent | 24 of 24 | 3.7 | 50.0 ± 2.0 |  |  |  |  |  | 50.0 |  |  |  | 2 |"
    assert pair.startswith("| `1t1s` | 1T+1S | 2 of 8 |  |  |")


def test_the_page_gives_the_verdict_of_a_claim_once_and_each_effect():
    effect = {"accuracy": True, "effect": 0.0123, "interval_95": [-0.01, 0.03]}
    comparison = {"measure": "test", "arm": "4t4s", "against": "students", "sign": "-", **effect}
    constant = {"measure": "lead", "arm": "4t4s", "against": 0.0, "sign": "+", "effect": 2.34e-4, "interval_95": [1e-4, 4e-4]}
    claim = {"id": "C0", "text": "So.", "verdict": "unclear", "p_corrected": 0.0456, "comparisons": [comparison, constant]}
    first, second = page.claims_table([claim]).splitlines()[2:]
    assert first == "| C0 | So. | **unclear** | `test`: 4t4s − soup of students (−) | +0.012 [-0.010, +0.030] | 0.046 |"
    assert second == "|  |  |  | `lead`: 4t4s against 0 (+) | +0.00023 [+0.0001, +0.0004] |  |"


def test_what_each_run_left_out_is_reported():
    runs = {"agent": [run_with([[0] * 4]), run_with([[0] * 4], contaminated=[1, 3])], "4t4s": [run_with([[0] * 4], contaminated=[0])]}
    empty = {"agent": [0, 0], "4t4s": [0]}
    assert analyse.left_out(runs) == {"test": {"agent": [0, 2], "4t4s": [1]}, "transfer": empty, "validation": empty}


def test_a_claim_about_soups_needs_all_of_them():
    planned = analyse.planned_observations()
    claim = next(claim for claim in PROTOCOL["claims"] if claim["id"] == "C17")

    def judged(soups):
        counts = {"students": soups, **{arm: planned[arm] for arm in ("agents", "later_agents4", "agent_x4")}}
        values = {arm: Observations(np.arange(count) / 1000 + (arm == "students")) for arm, count in counts.items()}
        return judge({arm: {"test": each, "chosen": each} for arm, each in values.items()}, planned, [claim])[0]["verdict"]

    assert (judged(planned["students"]), judged(planned["students"] - 1)) == ("holds", "incomplete")


@pytest.mark.slow
def test_a_soup_is_asked_at_its_parents_rank_and_uncut(tmp_path, monkeypatch):
    """Three of the four parents do nothing. So the mean is a quarter of the other one, and the cut to its rank takes nothing away."""
    chosen = measure.problems_of("validation")[::108]
    monkeypatch.setattr(soups, "problems_of", lambda suite: chosen)
    with build_run(changed(load_config(settings_file("tiny_1t1s")), {"threads": 1})) as run:
        slot = run.population.solvers[0].slot
        adapter = run.bank.adapter(slot)
        grown = {name: (a, torch.full_like(b, 0.02)) for name, (a, b) in adapter.modules.items()}
        run.bank.load(slot, replace(adapter, modules={name: (a, b / 4) for name, (a, b) in grown.items()}))
        run.sync_weights()
        (expected,) = measure.greedy_rows(run, "validation", chosen)
    for index in range(4):
        modules = grown if index == 2 else adapter.modules
        save_adapter(replace(adapter, modules=modules), tmp_path / f"4t4s-1/S{index}", "tiny", run.config.lora.targets)
    soup = PlannedSoup("students", tuple(f"4t4s-1/S{index}" for index in range(4)))
    soups.measure(soup, ["validation"], tmp_path, tmp_path)
    table = pq.read_table(soups.target(tmp_path, soup))
    assert [row["member"] for row in table.to_pylist()] == ["soup", "uncut"] and b"parents" in table.schema.metadata
    assert all((row["correct"], row["tokens"]) == (expected["correct"], expected["tokens"]) for row in table.to_pylist())


def test_solvers_of_several_runs_are_ranked_on_the_same_problems():
    suite = {"test": Suite(problems("1", "1")), "transfer": Suite(problems("a", "a"))}
    first, second = run_with([[1, 0]]), run_with([[0, 1]])
    first.answers[2]["correct"], second.answers[2]["correct"] = [1, 1, 0, 0], [1, 1, 1, 0]  # on the validation suite
    first.facts["contaminated"]["validation"] = [2, 3]
    np.testing.assert_equal(accuracies([first, second], suite)["chosen"], [1, 0])  # equal without these two, so the earlier one
    first.facts["contaminated"]["validation"] = []
    np.testing.assert_equal(accuracies([first, second], suite)["chosen"], [0, 1])


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_the_cpu_time_of_a_training_that_is_stopped_is_noted(tmp_path, ending):
    script = (
        "import sys, time\nsum(range(3_000_000))\ntry: print('ready', flush=True), time.sleep(600)\nexcept KeyboardInterrupt: sys.exit(130)"
    )
    command = [sys.executable, "-c", campaign.TIMED, str(tmp_path / measure.USED), sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout.readline() == b"ready\n"
        os.killpg(process.pid, ending)
        assert process.wait(300) == (130 if ending is signal.SIGINT else 241)
    assert 0.01 < measure.cpu_seconds(tmp_path) < 300
    (tmp_path / measure.USED).write_text("nan\n3.5\n")
    assert measure.cpu_seconds(tmp_path) is None


def test_a_run_begins_only_if_the_longest_one_measured_would_end_in_time(tmp_path):
    (tmp_path / "pilot").mkdir()
    for name, seconds in {"4t4s-0": 3.0, "4t4s-1": 5.0, "pilot/agent-1": 2.0}.items():
        pq.write_table(pa.table({"seconds": [seconds, 1.0]}), tmp_path / f"{name}.parquet")
    clock = campaign.Clock(tmp_path)
    assert (clock.longest("4t4s"), clock.longest("pilot/agent"), clock.longest("8t8s")) == (6.0, 3.0, 6.0)


def test_the_gain_of_a_vote_compares_equal_numbers_of_answers():
    right, wrong = ([1] * 16, [1] * 16), ([2] * 16, [0] * 16)
    run = run_with([[1], [0], [0], [0]], votes=[right, wrong, wrong, wrong])
    suite = Suite([problem for problem in problems(*"111") if problem.task is TaskType.CODE_O])
    assert vote_gain([run], suite).tolist() == [0 - 0.25]  # together 4 of 16 are right; alone one solver of four is
    known = run_with([[1], [0], [0], [0]], contaminated=[0], votes=[right, wrong, wrong, wrong])
    assert np.isnan(vote_gain([known], suite)).tolist() == [True]


def test_a_vote_of_all_solvers_takes_a_quarter_of_the_answers_of_each():
    run = run_with([[1], [0], [0], [0]], votes=[([1] * 4 + [2] * 12, [1] * 4 + [0] * 12)] * 4)
    suite = Suite([problem for problem in problems(*"111") if problem.task is TaskType.CODE_O])
    assert vote_gain([run], suite).tolist() == [1.0]  # their first four answers are right, and alone each votes for the other twelve


def test_specialisation_is_nothing_for_chance_and_the_variance_of_real_differences():
    rng, types = np.random.default_rng(0), [CODE_TYPES[index % 3] for index in range(1200)]
    chance = rng.random((4, 1200)) < 0.5
    assert specialisation(chance.astype(float), types) == pytest.approx(0, abs=1e-3)
    skills = np.array([[0.2, 0, -0.2], [-0.2, 0, 0.2], [0, 0.2, -0.2], [0, -0.2, 0.2]])  # rows and columns add up to 0
    truth = np.sum(skills**2) / (3 * 2)
    special = rng.random((4, 1200)) < 0.5 + skills[:, np.arange(1200) % 3]
    assert specialisation(special.astype(float), types) == pytest.approx(truth, rel=0.2)


def test_what_oscillates_is_told_from_noise_and_from_a_trend():
    rng, steps = np.random.default_rng(0), np.arange(200)
    noise = [rng.normal(0, 0.05, 200) for _ in range(200)]

    def mean(signal, share=1.0):
        return np.mean([oscillation(share * values + signal) for values in noise])

    assert mean(0 * steps) == pytest.approx(0, abs=2e-5)  # 2 % of the variance of a step
    assert mean(steps / 200) == pytest.approx(0, abs=2e-5)
    phases = 0.03 * np.sin(steps / 4)
    assert mean(phases) == pytest.approx(mean(phases, share=0.5), rel=0.1)  # whatever the number of problems a step
    assert mean(phases) == pytest.approx(4 * mean(phases / 2), rel=0.1) and mean(phases) > 2e-4
    assert np.isnan(oscillation(np.full(200, np.nan)))


def test_a_curve_counts_by_its_last_twenty_steps_and_its_change_since_the_first_twenty():
    steps = np.arange(100.0)
    curves = {f"{side}/{name}": steps * scale for side, scale in (("student", 1), ("teacher", 10)) for name in CURVES}
    curves |= {"archive/coverage": steps + 1, "archive/total_problems": steps + 1, "seconds": steps}
    values = scalars(replace(run_with([[0]]), curves=curves))
    for name in CURVES:
        scale = 1 if name in ("solve_rate", "response_length") else 10  # of students; the others are of teachers
        assert (values[name], values[f"{name}/change"]) == (pytest.approx(89.5 * scale), pytest.approx(80 * scale))


def test_the_rate_of_new_cells_is_that_of_the_last_fifty_steps_by_that_of_the_first():
    new, programs = np.repeat([4.0, 100.0, 1.0], [50, 100, 50]), np.repeat([8.0, 9.0, 10.0], [50, 100, 50])
    curves = {"archive/coverage": np.cumsum(new), "archive/total_problems": np.cumsum(programs)}
    assert coverage_rate(curves) == pytest.approx((1 / 10) / (4 / 8))
    still = {name: np.concatenate([curve, np.full(60, curve[-1])]) for name, curve in curves.items()}
    assert coverage_rate(still) == 0


def test_a_child_has_recovered_if_its_last_steps_are_near_those_of_older_members():
    rise = np.where(np.arange(60) < 36, 0.2, 0.6)  # S1, born after step 20, is as good as the others from step 37 on
    curves = {"seconds": np.zeros(60), **{f"student/solve_rate/S{index}": np.full(60, 0.6) for index in (0, 2)}}
    child = {"member": "S1", "born": 20, "operator": "x1", "parents": ["S0#1", "S2#0"]}
    assert recovered([child], {**curves, "student/solve_rate/S1": rise}) == 0.0
    assert recovered([child], {**curves, "student/solve_rate/S1": np.roll(rise, -1)}) == 1.0
    assert recovered_excess([child], {**curves, "student/solve_rate/S1": rise}) == -1.0  # the older ones are near each other
    assert recovered_excess([child], {**curves, "student/solve_rate/S0": rise, "student/solve_rate/S1": rise}) == 0.0
    leaves = {**child, "member": "S0", "born": 40}  # it still takes part in step 40, the last of the window
    assert recovered([child, leaves], {**curves, "student/solve_rate/S0": rise, "student/solve_rate/S1": rise}) == 0.75
    assert np.isnan(recovered([{**child, "born": 50}], {**curves, "student/solve_rate/S1": rise}))  # too late to be judged
    young = [child, *({**child, "member": member, "born": 30} for member in ("S0", "S2"))]
    assert np.isnan(recovered([child, *young], {**curves, "student/solve_rate/S1": rise}))  # nobody is older


def test_what_a_crossover_keeps_is_judged_at_the_type_in_which_each_parent_was_ahead_before():
    rates = {"S0": (0.8, 0.5, 0.5), "S2": (0.5, 0.5, 0.9), "S1": (0.8, 0.1, 0.45)}
    curves = {f"student/solve_rate/{m}/{task}": np.full(60, rate) for m in rates for task, rate in zip(TASKS, rates[m], strict=True)}
    curves["seconds"] = np.zeros(60)
    child = {"member": "S1", "born": 20, "operator": "x1", "parents": ["S0#1", "S2#0"]}
    assert parents_kept([child], curves) == pytest.approx((0.8 + 0.45) / (0.8 + 0.9))
    assert np.isnan(parents_kept([child, {**child, "member": "S2", "born": 39}], curves))  # a parent is replaced meanwhile
    assert not np.isnan(parents_kept([child, {**child, "member": "S2", "born": 40}], curves))
    seldom = np.where(np.arange(60) % 2, 0.45, np.nan)  # steps without a problem of the type
    assert parents_kept([child], {**curves, "student/solve_rate/S1/code_f": seldom}) == pytest.approx((0.8 + 0.45) / (0.8 + 0.9))
    never = np.full(60, np.nan)
    assert parents_kept([child], {**curves, "student/solve_rate/S1/code_f": never}) == pytest.approx(1.0)
    assert np.isnan(parents_kept([{**child, "parents": ["S0#1"]}], curves))


def test_an_interval_over_runs_and_problems_holds_the_true_difference_as_often_as_it_says(monkeypatch):
    monkeypatch.setattr(verdicts, "DRAWS", 500)
    rng, groups, held = np.random.default_rng(0), [np.arange(60), np.arange(60, 120)], 0
    for _ in range(40):
        easy = rng.random(120)
        arms = {
            name: {"test": shares(np.array([(rng.random(120) < np.clip(easy + shift + rng.normal(0, 0.05), 0, 1)).astype(float)
                                            for _ in range(8)]), groups)}
            for name, shift in (("a", 0.1), ("b", 0.0))
        }  # fmt: skip
        low, high = compare(arms, {"measure": "test", "arm": "a", "against": "b", "sign": "+"}, 1, dict.fromkeys(arms, 8))["interval_95"]
        held += low < 0.09 < high  # 0.1 less what the clip takes
    assert held >= 33


def test_an_effect_has_welchs_interval_and_p_and_that_of_its_claim_is_bonferronis():
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(0.3, 0.2, 6), rng.normal(0.2, 0.02, 24)
    arms, planned = {"a": {"lead": Observations(ours)}, "b": {"lead": Observations(theirs)}}, {"a": 6, "b": 24}
    known = compare(arms, {"measure": "lead", "arm": "a", "against": "b", "sign": "+"}, 2, planned)
    test = stats.ttest_ind(ours, theirs, equal_var=False)
    assert known["p"] == pytest.approx(test.pvalue) and known["effect"] == pytest.approx(ours.mean() - theirs.mean(), rel=1e-3)
    for name, level in (("interval_95", 0.95), ("interval_of_claim", 0.975)):
        assert known[name] == pytest.approx(list(test.confidence_interval(level)), rel=1e-3)
    constant = compare(arms, {"measure": "lead", "arm": "a", "against": 0.1, "sign": "+"}, 1, planned)
    assert constant["interval_95"] == pytest.approx(list(stats.ttest_1samp(ours, 0).confidence_interval(0.95) - np.array(0.1)), rel=1e-3)


def test_the_error_over_problems_is_that_of_a_sample_within_each_level_paired_by_problem():
    rng, groups = np.random.default_rng(0), [np.arange(40), np.arange(40, 60)]
    easy = rng.random(60)
    ours, theirs = ((rng.random((8, 60)) < easy).astype(float) for _ in range(2))
    difference = ours.mean(0) - theirs.mean(0)
    expected = np.sqrt(sum(np.var(difference[places]) / len(places) for places in groups)) / len(groups)
    assert problem_error(shares(ours, groups), shares(theirs, groups)) == pytest.approx(expected, rel=0.03)
    assert problem_error(shares(ours, groups), shares(ours, groups)) == 0


def test_a_comparison_needs_five_values_of_an_arm_or_all_of_fewer_runs():
    def lacks(values, planned):
        arms = {"a": {"lead": Observations(np.arange(values) / 10)}}
        return "too_few_values" in compare(arms, {"measure": "lead", "arm": "a", "against": 0.0, "sign": "+"}, 1, {"a": planned})

    assert [lacks(4, 8), lacks(5, 8), lacks(4, 4), lacks(3, 4)] == [True, False, False, True]


def test_the_p_of_a_claim_is_the_largest_of_its_comparisons():
    values = {"sure": np.arange(8) + 100.0, "doubtful": np.arange(8) - 3.0}
    arms = {arm: {"lead": Observations(of_runs)} for arm, of_runs in values.items()}
    each = [{"measure": "lead", "arm": arm, "against": 0.0, "sign": "+"} for arm in arms]
    (claim,) = judge(arms, dict.fromkeys(arms, 8), [{"id": "C", "comparisons": each}])
    assert claim["p_corrected"] == pytest.approx(stats.ttest_1samp(values["doubtful"], 0).pvalue) and claim["verdict"] == "unclear"


def test_the_picture_has_what_runs_spent_until_each_snapshot(tmp_path, monkeypatch):
    suite = {"test": Suite(problems("1", "1", "2", "2")), "transfer": Suite(problems("a", "a", "b", "b"))}
    run = run_with([[1, 0, 1, 1], [0, 0, 1, 0]])
    later = [{**row, "step": 4, "correct": [1, 1, 1, 1]} for row in run.answers]
    early = [row for row in run.answers if row["suite"] != "validation"]
    curves = {"seconds": np.array([1.0, 1.0, 1.0, 5.0]), "tokens/propose": np.full(4, 2e6), "tokens/solve": np.full(4, 1e6)}
    run = MeasuredRun("4t4s-0", {**run.facts, "cpu_seconds": 960, "processor": "a"}, curves, [*early, *later])
    steps, rows = draw.progress([run], suite)
    assert steps.tolist() == [1, 4] and rows[0][0].tolist() == [0.5, 0, 1, 0.5] and rows[0][1].tolist() == [1, 1, 1, 1]
    unknown, slow, other = (
        MeasuredRun("agent-1", {**run.facts, "cpu_seconds": seconds, "processor": processor}, curves, run.answers)
        for seconds, processor in [(None, "a"), (9e9, "a"), (1, "b")]
    )
    assert draw.cost([run, run, slow, unknown, other], "a") == pytest.approx(960 / 12e6)  # a median: one run's slow machine does not count
    assert np.isnan(draw.cost([unknown, other], "a"))
    with monkeypatch.context() as kept:
        kept.setattr(draw.plt, "close", lambda figure: None)
        draw.draw({"4t4s": [run], "agent": [run, unknown]}, suite, [0.1, 0.2], tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000
    *curves_of, levels = draw.plt.gcf().axes
    spent = [axis.lines[0].get_xdata().tolist() for axis in curves_of]
    assert spent == [[1, 4], [3, 12], pytest.approx([4, 16])]  # steps, millions of tokens and minutes
    assert all(axis.lines[0].get_ydata().tolist() == [0.5, 1] for axis in curves_of)
    assert levels.lines[0].get_ydata().tolist() == [1, 1] and levels.lines[-1].get_ydata().tolist() == [0.1, 0.2]
    draw.plt.close("all")


def test_a_band_of_the_picture_is_one_standard_error():
    axis = draw.plt.figure().subplots()
    draw._line(axis, "4t4s", np.array([1, 2]), np.array([[0.1, 0.2], [0.3, 0.6]]))
    corners = axis.collections[0].get_paths()[0].vertices
    ends = [(corners[corners[:, 0] == x, 1].min(), corners[corners[:, 0] == x, 1].max()) for x in (1, 2)]
    assert ends == [pytest.approx((0.1, 0.3)), pytest.approx((0.2, 0.6))]
    draw.plt.close("all")


def test_verdicts_follow_the_rule():
    def of(low, high, sign="+", accuracy=True, wider=0.0):
        return {
            "effect": (low + high) / 2,
            "interval_95": [low, high],
            "interval_of_claim": [low - wider, high + wider],
            "sign": sign,
            "accuracy": accuracy,
        }

    assert verdict([of(0.03, 0.1)], 0.01, final=True) == "holds"
    assert verdict([of(0.03, 0.1)], 0.2, final=True) == "unclear"
    assert verdict([of(0.03, 0.1), of(-0.01, 0.1)], 0.01, final=True) == "unclear"
    assert verdict([of(0.03, 0.1), of(-0.1, 0.015)], 0.01, final=True) == "does not"  # at most less than would matter
    assert verdict([of(-0.1, 0.015, accuracy=False)], 0.9, final=True) == "unclear"
    assert verdict([of(-2, -1, sign="-", accuracy=False)], 0.01, final=True) == "holds"
    assert verdict([of(1, 2, sign="-", accuracy=False)], 0.01, final=True) == "does not"
    assert (
        verdict([of(-2, -1, accuracy=False, wider=1.5)], 0.5, final=True) == "unclear"
    )  # refuted alone, not among the comparisons of its claim
    assert verdict([of(0.001, 0.015)], 0.01, final=True) == "holds"  # small, but there
    assert verdict([of(0.001, 0.015)], 0.2, final=True) == "does not"
    assert verdict([of(0.001, 0.015)], 0.2, final=False) == "unclear"  # p falls when other claims are complete
    assert verdict([of(-0.1, 0.015)], 0.2, final=False) == "does not"
    assert verdict([of(0.03, 0.1), {"sign": "+"}], 0.01, final=True) == "unclear"  # too few values


def test_a_claim_without_all_its_runs_has_no_verdict():
    arms = {"4t4s": {"test": Observations(np.array([0.5, 0.6]))}, "agent": {"test": Observations(np.array([0.1, 0.2]))}}
    claims = {claim["id"]: claim for claim in judge(arms, {"4t4s": 2, "agent": 3})}
    assert claims["C1"]["verdict"] == "incomplete" and "effect" not in claims["C1"]["comparisons"][0]
    there = {claim["id"]: claim for claim in judge(arms, {"4t4s": 2, "agent": 2})}
    assert there["C11"]["verdict"] == "incomplete" and there["C2"]["verdict"] == "unclear"  # no run has a value of transfer
    judged = there["C1"]
    alone = judge(arms, {"4t4s": 2, "agent": 2}, [PROTOCOL["claims"][0]])[0]
    assert judged["p_corrected"] == pytest.approx(len(PROTOCOL["claims"]) * alone["p_corrected"])
    assert "| C1 |" in page.claims_table(claims.values())


def test_means_are_those_of_arms_with_all_runs_though_a_measure_may_lack_a_value(tmp_path):
    all_runs = {"test": Observations(np.array([0.5, 0.7])), "recovered": Observations(np.array([1.0]))}
    arms = {"4t4s": all_runs, "agent": {"test": Observations(np.array([0.1]))}, "agents4": {}}
    means = analyse.means_of(arms, {"4t4s": 2, "agent": 2, "agents4": 2})
    assert list(means) == ["4t4s"] and means["4t4s"]["recovered"]["values"] == [1.0]
    assert (means["4t4s"]["test"]["mean"], means["4t4s"]["test"]["sd"]) == (0.6, 0.1414)  # of a sample
    analyse.write_means(tmp_path / "means.csv", means)
    assert analyse.read_means(tmp_path / "means.csv") == means


def test_answers_that_are_known_are_not_asked_for_again(tmp_path, monkeypatch):
    monkeypatch.setattr(suites, "AT_A_TIME", 2)
    asked: list[str] = []

    def answer(some):
        if len(asked) >= 2:
            raise KeyboardInterrupt
        asked.extend(problem.id for problem in some)
        return {problem.id: 7 for problem in some}

    pool = problems("1", "2", "1", "2", "1")
    with pytest.raises(KeyboardInterrupt):
        suites.answer_in_parts(tmp_path / "known.json", pool, answer)
    asked.clear()
    right = suites.answer_in_parts(tmp_path / "known.json", pool, lambda some: asked.extend(p.id for p in some) or {p.id: 9 for p in some})
    assert right == {"0": 7, "1": 7, "2": 9, "3": 9, "4": 9} and asked == ["2", "3", "4"]
    suites.write_problems(tmp_path / "pool.parquet", pool)
    assert suites.read_problems(tmp_path / "pool.parquet") == pool
