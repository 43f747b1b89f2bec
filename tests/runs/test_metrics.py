"""Metrics of a hand-made step (tests/conftest.py) against values worked out by hand."""

import math
from dataclasses import replace

import pytest

from populora.core.types import Member, Rating, Role
from populora.runs.metrics import step_metrics, step_timing
from populora.runs.step_record import Evolution
from populora.runs.tables import step_tables


def metrics_of(record) -> dict[str, float]:
    return step_metrics(record, step_tables(record))


def test_teaching(make_record):
    metrics = metrics_of(make_record())
    assert metrics["teacher/validity"] == pytest.approx(4 / 6)
    assert metrics["teacher/validity/T0"] == 3 / 4 and metrics["teacher/validity/T1"] == 1 / 2
    assert metrics["teacher/validity/code_f"] == 1 / 2 and metrics["teacher/validity/T0/code_o"] == 1.0
    assert metrics["teacher/format_rate"] == pytest.approx(5 / 6)
    assert metrics["teacher/reward"] == pytest.approx(-1.5 / 6)
    assert metrics["teacher/difficulty"] == 0.5 and metrics["teacher/difficulty/code_f"] == 1.0
    assert "teacher/difficulty/T1" not in metrics, "its only valid problem is void"
    assert metrics["teacher/rho_zero"] == pytest.approx(1 / 3) and metrics["teacher/rho_one"] == pytest.approx(1 / 3)
    assert metrics["teacher/response_length"] == pytest.approx((10 + 11 + 12 + 13 + 20 + 6) / 6)
    assert metrics["teacher/clipped"] == pytest.approx(1 / 6)


def test_rejections_are_counted_by_name(make_record):
    record = make_record()
    metrics = metrics_of(record)
    assert metrics["teacher/rejected/format"] == 1.0 and metrics["teacher/rejected/out_of_resources"] == 1.0
    named = record.proposals[4]._replace(rejection="error:exception:ZeroDivisionError")
    changed = metrics_of(make_record(proposals=(*record.proposals[:4], named, record.proposals[5])))
    assert changed["teacher/rejected/error:exception"] == 1.0 and "teacher/rejected/format" not in changed


def test_complexity_and_duplicates_are_about_programs_written_in_the_step(make_record):
    metrics = metrics_of(make_record())
    assert metrics["teacher/loc"] == pytest.approx((2 + 2 + 4) / 3)
    assert metrics["teacher/cyclomatic"] == pytest.approx(5 / 3) and metrics["teacher/ast_depth"] == pytest.approx(17 / 3)
    assert metrics["teacher/variables/T1"] == 2.0 and metrics["teacher/loc/code_f"] == 90.0
    assert metrics["teacher/loc/T0"] == 2.0
    assert metrics["teacher/duplicates"] == pytest.approx(1 / 3) and metrics["teacher/duplicates/T0"] == 1 / 2


def test_solving_counts_neither_void_nor_filled_attempts(make_record):
    metrics = metrics_of(make_record())
    assert metrics["student/solve_rate"] == 3 / 6 and metrics["student/solve_rate/code_o"] == 3 / 4
    assert metrics["student/solve_rate/S0/code_f"] == 0.0
    assert not any(name.startswith("student/solve_rate/S1") for name in metrics)
    assert metrics["student/format_rate"] == pytest.approx(5 / 6)
    assert metrics["student/response_length"] == pytest.approx((4 + 6 + 8 + 8 + 10 + 12) / 6)
    assert metrics["student/reward"] == pytest.approx((1 - 1 + 1 + 1 + 1) / 5)
    assert metrics["student/filled"] == 1 / 5 and metrics["student/void"] == 1 / 8
    assert metrics["student/failed/wrong_value"] == 2.0 and metrics["student/failed/format"] == 1.0
    assert "student/failed/gold_not_reproduced" not in metrics


def test_answers_outside_their_fence_are_counted_and_how_many_of_all_were_right(make_record):
    attempts = [attempt._replace(lenient=index in (0, 4)) for index, attempt in enumerate(make_record().attempts)]  # right and wrong
    metrics = metrics_of(make_record(attempts=attempts))
    assert metrics["student/lenient"] == pytest.approx(2 / 6) and metrics["student/lenient_solved"] == pytest.approx(1 / 6)


