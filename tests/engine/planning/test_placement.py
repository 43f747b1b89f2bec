"""Which GPUs a run uses: those of its settings, and which settings would use more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from populora.core.config import ClusterConfig, Config
from populora.core.config_check import check
from populora.core.errors import ConfigError
from populora.engine.planning.placement import Placement, place, spread, spread_settings


def test_a_cluster_s_places_are_those_of_its_settings(paper: Callable[..., Config]):
    config = replace(paper(tensor_parallel=2), cluster=ClusterConfig(learners=2, shards=4, engines=4))
    assert place(config) == place(config, 8) == Placement(8, engines=4, engine_gpus=2, learners=2, learner_gpus=4, idle=0)
    assert place(config, 2, 4) == place(config)
    assert place(config, 8, 2).idle == 8


def test_without_cluster_settings_a_run_is_one_process(paper: Callable[..., Config]):
    assert place(paper()) == Placement(1, 1, 1, 1, 1, 0)
    assert place(paper(tensor_parallel=2), 8) == Placement(2, 1, 2, 1, 1, 6)


def test_settings_for_given_gpus_are_possible_and_use_them(paper: Callable[..., Config]):
    config = spread(paper(tensor_parallel=2), 8, 2)
    check(config)
    assert place(config, 8, 2) == Placement(16, 8, 2, 16, 1, 0)
    assert spread_settings(config) == 'cluster.learners = 16, cluster.engines = 8, selfplay.overlap = "eager"'
    assert place(spread(paper(tensor_parallel=3), 8), 8).idle == 2


def test_configurations_that_use_their_gpus_stay_as_they_are(paper: Callable[..., Config]):
    for config, gpus in ((paper(), 0), (paper(), 1), (paper(tensor_parallel=4), 4), (spread(paper(), 2), 8)):
        assert spread(config, gpus) is config


@pytest.mark.parametrize(
    ("given", "each", "gpus", "nodes", "message"),
    [
        (8, 1, 4, 1, r"expected 8 GPUs, .* got --gpus 4 --nodes 1: give more, or lower cluster.engines and cluster.learners"),
        (8, 2, 3, 5, r"expected 16 GPUs, those of an engine on one node \(8 engines x engine.tensor_parallel 2\)"),  # only 5 of them
        (0, 4, 2, 1, r"expected 4 GPUs, .* got --gpus 2 --nodes 1: give more, or lower engine.tensor_parallel"),
        (8, 1, -1, 1, r"at least one GPU on at least one node, got -1 and 1"),
        (8, 1, 8, 0, r"at least one GPU on at least one node, got 8 and 0"),
        (8, 1, 0, 2, r"--nodes 2: expected --gpus with it"),
    ],
)
def test_too_few_gpus_are_refused(given: int, each: int, gpus: int, nodes: int, message: str, paper: Callable[..., Config]):
    cluster = ClusterConfig(learners=given * each, engines=given) if given else ClusterConfig()
    with pytest.raises(ConfigError, match=message):
        place(replace(paper(tensor_parallel=each), cluster=cluster), gpus, nodes)
