"""What PEFT's ``add_weighted_adapter`` makes of the same two adapters, and by which factor its delta differs (docs/operators.md)."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from small_models import random_qwen2

from populora.adapters.adapter import Adapter
from populora.adapters.operators import OPERATORS
from populora.core.rng import stream

RANK, ALPHA = 4, 12.0
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj"]


@pytest.fixture(scope="module")
def family():
    """A random Qwen2 with the adapters "one" and "two" in PEFT, and the same adapters as parents."""
    config = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=TARGETS)
    model = get_peft_model(random_qwen2(hidden_size=40), config, adapter_name="one")
    model.add_adapter("two", config)
    layers = {name: layer for name, layer in model.base_model.model.named_modules() if hasattr(layer, "lora_A")}
    for layer in layers.values():
        for key in ("one", "two"):
            torch.nn.init.normal_(layer.lora_B[key].weight)

    def parent(key: str) -> Adapter:
        factors = {name: (layer.lora_A[key].weight.detach(), layer.lora_B[key].weight.detach()) for name, layer in layers.items()}
        return Adapter(factors, RANK, ALPHA)

    return model, layers, [parent("one"), parent("two")]


def merged_by_peft(family, weight: float, **settings) -> torch.Tensor:
    """All deltas of PEFT's child, as they act in the model."""
    model, layers, _ = family
    model.add_weighted_adapter(["one", "two"], [weight, weight], "child", **settings)
    assert model.peft_config["child"].lora_alpha == RANK  # not the parents' alpha
    deltas = torch.cat([layer.get_delta_weight("child").detach().flatten() for layer in layers.values()])
    model.delete_adapter("child")
    return deltas


def merged_by_us(family, operator: str, **strength) -> torch.Tensor:
    child = OPERATORS[operator].function(family[2], stream(0, "op"), **strength)
    return torch.cat([(ALPHA / RANK * b @ a).flatten() for a, b in child.modules.values()])


@pytest.mark.parametrize(
    ("kind", "weight", "settings", "operator", "strength", "factor"),
    [
        ("linear", 0.5, {}, "x5", {}, 2.0),
        ("linear", 0.25, {}, "x5", {}, 1.0),
        ("ties", 0.5, {"density": 0.8}, "x6", {"tau": 0.2}, 0.5),
        ("ties", 1.0, {"density": 0.8}, "x6", {"tau": 0.2}, 1.0),
        ("svd", 0.5, {}, "x1", {"space": "delta", "drop": 0.0}, 1.0),
        ("svd", 0.5, {}, "soup", {}, 1.0),
    ],
)
def test_pefts_delta_is_ours_times_a_factor(family, kind, weight, settings, operator, strength, factor):
    theirs, ours = merged_by_peft(family, weight, combination_type=kind, **settings), merged_by_us(family, operator, **strength)
    torch.testing.assert_close(theirs, factor * ours, atol=1e-5 * float(theirs.abs().max()), rtol=0)


def test_pefts_dare_is_twice_x1_on_average_and_draws_from_the_global_generator(family):
    torch.manual_seed(0)
    theirs = sum(merged_by_peft(family, 0.5, combination_type="dare_linear", density=0.3) for _ in range(40)) / 40
    ours = merged_by_us(family, "x1", drop=0.0)  # the mean of X1's children, whatever it drops
    assert float(theirs @ ours / (ours @ ours)) == pytest.approx(2.0, rel=0.05)
