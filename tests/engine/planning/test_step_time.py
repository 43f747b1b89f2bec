"""Work and seconds of a step against a roofline calculated by hand: 72 prompts x 8 for each adapter, 500 + 1000 tokens."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from populora.core.config import ClusterConfig, PopulationConfig
from populora.engine.planning.assumptions import Assumptions
from populora.engine.planning.hardware import fill_gpus, find_gpu
from populora.engine.planning.model_shape import qwen2
from populora.engine.planning.step_time import Texts, base_flops, decode_seconds, prompt_flops, train_flops

HAND = {
    # teachers, GPU, GPUs: decode, prompts shared / not, train as it is / all layers again / prompts shared, all of it
    (4, "h100-80gb", 8): (22, 1, 8, 62, 92, 45, 115),
    (8, "h100-80gb", 8): (45, 2, 15, 124, 183, 90, 230),
    (4, "h200-141gb", 1): (132, 8, 61, 498, 733, 360, 872),
}


def unshared(texts: Texts) -> Texts:
    """The same rows with the prompt computed once for each row."""
    return replace(texts, prompts=texts.rows)


@pytest.mark.parametrize("row", HAND)
def test_seconds_are_those_of_the_roofline_calculated_by_hand(row, seven, paper, planned):
    teachers, name, gpus = row
    plan = planned(paper(teachers), name, gpus)
    adapter = seven.adapter(32, plan.config.lora.targets)
    trained, sampled = plan.work.trained, plan.work.sampled
    decode, shared, apart, train, recomputed, together, total = HAND[row]
    assert trained == sampled and trained.rows == 576 * 2 * teachers
    assert plan.seconds.decode == pytest.approx(decode, rel=0.035)
    assert plan.seconds.prompts == pytest.approx(shared, rel=0.05)
    sample_rate, train_rate = plan.flops["prompts"] / plan.seconds.prompts, plan.flops["train"] / plan.seconds.train
    assert prompt_flops(seven, adapter, unshared(sampled)) / sample_rate == pytest.approx(apart, rel=0.05)
    training = {mode: train_flops(seven, adapter, unshared(trained), mode) / train_rate for mode in ("none", "layer")}
    assert training["none"] == pytest.approx(train, rel=0.01) and training["layer"] == pytest.approx(recomputed, rel=0.01)
    assert train_flops(seven, adapter, trained, "none") / train_rate == pytest.approx(together, rel=0.015)
    assert plan.seconds.decode + plan.seconds.prompts + training["layer"] == pytest.approx(total, rel=0.01)


def test_one_adapter_with_short_answers(seven, paper):
    config = fill_gpus(replace(paper(), population=PopulationConfig(single_agent=True)), 8)
    hardware, texts = find_gpu("h100-80gb"), Texts(72, 576, 500, 250)
    rate = 8 * hardware.teraflops * 1e12 * Assumptions().train_mfu
    adapter = seven.adapter(32, config.lora.targets)
    assert round(decode_seconds(config, seven, hardware, Assumptions(), texts, 72)) == 2
    cases = ((unshared(texts), "none"), (unshared(texts), "layer"), (texts, "none"))
    assert [round(train_flops(seven, adapter, *case) / rate) for case in cases] == [4, 6, 2]


def test_the_longest_response_reads_the_weights_once_for_every_token(paper, planned):
    config = paper()
    assert planned(config).seconds.tail == pytest.approx(53, rel=0.03)  # 8096 times 6.5 ms, and the adapters
    assert planned(config, "h200-141gb", 1).seconds.tail == pytest.approx(36, rel=0.05)
    assert planned(paper(tensor_parallel=4)).seconds.tail == pytest.approx(planned(config).seconds.tail / 4)
    serial = replace(config, selfplay=replace(config.selfplay, overlap="off"))
    assert planned(serial).seconds.tail == 2 * planned(config).seconds.tail
    assert planned(serial).seconds.decode > planned(config).seconds.decode


def test_students_attempt_every_valid_problem_but_train_on_a_fixed_number(paper, planned):
    half = planned(paper(), assumed=Assumptions(valid=0.5)).work
    assert half.attempts.rows == 4 * 288 * 8 and half.trained.rows == 8 * 576
    assert planned(paper(), assumed=Assumptions(valid=0.0)).work.attempts.rows == 4 * 576  # from the buffer
    single = planned(replace(paper(), population=PopulationConfig(single_agent=True))).work
    assert single.proposals.rows == single.attempts.rows == 576 and single.trained.rows == 1152


def test_problems_from_the_buffer_come_on_top_of_those_that_rho_is_measured_on(paper, planned):
    config = paper()
    third = replace(config, selfplay=replace(config.selfplay, buffer_share=0.25))
    work, without = (planned(each, assumed=Assumptions(valid=1.0)).work for each in (third, config))
    assert work.attempts.rows == without.attempts.rows + 4 * 18 * 8 and work.trained == without.trained
    assert planned(third, assumed=Assumptions(valid=0.0)).work.attempts.rows == 4 * 576


def test_students_may_train_on_more_problems_than_there_are_prompts(paper, planned):
    config = paper()
    all_of_them = replace(config, selfplay=replace(config.selfplay, train_problems=192))
    assert planned(all_of_them).work.trained.rows == 4 * 576 + 4 * 576 * 8


def test_the_agent_of_azr_trains_on_attempts_of_their_own_and_not_on_those_for_rho(paper, planned):
    config = replace(paper(), population=PopulationConfig(single_agent=True))
    config = replace(config, selfplay=replace(config.selfplay, prompts_per_type=64, samples_per_prompt=1, previous_step_attempts=1))
    work = planned(config, assumed=Assumptions(valid=0.5)).work
    assert (work.proposals.prompts, work.proposals.rows) == (192, 192)
    assert (work.attempts.prompts, work.attempts.rows) == (96 + 192, 96 * 8 + 192)
    assert (work.trained.prompts, work.trained.rows) == (384, 384)
    assert planned(config, assumed=Assumptions(valid=0.0)).work.attempts.rows == 192


def test_fewer_rows_at_a_time_read_the_weights_more_often(paper, planned):
    wide, narrow = planned(paper()), planned(paper(rows=64))
    assert (wide.seconds.rows, narrow.seconds.rows) == (512, 64) and narrow.seconds.decode > 2 * wide.seconds.decode
    assert planned(paper(cache_mb=4096)).seconds.rows < 200  # the cache holds fewer than engine.rows


def test_checkpointing_mlps_costs_less_than_whole_layers(seven):
    texts = Texts(10, 80, 500, 1000)
    none, mlp, layer = (train_flops(seven, 0, texts, mode) for mode in ("none", "mlp", "layer"))
    assert none < mlp < layer and mlp - none == 2 * (texts.read + texts.written) * 28 * 3 * 3584 * 18_944


def test_a_sandbox_that_is_slower_than_the_sampler_lengthens_a_step(paper, planned):
    slow = planned(paper(), assumed=Assumptions(valid=0.125, verdicts_per_second=1.0)).seconds
    assert slow.verdicts == pytest.approx(4608 / 2) and slow.longest == pytest.approx(slow.verdicts + slow.train + slow.publish)


def test_small_shapes_count_by_hand():
    shape = qwen2("toy", 4, 8, 1, 2, 1, 10, tied=True, context=32)  # q, o 16 each; k, v 8 each; MLP 96
    assert shape.linear == 144 and shape.head == 40 and shape.parameters == 144 + (4 + 4) + 8 + 4 + 40
    pairs = 2**2 / 2 + 2 * (2 + 1)
    assert train_flops(shape, 5, Texts(1, 1, 2, 2), "none") == 4 * (4 * 144 + 6 * 5) + 4 * 2 * 40 + 12 * 4 * pairs


def test_a_kl_to_the_base_costs_a_forward_of_the_base(paper, planned):
    config = paper()
    shape = qwen2("toy", 4, 8, 1, 2, 1, 10, tied=True, context=32)
    near_the_base = replace(config, learner=replace(config.learner, base_kl=0.01))
    assert base_flops(config, shape, Texts(1, 1, 2, 2)) == 0
    assert base_flops(near_the_base, shape, Texts(1, 1, 2, 2)) == 4 * 2 * 144 + 2 * 2 * 40 + 4 * 4 * (2**2 / 2 + 2 * (2 + 1))
    assert 1.2 < planned(near_the_base).seconds.train / planned(config).seconds.train < 1.5


def test_publishing_gives_every_engine_all_adapters_in_the_base_s_precision(paper, planned):
    one, eight = planned(paper(), "h200-141gb", 1).seconds, planned(paper()).seconds
    assert one.publish == eight.publish == pytest.approx(8 * 2 * 20_185_088 / 0.2e9)  # engines load at the same time
    assert eight.publish_share == eight.publish / (eight.prompts + eight.decode + eight.train + eight.publish)
    inprocess = paper(backend="inprocess", cache_mb=8192)
    assert planned(inprocess, gpus=1).seconds.publish == 0.0  # it reads the trained tensors
    assert planned(inprocess).seconds.publish == eight.publish


def test_the_assumed_rate_of_publishing_is_the_measured_one():
    measured = json.loads((Path(__file__).parents[3] / "benchmarks" / "publish.json").read_text())
    rate = measured["adapter_mib"] * 2**20 / measured["seconds"]["publish to an engine's actor"]["median"]
    assert Assumptions().publish_gb_per_second == pytest.approx(rate / 1e9, rel=0.02)


def test_gpus_of_a_learner_train_together_and_verifiers_judge_together(paper, planned):
    whole = planned(replace(paper(), cluster=ClusterConfig(learners=8, engines=8)))
    shared = planned(replace(paper(), cluster=ClusterConfig(learners=2, shards=4, engines=8, verifiers=4)))
    assert shared.seconds.train == whole.seconds.train and shared.seconds.verdicts == whole.seconds.verdicts / 4


def test_each_domain_has_prompts_of_its_own(paper, planned):
    alone, both = (planned(replace(paper(), domains=domains)).work for domains in (("python",), ("python", "sql")))
    assert (both.proposals.prompts, both.trained.rows) == (2 * alone.proposals.prompts, 2 * alone.trained.rows)
