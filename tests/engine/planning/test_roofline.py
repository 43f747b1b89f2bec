"""Work and seconds of a step against a roofline made by hand before: 72 prompts x 8 for each adapter, 500 + 1000 tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from populora.core.config import ClusterConfig, Config, PopulationConfig
from populora.engine.planning.assumptions import Assumptions
from populora.engine.planning.hardware import gpu
from populora.engine.planning.placement import place, spread
from populora.engine.planning.plan import Plan, make_plan
from populora.engine.planning.roofline import decode_seconds, rates
from populora.engine.planning.shapes import Shapes, qwen2
from populora.engine.planning.work import Texts, forward_flops, prompt_flops, train_flops

HAND = {
    # teachers, GPU, GPUs: decode, prompts shared / not, train as it is / all layers again / prompts shared, old log-probs, lean, wasteful
    (4, "h100-80gb", 8): (22, 1, 8, 62, 92, 45, 31, 115, 153),
    (8, "h100-80gb", 8): (45, 2, 15, 124, 183, 90, 62, 230, 306),
    (4, "h200-141gb", 1): (132, 8, 61, 498, 733, 360, 248, 872, 1173),
}


@pytest.mark.parametrize("row", HAND)
def test_seconds_are_those_of_the_roofline_made_by_hand(
    row: tuple[int, str, int], seven: Shapes, paper: Callable[..., Config], planned: Callable[..., Plan]
):
    teachers, name, gpus = row
    plan = planned(paper(teachers), name, gpus)
    speed, adapter = rates(plan.hardware, plan.placement, plan.assumed), seven.adapter(32, plan.config.lora.targets)
    trained, sampled = plan.work.trained, plan.work.sampled
    decode, shared, apart, train, again, together, old, lean, wasteful = HAND[row]
    assert trained == sampled and trained.rows == 576 * 2 * teachers
    assert plan.seconds.decode == pytest.approx(decode, rel=0.035)
    assert plan.seconds.prompts == pytest.approx(shared, rel=0.05)
    assert prompt_flops(seven, adapter, sampled.unshared()) / speed.sample == pytest.approx(apart, rel=0.05)
    found = {mode: train_flops(seven, adapter, trained.unshared(), mode) / speed.train for mode in ("none", "layer")}
    assert found["none"] == pytest.approx(train, rel=0.01) and found["layer"] == pytest.approx(again, rel=0.01)
    assert train_flops(seven, adapter, trained, "none") / speed.train == pytest.approx(together, rel=0.015)
    recomputed = forward_flops(seven, adapter, trained.unshared()) / speed.train
    assert recomputed == pytest.approx(old, rel=0.01)
    assert plan.seconds.decode + plan.seconds.prompts + found["layer"] == pytest.approx(lean, rel=0.01)
    unshared = prompt_flops(seven, adapter, sampled.unshared()) / speed.sample
    assert plan.seconds.decode + unshared + found["layer"] + recomputed == pytest.approx(wasteful, rel=0.01)


def test_one_adapter_with_short_answers(seven: Shapes, paper: Callable[..., Config]):
    config = spread(replace(paper(), population=PopulationConfig(single_agent=True)), 8)
    placement, assumed = place(config), Assumptions()
    speed, texts = rates(gpu("h100-80gb"), placement, assumed), Texts(72, 576, 500, 250)
    adapter = seven.adapter(32, config.lora.targets)
    assert round(decode_seconds(config, seven, speed, placement, texts, 72)) == 2
    seconds = [train_flops(seven, adapter, *case) / speed.train for case in ((texts.unshared(), "none"), (texts.unshared(), "layer"))]
    assert [round(value) for value in seconds] == [4, 6]
    assert round(train_flops(seven, adapter, texts, "none") / speed.train) == 2


def test_sixteen_and_sixteen_cost_twice_eight_and_eight(paper: Callable[..., Config], planned: Callable[..., Plan]):
    double, single = (planned(paper(teachers)).seconds for teachers in (16, 8))
    assert double.lean / single.lean == pytest.approx(2.0, rel=0.01)


def test_the_longest_response_takes_its_weights_once_for_every_token(paper: Callable[..., Config], planned: Callable[..., Plan]):
    config = paper()
    assert planned(config).seconds.tail == pytest.approx(53, rel=0.03)  # 8096 times 6.5 ms, and the adapters
    assert planned(config, "h200-141gb", 1).seconds.tail == pytest.approx(36, rel=0.05)
    apart = replace(config, selfplay=replace(config.selfplay, overlap="off"))
    assert planned(apart).seconds.tail == 2 * planned(config).seconds.tail
    assert planned(apart).seconds.decode > planned(config).seconds.decode


def test_students_attempt_every_valid_problem_but_train_on_as_many_as_asked(paper: Callable[..., Config], planned: Callable[..., Plan]):
    half = planned(paper(), assumed=Assumptions(valid=0.5)).work
    assert half.attempts.rows == 4 * 288 * 8 and half.trained.rows == 8 * 576
    none = planned(paper(), assumed=Assumptions(valid=0.0)).work
    assert none.attempts.rows == 4 * 576  # from the buffer


def test_the_single_agent_proposes_and_solves(paper: Callable[..., Config], planned: Callable[..., Plan]):
    work = planned(replace(paper(), population=PopulationConfig(single_agent=True))).work
    assert work.proposals.rows == work.attempts.rows == 576 and work.trained.rows == 1152


def test_fewer_rows_at_a_time_read_the_weights_more_often(seven: Shapes, paper: Callable[..., Config], planned: Callable[..., Plan]):
    wide, narrow = planned(paper()), planned(paper(rows=64))
    assert (wide.seconds.rows, narrow.seconds.rows) == (512, 64) and narrow.seconds.decode > 2 * wide.seconds.decode
    tight = planned(paper(cache_mb=4096))  # the cache holds fewer than engine.rows
    assert tight.seconds.rows < 200


def test_engines_of_several_gpus_share_base_and_speed(paper: Callable[..., Config], planned: Callable[..., Plan]):
    one, four = planned(paper()), planned(paper(tensor_parallel=4))
    assert four.placement.engines == 2 and four.seconds.tail == pytest.approx(one.seconds.tail / 4)
    base = [next(part.bytes for part in plan.memory.parts if part.name == "base") for plan in (one, four)]
    assert base[0] == 4 * base[1]


def test_checkpointing_mlps_costs_less_than_whole_layers(seven: Shapes):
    texts = Texts(10, 80, 500, 1000)
    none, mlp, layer = (train_flops(seven, 0, texts, mode) for mode in ("none", "mlp", "layer"))
    assert none < mlp < layer and mlp - none == 2 * (texts.read + texts.written) * 28 * 3 * 3584 * 18_944


def test_sandbox_that_is_slower_than_the_sampler_lengthens_a_step(paper: Callable[..., Config], planned: Callable[..., Plan]):
    slow = planned(paper(), assumed=Assumptions(valid=0.125, verdicts_per_second=1.0)).seconds
    assert slow.verdicts == pytest.approx(4608 / 2) and slow.longest == pytest.approx(slow.verdicts + slow.train + slow.publish)


def test_small_shapes_count_by_hand():
    shapes = qwen2("toy", 4, 8, 1, 2, 1, 10, tied=True, context=32)  # q, o 16 each; k, v 8 each; MLP 96
    texts = Texts(1, 1, 2, 2)
    assert shapes.linear == 144 and shapes.head == 40 and shapes.parameters == 144 + (4 + 4) + 8 + 4 + 40
    pairs = 2**2 / 2 + 2 * (2 + 1)
    assert train_flops(shapes, 5, texts, "none") == 4 * (4 * 144 + 6 * 5) + 4 * 2 * 40 + 12 * 4 * pairs


def test_plans_are_in_the_precision_of_the_peaks(seven: Shapes, paper: Callable[..., Config]):
    from populora.core.errors import ConfigError

    config = paper()
    with pytest.raises(ConfigError, match=r'base.dtype is "float32".*set base.dtype = "bfloat16"'):
        make_plan(replace(config, base=replace(config.base, dtype="float32")), seven, gpu("h100-80gb"), place(config), Assumptions())


def test_publishing_gives_every_engine_all_adapters_in_the_base_s_precision(paper: Callable[..., Config], planned: Callable[..., Plan]):
    one, eight = planned(paper(), "h200-141gb", 1).seconds, planned(paper()).seconds
    assert one.publish == eight.publish == pytest.approx(8 * 2 * 20_185_088 / 0.2e9)  # engines do it at the same time
    assert eight.publish_share == eight.publish / (eight.prompts + eight.decode + eight.train + eight.publish)
    own = paper(backend="inprocess", cache_mb=8192)
    assert planned(own, gpus=1).seconds.publish == 0.0  # it reads what learns
    assert planned(own).seconds.publish == eight.publish


def test_the_assumed_rate_of_publishing_is_the_measured_one():
    measured = json.loads((Path(__file__).parents[3] / "benchmarks" / "publish.json").read_text())
    rate = measured["adapter_mib"] * 2**20 / measured["seconds"]["publish to an engine's actor"]["median"]
    assert Assumptions().publish_gb_per_second == pytest.approx(rate / 1e9, rel=0.02)


def test_gpus_of_a_learner_train_together_and_verifiers_judge_together(paper: Callable[..., Config], planned: Callable[..., Plan]):
    alone = planned(replace(paper(), cluster=ClusterConfig(learners=8, engines=8)))
    shared = planned(replace(paper(), cluster=ClusterConfig(learners=2, shards=4, engines=8, verifiers=4)))
    assert shared.seconds.train == alone.seconds.train and shared.seconds.verdicts == alone.seconds.verdicts / 4
