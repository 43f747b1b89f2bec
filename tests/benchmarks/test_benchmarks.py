"""The benchmarks' arithmetic, and that their committed tables and bars are those of the committed results."""

import json
import pickle
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.azr import run as azr
from benchmarks.evaluation import evalplus_time, gold, tiny_suite
from benchmarks.evaluation.grader import keep, spent
from benchmarks.first_run import measures
from benchmarks.operators import run as operators
from benchmarks.sandbox import run as sandbox
from benchmarks.speed.gpu_cases import adapted_model
from benchmarks.speed.gpu_plan import TOY, training_flops
from benchmarks.speed.table import table as speed_table
from benchmarks.speed.training import batch, learn
from scipy import stats
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import (
    adapter_copies,
    balance,
    controller,
    controller_memory,
    many_members,
    measuring,
    population_size,
    roofline,
    start_up,
    step,
)
from populora.adapters.operators import OPERATORS
from populora.core.config_check import check
from populora.engine.model import products
from populora.evals.benchmarks import BENCHMARKS
from populora.runs.tables import read_table
from populora.training.loop import build_run
from populora.training.seed_buffer import fill_buffer

FOLDER = Path(__file__).parents[2] / "benchmarks"
RESULTS = sorted(FOLDER.rglob("*.json"))


def committed(name: str) -> dict:
    return json.loads((FOLDER / f"{name}.json").read_text())


@pytest.mark.parametrize("file", RESULTS, ids=lambda file: str(file.relative_to(FOLDER)))
def test_a_result_file_is_short(file):
    """All cases of `benchmarks.gpu` take 228 lines. The claims with all their effects take three times as many."""
    assert len(file.read_text().splitlines()) <= 700 and max(map(len, file.read_text().splitlines())) < 1000


def test_the_committed_table_of_operators_is_that_of_its_results():
    results = committed("operators/results")
    assert operators.table(results) == (FOLDER / "operators/table.md").read_text()
    assert operators.bars(results) == results["bars"]


def test_the_committed_table_of_the_sandbox_is_that_of_its_results(monkeypatch):
    """Until it is measured again, its baseline has no -S, and a second one is there."""
    results, bars = committed("sandbox/results"), sandbox.BARS
    assert sandbox.table(results) == (FOLDER / "sandbox/table.md").read_text()
    monkeypatch.setattr(sandbox, "BARS", {name.replace("-I -S", "-I"): limit for name, limit in bars.items()})
    judged = sandbox.bars(results["speed"], results["endurance"])
    assert judged == {name: row for name, row in results["bars"].items() if "interpreter below" not in name}


def test_the_committed_differences_of_azr_are_those_of_its_runs():
    results = committed("azr/results")
    assert results["arms"] == azr.ARMS and results["settings"] == []
    runs = {
        f"{arm}-{seed}": {name: {"last": end["last"][seed]} for name, end in ends.items()}
        for arm, ends in results["ends_by_seed"].items()
        for seed in range(3)
    }
    names = runs["baseline-0"].keys()
    assert results["against"] == {arm: azr.differences(runs, arm, "baseline", names) for arm in azr.ARMS if arm != "baseline"}


def test_the_committed_table_of_speed_is_that_of_its_results():
    assert speed_table({name: committed(f"speed/{name}") for name in ("multi_lora", "step")}) == (FOLDER / "speed/table.md").read_text()


def test_the_committed_bars_of_evaluation_are_those_of_its_results():
    results = {bench: committed(f"evaluation/{bench.__name__.split('.')[-1]}") for bench in (gold, evalplus_time, tiny_suite)}
    for bench, record in results.items():
        assert record["bars"] == bench.bars(record.get("parts", record))
    assert gold.table(results[gold]) == (FOLDER / "evaluation/gold.md").read_text() and set(results[gold]["parts"]) == set(gold.NAMES)
    for name, part in results[gold]["parts"].items():
        assert [(row["answers"], row["reading"]) for row in part["rows"]] == [(check.what, check.reading) for check in gold.checks_of(name)]
        assert part["rows"][0]["items"] == BENCHMARKS[name].items and part["data_sha256"] == BENCHMARKS[name].sha256


