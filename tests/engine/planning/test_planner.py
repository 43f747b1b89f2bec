"""Advice that was tried, the layout of GPUs, and refusals that name the expected value."""

from dataclasses import replace

import pytest

from populora.core.config import ClusterConfig
from populora.core.config_check import check
from populora.core.errors import ConfigError
from populora.engine.planning.assumptions import Assumptions, check_assumptions
from populora.engine.planning.hardware import cluster_settings, count_idle_gpus, fill_gpus, find_gpu
from populora.engine.planning.planner import bottleneck, check_fits, make_plan, suggest_fix


def test_one_setting_is_advised_where_one_is_enough(paper, planned):
    plan = planned(paper(4, "none"))
    assert suggest_fix(plan) == 'set learner.activation_checkpointing = "layer"'
    assert bottleneck(plan).startswith("memory: ") and "activations (learner)" in bottleneck(plan)
    assert planned(paper(4, "layer")).fits  # as advised


def test_several_settings_are_advised_together_and_work(paper, planned):
    config = paper(4, "none", cache_mb=60_000)
    assert suggest_fix(planned(config)) == (
        'set engine.release_cache = true and learner.activation_checkpointing = "layer" and learner.micro_batch_tokens = 14240 and '
        "engine.cache_mb = 37380"
    )
    learner = replace(config.learner, activation_checkpointing="layer", micro_batch_tokens=14_240)
    released = planned(replace(config, engine=replace(config.engine, release_cache=True), learner=learner))
    assert not released.fits and suggest_fix(released) == "set engine.cache_mb = 37380"  # and nothing that is set already
    assert planned(replace(config, engine=replace(config.engine, release_cache=True, cache_mb=37_380), learner=learner)).fits


def test_a_cache_that_is_advised_holds_whole_pages_of_the_gpu(paper, planned):
    config = paper(4, "layer", backend="inprocess", cache_mb=120_000)
    config = replace(config, base=replace(config.base, device="cuda"))
    plan = planned(config, "a100-40gb", 1)
    assert not plan.fits
    size = int(suggest_fix(plan).rpartition("engine.cache_mb = ")[2])
    assert planned(replace(config, engine=replace(config.engine, cache_mb=size)), "a100-40gb", 1).fits
    assert 64 * plan.shape.kv_bytes(2) * -(-config.selfplay.max_response_tokens // 64) <= size << 20


def test_another_gpu_is_advised_where_no_setting_helps(paper, planned):
    plan = planned(paper(4, "layer", backend="inprocess", cache_mb=512), "rtx4090-24gb", 1)
    assert not plan.fits and suggest_fix(plan) == "take another GPU: it fits h100-80gb or h200-141gb or a100-80gb or a100-40gb or l40s-48gb"
    with pytest.raises(ConfigError, match=r"the plan needs 29\.0 GB on each GPU, a rtx4090-24gb has 24.0: take another GPU"):
        check_fits(plan)


def test_the_longest_phase_is_the_bottleneck(paper, planned):
    assert bottleneck(planned(paper())).startswith("training")
    assert bottleneck(planned(paper(rows=32))).startswith("decoding")
    assert bottleneck(planned(paper(1))).startswith("the longest response")
    assert bottleneck(planned(paper(), assumed=Assumptions(verdicts_per_second=1.0))).startswith("the sandbox")


@pytest.mark.parametrize("wrong", [{"prompt_tokens": 0.0}, {"train_mfu": 1.5}, {"valid": -0.1}, {"bandwidth": float("nan")}])
def test_impossible_assumptions_are_refused(wrong: dict[str, float]):
    with pytest.raises(ConfigError, match=next(iter(wrong)).replace("_", "-")):
        check_assumptions(Assumptions(**wrong))  # type: ignore[arg-type]


def test_a_base_in_float32_is_refused_on_gpus(seven, paper):
    config = paper()
    fp32 = replace(config, base=replace(config.base, dtype="float32"))
    with pytest.raises(ConfigError, match=r'base.dtype is "float32".*set base.dtype = "bfloat16"'):
        make_plan(fp32, seven, find_gpu("h100-80gb"), Assumptions())


def test_idle_gpus_are_those_that_the_settings_do_not_use(paper):
    config = replace(paper(tensor_parallel=2), cluster=ClusterConfig(learners=2, shards=4, engines=4))
    assert [count_idle_gpus(config, *gpus) for gpus in ((), (8,), (2, 4), (8, 2))] == [0, 0, 0, 8]
    assert count_idle_gpus(paper()) == 0 and count_idle_gpus(paper(tensor_parallel=2), 8) == 6  # one process


def test_settings_that_fill_gpus_are_valid_and_use_them(paper):
    config = fill_gpus(paper(tensor_parallel=2), 8, 2)
    check(config)
    assert count_idle_gpus(config, 8, 2) == 0
    assert cluster_settings(config) == 'cluster.learners = 16, cluster.engines = 8, selfplay.overlap = "eager"'
    assert count_idle_gpus(fill_gpus(paper(tensor_parallel=3), 8), 8) == 2


def test_hundreds_of_adapters_that_do_not_fit_on_every_engine_are_spread(paper, planned):
    cluster = ClusterConfig(learners=64, engines=64)
    plan = planned(replace(paper(300), cluster=cluster))
    assert not plan.fits and suggest_fix(plan) == "set cluster.adapter_copies = 8"  # not a cache for eight responses
    assert planned(replace(plan.config, cluster=replace(cluster, adapter_copies=8))).fits
    larger = planned(replace(paper(900), cluster=cluster))
    assert suggest_fix(larger) == "set engine.release_cache = true and cluster.adapter_copies = 4"


def test_configurations_that_use_their_gpus_stay_as_they_are(paper):
    for config, gpus in ((paper(), 0), (paper(), 1), (paper(tensor_parallel=4), 4), (fill_gpus(paper(), 2), 8)):
        assert fill_gpus(config, gpus) is config


@pytest.mark.parametrize(
    ("engines", "engine_gpus", "gpus", "nodes", "message"),
    [
        (8, 2, 3, 5, r"expected 16 GPUs, those of an engine on one node \(8 engines x engine.tensor_parallel 2\)"),  # only 5 of them
        (0, 4, 2, 1, r"expected 4 GPUs, .* got --gpus 2 --nodes 1: give more, or lower engine.tensor_parallel"),
        (8, 1, -1, 1, r"at least one GPU on at least one node, got -1 and 1"),
        (8, 1, 8, 0, r"at least one GPU on at least one node, got 8 and 0"),
    ],
)
def test_too_few_gpus_are_refused(engines, engine_gpus, gpus, nodes, message, paper):
    cluster = ClusterConfig(learners=engines * engine_gpus, engines=engines) if engines else ClusterConfig()
    with pytest.raises(ConfigError, match=message):
        count_idle_gpus(replace(paper(tensor_parallel=engine_gpus), cluster=cluster), gpus, nodes)
