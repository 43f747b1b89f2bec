"""The frozen MLP in chunks against autograd of transformers' module in float64."""

import copy

import pytest
import torch
from transformers import Qwen2Config
from transformers.models.qwen2.modeling_qwen2 import Qwen2MLP

from populora.engine.model import mlp as chunks
from populora.engine.model import products
from populora.engine.model.mlp import use_frozen_mlp


@pytest.fixture
def on_amd(monkeypatch):
    monkeypatch.setattr(products, "processor", lambda: "AMD EPYC")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    products.base_products.cache_clear()
    if not products.base_products().startswith("oneDNN"):
        pytest.skip("this torch has no oneDNN")
    yield
    products.base_products.cache_clear()


def module(activation="silu"):
    torch.manual_seed(0)
    return Qwen2MLP(Qwen2Config(hidden_size=24, intermediate_size=40, hidden_act=activation)).requires_grad_(False)


def test_values_and_gradient_over_several_chunks_are_those_of_the_module(on_amd, monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK", 33)
    plain = module()
    x, upstream = torch.randn(1, 77, 24).requires_grad_(), torch.randn(1, 77, 24)
    exact = copy.deepcopy(plain).double()(x.double())
    (exact_grad,) = torch.autograd.grad(exact, x, upstream.double())
    use_frozen_mlp(plain)
    y = plain(x)
    assert "FrozenMlp" in type(y.grad_fn).__name__
    torch.testing.assert_close(y, exact.float(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(torch.autograd.grad(y, x, upstream)[0], exact_grad.float(), rtol=1e-5, atol=1e-6)


def test_another_activation_a_bias_and_an_adapted_linear_stay_as_they_are(on_amd):
    gelu, biased, adapted = module("gelu"), module(), module()
    biased.up_proj = torch.nn.Linear(24, 40)
    adapted.up_proj = torch.nn.Sequential(adapted.up_proj)  # type: ignore[assignment]
    for other in (gelu, biased, adapted):
        use_frozen_mlp(other)
        assert "forward" not in vars(other)