def test_ratios_are_taken_within_a_round_and_a_bar_can_be_missed():
    times = {"ours": [14.0, 28.0, 14.0], "theirs": [10.0, 20.0, 20.0]}
    assert measuring.ratio(times, "ours", "theirs") == {"median": 1.4, "min": 0.7, "max": 1.4}
    assert [measuring.bar(1.3, value)["met"] for value in (1.3, 1.4)] == [True, False]
    assert not measuring.bar(4, 3.9, at_least=True)["met"]


def test_a_machine_is_described_with_its_date_and_the_commit_if_there_is_one(tmp_path, monkeypatch):
    monkeypatch.setattr(measuring, "git", lambda *arguments: b"0123456789ab\n" if arguments[0] == "rev-parse" else b" M src/file.py\n")
    monkeypatch.setattr(measuring, "ROOT", tmp_path)
    assert "commit" not in measuring.machine()
    (tmp_path / ".git").touch()
    monkeypatch.setattr(measuring.shutil, "which", lambda _: "/usr/bin/git")
    described = measuring.machine("numpy")
    assert described["commit"] == "0123456789ab+" and time.strptime(described["date"], "%Y-%m-%d") and "numpy" in described


def test_a_part_of_a_result_keeps_the_machine_on_which_it_was_measured(tmp_path):
    out = tmp_path / "results.json"
    out.write_text(json.dumps({"machine": {"cores": 2}, "parts": {"first": {"found": 1}}}))
    keep(out, {"cores": 4}, {"second": {"found": 2}}, bars=lambda parts: {})
    results = keep(out, {"cores": 8}, {"third": {"found": 3}}, bars=lambda parts: {})
    assert [(part["machine"]["cores"], part["found"]) for part in results["parts"].values()] == [(2, 1), (4, 2), (8, 3)]


def test_every_case_begins_a_round_in_turn():
    order: list[str] = []
    measuring.take_turns({name: lambda name=name: order.append(name) for name in "ab"}, 2)
    assert order == ["a", "b", "b", "a"]


def test_helpers_even_a_step_out_and_their_cost_is_counted(monkeypatch):
    case = balance.Simulation(8, 8, "means x 4", 2, goal=1.05)
    record = balance.simulate(case)
    assert record["alone"]["median"] > 1.2 > record["helped"]["worst"] >= 1.0 and record["met"]
    for name in ("HELP_TOKENS", "FAR_HELP_TOKENS"):
        monkeypatch.setattr(balance, name, 200_000.0)
    assert balance.simulate(case)["helped"]["median"] > record["helped"]["median"]


def test_more_copies_of_an_adapter_even_the_engines_out_where_lengths_differ():
    ratios = {name: ratio["median"] for name, ratio in adapter_copies.simulate(balance.Simulation(16, 16, "means x 4", 3)).items()}
    assert list(ratios) == ["1", "2", "4", "8", "all"] and ratios["1"] > ratios["4"] > ratios["all"] >= 1.0


def test_a_process_that_fails_stops_the_measurement_and_prints_its_output(tmp_path):
    with pytest.raises(SystemExit, match=r"ended with 3:\nno such thing"):
        spent([sys.executable, "-c", "print('no such thing'); raise SystemExit(3)"], tmp_path / "log")