def test_broken_formats_are_also_booked_on_the_teacher_whose_problems_they_answer(make_record):
    record = make_record()
    metrics = metrics_of(record)
    assert metrics["teacher/rho_format_fail"] == pytest.approx(1 - metrics["student/format_rate"])
    (broken,) = {a.problem.author for a in record.attempts if not (a.formatted or a.void or a.from_buffer)}
    assert metrics[f"teacher/rho_format_fail/{broken}"] == metrics["teacher/rho_format_fail"], "only its problems were attempted"


def test_groups_without_variance(make_record):
    metrics = metrics_of(make_record())
    # Teacher groups: (T0, 0): 0.5, 0.0; (T0, 1): 0.0, -1.0; (T1, 0): 0.0, -1.0. Student groups: 1, -1; 1, 1; and one alone.
    assert metrics["teacher/zero_variance"] == 0.0
    assert metrics["student/zero_variance"] == metrics["student/zero_variance/S0"] == 1 / 2
    assert "student/zero_variance/S1" not in metrics  # one sample is not compared with anything


def test_entropy_is_a_mean_over_tokens_apart_for_proposals_and_answers(make_record):
    record = make_record()
    proposals, attempts = (
        [response._replace(generation=replace(response.generation, entropy=0.1 * index)) for index, response in enumerate(responses)]
        for responses in (record.proposals, record.attempts)
    )
    metrics = metrics_of(make_record(proposals=proposals, attempts=attempts))

    def over_tokens(responses):
        tokens = [len(response.generation.tokens) for response in responses]
        return sum(response.generation.entropy * count for response, count in zip(responses, tokens, strict=True)) / sum(tokens)

    counted = [response for response in attempts if not (response.void or response.from_buffer)]
    assert metrics["teacher/entropy"] == pytest.approx(over_tokens(proposals))
    assert metrics["teacher/entropy/T1"] == pytest.approx(over_tokens([response for response in proposals if response.author == "T1"]))
    assert metrics["student/entropy"] == pytest.approx(over_tokens(counted))
    assert metrics["student/entropy/S0"] == pytest.approx(over_tokens([response for response in counted if response.student == "S0"]))


def test_a_matchup_that_nobody_won_is_in_no_role_s_share(make_record):
    metrics = metrics_of(make_record(matchups=[replace(matchup, outcome="neither") for matchup in make_record().matchups]))
    assert metrics["matchup/neither_wins"] == 1.0 and "matchup/student_wins" not in metrics


def test_matchups_ratings_and_updates(make_record):
    metrics = metrics_of(make_record())
    assert metrics["matchup/played"] == 1.0 and metrics["matchup/student_wins"] == 0.0 and metrics["matchup/expected"] == 0.6
    assert metrics["matchup/neither_wins"] == 0.0
    assert metrics["rating/mu/T0"] == 27.0 and metrics["rating/mu/teacher"] == 26.0 and metrics["rating/mu/student"] == 24.0
    assert metrics["learner/loss/T0"] == 0.25 and metrics["learner/entropy/student"] == 0.7
    assert metrics["learner/grad_norm/teacher"] == 0.5, "the skipped member has no part in the mean"
    assert metrics["learner/skipped/teacher"] == 0.5
    assert metrics["archive/coverage"] == 0.01
    assert metrics["held_out/S0/all"] == 0.5 and metrics["held_out/accuracy"] == 0.6 and metrics["evolution/children"] == 1.0
    assert metrics["evolution/spared"] == metrics["evolution/broken"] == 0.0


def test_spared_newborns_and_broken_teachers_are_counted(make_record):
    metrics = metrics_of(make_record(evolution=Evolution(spared=("T1", "S0"), broken=("T0",))))
    assert (metrics["evolution/children"], metrics["evolution/spared"], metrics["evolution/broken"]) == (0.0, 2.0, 1.0)


def test_every_value_is_a_finite_float_and_names_have_a_known_group(make_record):
    metrics = metrics_of(make_record(coverage={"coverage": math.nan}))
    assert all(type(value) is float and math.isfinite(value) for value in metrics.values())
    assert "archive/coverage" not in metrics
    groups = {"teacher", "student", "matchup", "rating", "learner", "archive", "held_out", "tokens", "evolution"}
    assert {name.split("/")[0] for name in metrics_of(make_record())} == groups


