"""The step's benchmark: both arms end with the same adapters, and a replay that is not the same work is refused."""

from __future__ import annotations

import dataclasses
import importlib
import json
from pathlib import Path

import pytest
import torch

from populora.core.config import Config, LearnerConfig, LoraConfig, PopulationConfig, SandboxConfig, SelfplayConfig

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[2] / "benchmarks"
SMALL = Config(
    seed=2, threads=1,  # both members learn in steps 1 and 2
    lora=LoraConfig(rank=4, alpha=8.0),
    population=PopulationConfig(teachers=1, students=1),
    selfplay=SelfplayConfig(
        prompts_per_type=1, samples_per_prompt=2, rho_samples=2, max_prompt_tokens=256, max_response_tokens=48, buffer_size=64, seeds=16
    ),
    learner=LearnerConfig(learning_rate=1e-3, epsilon=1e-5, micro_batch_tokens=400),
    sandbox=SandboxConfig(workers=1),
)  # fmt: skip


@pytest.fixture(scope="module")
def bench():
    """The benchmark's modules by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        step = importlib.import_module("step")
        names = ("composition", "plain_sampling", "plain_training", "programs", "replay", "side_by_side")
        yield {"step": step, **{name: importlib.import_module(name) for name in names}}


@pytest.fixture(scope="module")
def replay(bench):
    with bench["replay"].before_step(SMALL, 2) as made:
        yield made


@pytest.fixture(scope="module")
def taken(replay):
    return replay.once()


@pytest.fixture
def work(bench, replay, taken):
    return bench["side_by_side"].work_of(replay, taken)


@pytest.fixture
def made(bench, replay):
    return bench["composition"].composition(SMALL, replay.run.bank)


def test_a_step_is_replayed_to_the_byte(bench, replay, taken):
    bench["replay"].check_same(taken, replay.once())


def test_another_step_is_not_taken_for_a_replay(bench, taken):
    other = dataclasses.replace(taken, rows=taken.rows[:-1], after=taken.after + 1e-6)
    with pytest.raises(SystemExit, match="rows that were learned from, adapters after it are not"):
        bench["replay"].check_same(taken, other)


def test_both_arms_end_with_the_same_adapters(bench, work, made):
    phases = bench["side_by_side"].plain_step(made, work, rows=3)
    found = bench["side_by_side"].agreement(bench["composition"].weights(made), work)
    assert found["distance / update"] < 1e-4 < found["largest update"]
    assert phases["whole"] == pytest.approx(phases["sample"] + phases["verify"] + phases["train"])
    assert work.programs and set(work.responses) == {row.slot for row in work.rows if row.advantage} == {0, 1}


@pytest.mark.parametrize(
    "change",
    [
        lambda row: dataclasses.replace(row, slot=1 - row.slot),
        lambda row: dataclasses.replace(row, advantage=-row.advantage),
        lambda row: dataclasses.replace(row, tokens=row.tokens[:-1], logprobs=row.logprobs[:-1]),
    ],
)
def test_another_update_is_refused(bench, work, made, change):
    bench["composition"].put_back(made, work.before)
    bench["plain_training"].train(made, [change(row) for row in work.rows], SMALL.learner)
    with pytest.raises(SystemExit, match="not the same work"):
        bench["side_by_side"].agreement(bench["composition"].weights(made), work)


def test_optimisers_without_their_moments_are_refused(bench, work, made):
    bench["composition"].put_back(made, work.before)
    for optimiser in made.optimisers.values():
        optimiser.state.clear()
    bench["plain_training"].train(made, work.rows, SMALL.learner)
    with pytest.raises(SystemExit, match="not the same work"):
        bench["side_by_side"].agreement(bench["composition"].weights(made), work)


def test_tokens_that_generate_would_not_have_written_are_refused(bench, work, made):
    slot, (one, *_) = next(iter(work.responses.items()))
    over = made.model.generation_config.eos_token_id
    early = dataclasses.replace(one, tokens=(over, *one.tokens))
    with pytest.raises(SystemExit, match="other tokens than were drawn"):
        bench["plain_sampling"].sample(made, {slot: [early]}, 1, SMALL.selfplay.max_response_tokens + 1)


def test_a_process_that_does_not_do_its_work_is_refused(bench, work, monkeypatch):
    monkeypatch.setattr(bench["programs"], "PRINTED", "[1, 2, 3]")
    with pytest.raises(SystemExit, match="calls printed"):
        bench["programs"].run_all(work.programs, 1, work.limits)


def test_the_command_writes_both_measurements(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(bench["side_by_side"], "BATCHES", (512,))
    threads = torch.get_num_threads()
    bench["step"].main(["--toy", "--rounds", "1", "--threads", "1", "--step", "2", "--out", str(tmp_path / "step.json")])
    torch.set_num_threads(threads)
    found = json.loads((tmp_path / "step.json").read_text())
    assert found["toy"] and found["plain composition, 2T+2S, threads 1"]["plain / ours"]["whole"]["median"] > 0
    adapters = found["adapter steps, 2T+2S, threads 1"]
    assert set(adapters["tokens of an adapter"]) == {"2T+2S", "1T+1S"} and adapters["2T+2S / 1T+1S"]["wall"]["median"] > 0