def test_flops_are_those_that_torch_counts(monkeypatch):
    """But for attention, which torch counts as if it were not causal, and for the first layer, whose input needs no gradient."""
    monkeypatch.setattr(products, "base_products", lambda: "MKL")  # oneDNN's rows are padded
    plan, rows = TOY, 16
    base = plan.bases["toy"]
    adapted = adapted_model(plan, base, "none")

    def product(into: torch.Size, left: torch.Size, right: torch.Size, **options: object) -> int:
        return 2 * left.numel() * right[-1]

    left_out: dict[Any, Any] = {torch.ops.aten.addmm_: product, torch.ops.aten.baddbmm_: product}  # by torch
    with FlopCounterMode(display=False, custom_mapping=left_out) as counter:
        learn(adapted, batch(list(range(rows)), row=plan.row))()
    counted = sum(flops for op, flops in counter.get_flop_counts()["Global"].items() if "attention" not in str(op))
    hidden, layers, _, heads, kv_heads = base.widths
    attention = 12 * layers * hidden * rows * plan.row * (plan.row + 1) / 2
    outputs = hidden + 2 * hidden * kv_heads // heads
    first = 2 * rows * plan.row * (hidden * outputs + 3 * plan.rank * hidden)
    assert counted == training_flops(base, plan.rank, rows, plan.row) - attention - first


def test_the_committed_comparison_of_arms_is_that_of_the_measured_runs():
    summarise = pytest.importorskip("benchmarks.first_run.summarise")
    measured = {file.stem: measures.read_measured(file) for file in sorted((FOLDER / "first_run/measured").glob("*.parquet"))}
    summarise.check_alike(measured)
    runs = summarise.run_ends(measured)
    against = summarise.compare(runs)
    assert committed("first_run/results")["against"] == json.loads(json.dumps(against))
    assert summarise.table(runs, against) == (FOLDER / "first_run/table.md").read_text(encoding="utf-8")
    ours, theirs = ([run["teacher/loc"]["last"] for name, run in runs.items() if name.startswith(arm)] for arm in ("4t4s-", "baseline-"))
    welch = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    assert against["baseline"]["4t4s"]["teacher/loc"]["interval_95"] == pytest.approx([welch.low, welch.high], abs=1e-4)
    changed = {**measured, "other": {**measured["4t4s-0"], "conditions": {}}}
    with pytest.raises(SystemExit, match="is not comparable with"):
        summarise.check_alike(changed)


def test_the_committed_comparison_in_sql_is_that_of_the_measured_runs():
    sql = pytest.importorskip("benchmarks.sql.run")
    results, lines = sql.summarise(FOLDER / "sql/measured")
    committed_results = committed("sql/results")
    assert {name: committed_results[name] for name in results} == json.loads(json.dumps(results))
    assert lines == (FOLDER / "sql/table.md").read_text(encoding="utf-8")
    harder = sql.change([{"first": 0.1, "last": 0.4}, {"first": 0.2, "last": 0.3}, {"first": 0.5}])
    assert (harder["runs"], harder["rises"], harder["mean"]) == (2, 2, 0.2) and harder["interval_95"][0] < 0


def test_a_start_up_is_judged_by_its_median():
    judged = start_up.judge({"help": [0.1, 0.2, 9.0], "first token": [5.0, 7.0, 6.5], "report": [10.0]})
    assert {name: bar["met"] for name, bar in judged["bars"].items()} == {"help": True, "first token": False, "report": True}


def test_a_command_that_fails_has_no_start_up_time():
    with pytest.raises(subprocess.CalledProcessError):
        start_up.finish([sys.executable, "-c", "raise SystemExit(3)"])


def test_a_token_of_a_larger_population_must_not_cost_more():
    times = {"1T+1S": (2.0, 2.0), "2T+2S": (1.0, 3.0)}
    rows = {name: [{"wall, ms a token": wall, "cpu, ms a token": cpu}] for name, (wall, cpu) in times.items()}
    judged = population_size.bars(rows)
    assert judged["2T+2S / 1T+1S, wall"] == {"at_most": 1.0, "found": 0.5, "met": True}
    assert judged["2T+2S / 1T+1S, cpu"] == {"at_most": 1.0, "found": 1.5, "met": False}


