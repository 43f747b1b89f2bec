"""The paper's base model and settings, on its hardware."""

import pytest

from populora.core.config import BaseConfig, Config, EngineConfig, LearnerConfig, PopulationConfig
from populora.engine.planning.assumptions import Assumptions
from populora.engine.planning.hardware import fill_gpus, find_gpu
from populora.engine.planning.model_shape import ModelShape, known_shape
from populora.engine.planning.planner import Plan, make_plan

ONLY_TRAINED = Assumptions(valid=0.125)
"""72 of a teacher's 576 proposals are valid, so a student makes 576 attempts: exactly what it trains on."""


@pytest.fixture(scope="session")
def seven() -> ModelShape:
    """Qwen2.5-Coder-7B."""
    shape = known_shape("Qwen/Qwen2.5-Coder-7B")
    assert shape
    return shape


@pytest.fixture(scope="session")
def paper():
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
def planned(seven):
    """``planned(config, gpu="h100-80gb", gpus=8, assumed=…)`` for the 7B base; adds cluster settings for the GPUs if there are none."""

    def make(config: Config, gpu: str = "h100-80gb", gpus: int = 8, assumed: Assumptions = ONLY_TRAINED) -> Plan:
        config = fill_gpus(config, gpus)
        return make_plan(config, seven, find_gpu(gpu), assumed)

    return make
