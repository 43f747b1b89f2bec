"""Layers compiled for decoding, here by a backend that only traces: a GPU's kernels are compiled by the tests that need one."""

from functools import partial

import pytest
import torch
from draws import difference
from small_models import random_qwen2, randomise

from populora.core.types import Request
from populora.engine.model import fusion, paged
from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.model.fusion import FusedLayers, fuse_norms
from populora.engine.sampling.decoder_pool import DecoderPool
from populora.engine.sampling.graph_decoder import GraphDecoder
from populora.engine.sampling.inprocess import InProcessSampler

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj")
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


@pytest.fixture
def traced(monkeypatch):
    """Compile by tracing alone, and return the counters of what is compiled."""
    torch.compiler.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    monkeypatch.setattr(paged, "PAGE", 2)
    fusion._compiled.cache_clear()
    yield torch._dynamo.utils.counters
    torch.compiler.reset()
    fusion._compiled.cache_clear()


def sampler(adapted, tokenizer, layers=()) -> InProcessSampler:
    """A sampler in static shapes that computes these layers compiled."""
    made = InProcessSampler(adapted, tokenizer, seed=7, rows=4)
    made.decoders = DecoderPool(adapted, 4, capture=lambda forward: forward)
    decoder = made.decoders.acquire(4, 8)
    assert isinstance(decoder, GraphDecoder)
    decoder._layers = FusedLayers(layers)
    made.decoders.release(decoder)
    return made


def base(layers: int) -> AdaptedModel:
    model = random_qwen2(num_hidden_layers=layers, hidden_size=32, intermediate_size=48, vocab_size=300)
    return randomise(AdaptedModel(model, TARGETS, 3, 4, 8.0))


def asked() -> list[Request]:
    return [Request("def g(a):", slot, 2, ("test", slot)) for slot in (-1, 0, 2)]


def generate(made: InProcessSampler):
    return made.generate(asked(), 8, 1.0, "")


@pytest.mark.thorough
def test_compiled_layers_write_the_same_and_share_their_compilations(traced, tokenizer):
    graphs = []
    for layers in (2, 5):
        torch.compiler.reset()
        traced.clear()
        adapted = base(layers)
        fuse_norms(adapted.backbone)
        expected = generate(sampler(adapted, tokenizer))
        compiled = generate(sampler(adapted, tokenizer, adapted.backbone.layers))
        assert difference(compiled, expected) < 1e-5
        graphs.append(traced["stats"]["unique_graphs"])
    assert graphs[0] == graphs[1] > 4


def test_the_layers_of_other_forwards_stay_as_they_are():
    layer = torch.nn.Linear(2, 2)
    plain = layer.forward
    with FusedLayers([layer]).in_use():
        assert layer.forward != plain
    assert layer.forward == plain


def test_norms_alone_are_compiled(traced):
    adapted = base(1)
    fuse_norms(adapted.backbone)
    compiled = [name for name, module in adapted.backbone.named_modules() if "forward" in vars(module) and "norm" in name]
    assert compiled == ["layers.0.input_layernorm", "layers.0.post_attention_layernorm", "norm"]
    assert "forward" not in vars(adapted.backbone.embed_tokens)