def test_a_rate_is_that_of_the_fastest_round(monkeypatch):
    monkeypatch.setattr(roofline.timeit, "repeat", lambda work, number, repeat: [2.0, 0.5, 4.0])
    assert roofline.rate(3e9, lambda: None, 3) == 6.0


@pytest.mark.thorough
def test_a_step_and_its_plain_composition_do_the_same_work(tmp_path):
    step.main(["--toy", "--rounds", "1", "--out", str(tmp_path / "step.json")])
    record = json.loads((tmp_path / "step.json").read_text())
    assert record["plain step"]["distance / update"] < step.TOLERANCE
    assert set(record["adapter steps"]["tokens of an adapter"]) == {"2T+2S", "1T+1S"}


@pytest.mark.thorough
def test_every_operator_is_measured(monkeypatch):
    for name, value in {"LAYERS": 2, "HIDDEN": 48, "KEY_VALUE": 40, "RANK": 4, "TARGETS": {"q": 48, "k": 40, "v": 40, "o": 48}}.items():
        monkeypatch.setattr(operators, name, value)
    parents = [operators.qwen_adapter(seed, layers=2) for seed in (1, 2)]
    assert set(operators.measure_children(parents, 1)) == set(operators.describe_children(parents)) == set(OPERATORS)


def test_a_run_without_a_value_in_its_last_steps_is_left_out_of_their_means():
    summarise = pytest.importorskip("benchmarks.first_run.summarise")
    runs = {"ours-0": {"rate": summarise.ends([0.5] * 20 + [None] * 20)}, "ours-1": {"rate": summarise.ends([0.5] * 40)}}
    runs["theirs-0"] = {"rate": summarise.ends([0.25] * 40)}
    assert runs["ours-0"]["rate"] == {"first": 0.5}
    assert summarise.differences(runs, "ours", "theirs", ["rate"]) == {"rate": {"seeds": [1, 1], "difference": 0.25}}
    assert summarise.means_text(summarise.ends_of(runs, "ours", "rate")) == "0.5 → 0.5 (1 without)"
    assert summarise.means_text([{"first": 0.5}]) == "0.5 → – (1 without)"
    assert summarise.means_text([{"last": 0.5}]) == "0.5"


def test_populations_of_8_and_of_64_run_with_the_same_actors_and_steps():
    small, large = (many_members.settings(size, 5, "127.0.0.1:6379") for size in (4, 32))
    check(small)
    check(large)
    assert replace(small, population=large.population) == large and large.population.members == 64 and large.cluster.learners == 3


def test_the_controllers_work_is_measured_on_whole_steps(tmp_path):
    with build_run(controller.settings(2)) as run:
        fill_buffer(run)
        controller.stand_in(run)
        seconds = controller.step(run, tmp_path)
    assert run.step == 1 and 0 < seconds["write"] < seconds["total"]
    attempts = read_table(tmp_path, "attempts")
    assert attempts.num_rows > 300 and 0.4 < sum(attempts["correct"].to_pylist()) / attempts.num_rows < 0.6


@pytest.mark.parametrize(("tuples", "least", "most"), [(False, 8.0, 10.0), (True, 40.0, 100.0)], ids=["arrays", "tuples"])
def test_the_memory_of_a_token_is_that_of_its_number_and_its_log_probability(tuples, least, most):
    samplers = [controller_memory.LongAnswers(tokens) for tokens in (100, 400)]
    for sampler in samplers if tuples else ():
        answer = pickle.loads(sampler.pickled)
        sampler.pickled = pickle.dumps(replace(answer, tokens=tuple(answer.tokens), logprobs=tuple(answer.logprobs)))
    with build_run(controller.settings(2)) as run:
        fill_buffer(run)
        controller.stand_in(run)
        (first, few), (second, many) = [controller_memory.traced(run, sampler) for sampler in samplers]
    assert least <= (second - first) / (many - few) < most
