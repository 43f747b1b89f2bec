"""The paper's base and settings, on its hardware."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from populora.core.config import BaseConfig, Config, EngineConfig, LearnerConfig, PopulationConfig
from populora.engine.planning.assumptions import Assumptions
from populora.engine.planning.hardware import gpu
from populora.engine.planning.placement import place, spread
from populora.engine.planning.plan import Plan, make_plan
from populora.engine.planning.shapes import Shapes, known_shapes

ONLY_TRAINED = Assumptions(valid=0.125)
"""72 of a teacher's 576 proposals are problems, so that a student attempts 576 times: what it trains on and no more."""


@pytest.fixture(scope="session")
def seven() -> Shapes:
    """Qwen2.5-Coder-7B."""
    found = known_shapes("Qwen/Qwen2.5-Coder-7B")
    assert found
    return found


@pytest.fixture(scope="session")
def paper() -> Callable[..., Config]:
    """``paper(teachers, **engine)``: the paper's settings with as many students."""

    def make(teachers: int = 4, checkpointing: str = "layer", **engine: object) -> Config:
        return Config(
            base=BaseConfig(path="Qwen/Qwen2.5-Coder-7B", dtype="bfloat16", device="cuda", prompts="azr"),
            population=PopulationConfig(teachers, teachers),
            engine=EngineConfig(**{"backend": "vllm", "cache_mb": 24_576, **engine}),  # type: ignore[arg-type]
            learner=LearnerConfig(activation_checkpointing=checkpointing),  # type: ignore[arg-type]
        )

    return make


@pytest.fixture(scope="session")
def planned(seven: Shapes) -> Callable[..., Plan]:
    """``planned(config, gpu="h100-80gb", gpus=8, assumed=…)`` for the 7B base, with cluster settings for so many GPUs if there are none."""

    def make(config: Config, name: str = "h100-80gb", gpus: int = 8, assumed: Assumptions = ONLY_TRAINED) -> Plan:
        config = spread(config, gpus)
        return make_plan(config, seven, gpu(name), place(config), assumed)

    return make
