"""What a plan advises: changes that were tried, and errors that name what was expected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from populora.core.config import Config
from populora.core.errors import ConfigError
from populora.engine.planning.advice import check_fits, cure, limit
from populora.engine.planning.assumptions import Assumptions, check_assumptions
from populora.engine.planning.hardware import gpu
from populora.engine.planning.plan import Plan


def test_one_setting_is_advised_where_one_is_enough(paper: Callable[..., Config], planned: Callable[..., Plan]):
    plan = planned(paper(4, "none"))
    assert cure(plan) == 'set learner.activation_checkpointing = "layer"'
    assert limit(plan).startswith("memory: ") and "activations (learner)" in limit(plan)
    assert planned(paper(4, "layer")).fits  # as advised


def test_several_settings_are_advised_together_and_work(paper: Callable[..., Config], planned: Callable[..., Plan]):
    config = paper(4, "none", cache_mb=60_000)
    assert cure(planned(config)) == (
        'set engine.release_cache = true and learner.activation_checkpointing = "layer" and learner.micro_batch_tokens = 14240 and '
        "engine.cache_mb = 37380"
    )
    learner = replace(config.learner, activation_checkpointing="layer", micro_batch_tokens=14_240)
    assert not planned(replace(config, engine=replace(config.engine, release_cache=True), learner=learner)).fits
    assert planned(replace(config, engine=replace(config.engine, release_cache=True, cache_mb=37_380), learner=learner)).fits


def test_another_gpu_is_advised_where_no_setting_helps(paper: Callable[..., Config], planned: Callable[..., Plan]):
    config = paper(4, "layer", backend="inprocess", cache_mb=512)
    plan = planned(config, "rtx4090-24gb", 1)
    assert not plan.fits and cure(plan) == "take another GPU: it fits h100-80gb or h200-141gb or a100-80gb or a100-40gb or l40s-48gb"
    with pytest.raises(ConfigError, match=r"the plan needs 29\.7 GB on each GPU, a rtx4090-24gb has 24.0: take another GPU"):
        check_fits(plan)


def test_what_takes_most_of_a_step_is_named(paper: Callable[..., Config], planned: Callable[..., Plan]):
    assert limit(planned(paper())).startswith("training")
    assert limit(planned(paper(rows=32))).startswith("decoding")
    assert limit(planned(paper(1))).startswith("the longest response")
    assert limit(planned(paper(), assumed=Assumptions(verdicts_per_second=1.0))).startswith("the sandbox")


def test_unknown_gpus_name_the_known_ones():
    with pytest.raises(ConfigError, match=r"unknown GPU 'h100': expected cpu or one of h100-80gb, .* Did you mean 'h100-80gb'\?"):
        gpu("h100")


@pytest.mark.parametrize("wrong", [{"prompt_tokens": 0.0}, {"train_mfu": 1.5}, {"valid": -0.1}, {"bandwidth": float("nan")}])
def test_impossible_assumptions_are_refused(wrong: dict[str, float]):
    with pytest.raises(ConfigError, match=next(iter(wrong)).replace("_", "-")):
        check_assumptions(Assumptions(**wrong))  # type: ignore[arg-type]