def test_single_agent_has_the_same_names_under_its_own_id(make_record):
    record = make_record()
    rename = {"T0": "A0", "T1": "A0"}
    proposals = tuple(proposal._replace(author=rename[proposal.author]) for proposal in record.proposals)
    attempts = tuple(attempt._replace(student="A0") for attempt in record.attempts)
    agent = Member("A0", Role.AGENT, 0, Rating(), record.members[0].lineage)
    metrics = metrics_of(
        make_record(proposals=proposals, attempts=attempts, members=(agent,), updates={"A0": record.updates["T0"]}, matchups=())
    )
    assert metrics["teacher/validity/A0"] == pytest.approx(4 / 6) and metrics["student/solve_rate/A0"] == 0.5
    assert metrics["learner/entropy/agent"] == 0.7 and metrics["matchup/played"] == 0.0


def test_each_of_several_domains_has_its_own_means(make_mixed_record):
    metrics = metrics_of(make_mixed_record())
    assert metrics["teacher/validity"] == pytest.approx(4 / 6)
    assert metrics["teacher/validity/python"] == 3 / 4 and metrics["teacher/validity/sql"] == 1 / 2
    assert metrics["teacher/validity/T0/sql"] == 1.0 and metrics["teacher/validity/T1/sql"] == metrics["teacher/validity/sql_i"] == 0.0
    assert metrics["teacher/difficulty/python"] == 0.75 and metrics["teacher/difficulty/sql"] == 0.0
    assert metrics["student/solve_rate/python"] == 1 / 4 and metrics["student/solve_rate/S0/sql"] == 1.0
    assert metrics["held_out/accuracy"] == 0.6
    assert metrics["held_out/accuracy/python"] == 0.7 and metrics["held_out/accuracy/sql"] == 0.5
    assert metrics["archive/coverage/sql"] == 0.0 and metrics["archive/total_problems/python"] == 41.0


def test_complexity_metrics_are_those_of_the_programs_domain(make_mixed_record):
    metrics = metrics_of(make_mixed_record())
    assert metrics["teacher/joins"] == metrics["teacher/joins/sql"] == 1.0 and metrics["teacher/columns/T0/sql"] == 4.0
    assert metrics["teacher/loc/python"] == metrics["teacher/loc"] == 3.0
    assert not {"teacher/loc/sql", "teacher/joins/python"} & metrics.keys()


def test_reasons_are_counted_for_each_of_several_domains(make_mixed_record):
    metrics = metrics_of(make_mixed_record())
    rejected = {name.removeprefix("teacher/rejected/"): value for name, value in metrics.items() if name.startswith("teacher/rejected/")}
    assert rejected == {"format": 1.0, "format/python": 1.0, "out_of_resources": 1.0, "out_of_resources/sql": 1.0}
    assert metrics["student/failed/wrong_value/python"] == 2.0 and "student/failed/wrong_value/sql" not in metrics


def test_the_log_tells_from_which_domain_the_ratings_come(make_mixed_record):
    metrics = metrics_of(make_mixed_record())
    assert metrics["matchup/mean_rho/python"] == 0.25 and metrics["matchup/problems/python"] == 2.0
    assert metrics["matchup/mean_rho/sql"] == 1.0 and metrics["matchup/problems/sql"] == 1.0
    unsolved = metrics_of(make_mixed_record(rhos=(0.5, None, 0.0, None, None, None)))
    assert unsolved["matchup/problems/sql"] == 0.0 and "matchup/mean_rho/sql" not in unsolved


def test_a_run_of_one_domain_has_no_metric_that_names_it(make_record):
    assert not [name for name in metrics_of(make_record()) if "python" in name or name.startswith("matchup/problems")]


def test_timing_has_seconds_and_rates(make_record):
    timing = step_timing(make_record())
    assert timing["seconds/step"] == 10.0 and timing["seconds/solve"] == 3.0
    assert timing["tokens_per_second/propose"] == 50.0 and timing["tokens_per_second/solve"] == 20.0
    assert "tokens_per_second/update" in timing
    assert step_timing(make_record(seconds={"propose": 0.0}))["seconds/propose"] == 0.0
