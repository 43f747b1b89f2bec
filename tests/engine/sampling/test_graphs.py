"""Sampling in static shapes: the path of CUDA graphs, here with replays that run the forward again, against the sampler's usual steps."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import torch
from draws import difference
from small_models import randomise

from populora.core.errors import BaseModelError
from populora.core.types import Request
from populora.engine.model import paged
from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.model.linear import FusedLinears
from populora.engine.model.packing import PromptGroup, pack
from populora.engine.model.paged import Mirror
from populora.engine.sampling.decoder_pool import DecoderPool
from populora.engine.sampling.graph_decoder import Forward, GraphDecoder
from populora.engine.sampling.inprocess import InProcessSampler

PROMPTS = ("def g(a, b):\n    return a * b", "x")
RANKS, ROWS, TOKENS, STOP = (4, 2, 1), 5, 14, "a"
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


@pytest.fixture(autouse=True)
def small_pages(monkeypatch, request):
    if not request.node.get_closest_marker("gpu"):
        monkeypatch.setattr(paged, "PAGE", 2)


@pytest.fixture
def adapted(make_adapted):
    """Adapters of three ranks, two of which have another alpha / rank than the first."""
    made = make_adapted()
    for slot, rank in enumerate(RANKS):
        for a, b in made.bank.factors.values():
            a[slot, rank:] = 0.0
            b[slot, :, rank:] = 0.0
    made.bank.ranks[:] = torch.tensor(RANKS)
    return made


def requests() -> list[Request]:
    return [Request(prompt, slot, 1 + index, ("test", slot, index)) for slot in (2, -1, 0, 1) for index, prompt in enumerate(PROMPTS)]


def without_graph(forward: Forward) -> Forward:
    """Launch the same static shapes one by one."""
    return forward


class Replays:
    """Stands in for CUDA graphs: a replay runs the forward again, but must not look at the host, nor find the pools elsewhere."""

    def __init__(self):
        self.captured: list[int] = []

    def __call__(self, forward: Forward) -> Forward:
        steps = forward.func.__self__  # type: ignore[attr-defined]
        self.captured.append(len(forward()))
        places = self._places(steps)

        def replay() -> torch.Tensor:
            assert self._places(steps) == places
            cache, host = steps.cache, {}
            for name in ("_row", "_prompts", "_free", "live"):
                host[name] = getattr(cache, name)
                setattr(cache, name, None)
            mirrors = [value for value in vars(cache).values() if isinstance(value, Mirror)]
            arrays = [mirror.host for mirror in mirrors]
            for mirror in mirrors:
                mirror.host = np.empty(0)
            result = forward()
            for mirror, array in zip(mirrors, arrays, strict=True):
                mirror.host = array
            vars(cache).update(host)
            return result

        return replay

    def _places(self, steps: GraphDecoder) -> list[int]:
        pools = [pool.data_ptr() for pair in steps.cache._pools.values() for pool in pair]
        mirrors = [value.device.data_ptr() for value in vars(steps.cache).values() if isinstance(value, Mirror)]
        return [*pools, *mirrors, steps._ids.device.data_ptr(), steps._weights.data_ptr()]


def static_sampler(adapted, tokenizer, capture: Callable[[Forward], Forward], rows: int = ROWS) -> InProcessSampler:
    made = InProcessSampler(adapted, tokenizer, seed=7, rows=rows)
    made.decoders = DecoderPool(adapted, rows, capture=capture)
    return made


def generate(sampler, asked=None):
    return sampler.generate(requests() if asked is None else asked, TOKENS, 1.0, STOP)


@pytest.mark.slow
def test_generations_are_those_of_the_usual_steps(adapted, tokenizer):
    replays = Replays()
    sampler = static_sampler(adapted, tokenizer, replays)
    expected = generate(InProcessSampler(adapted, tokenizer, seed=7, rows=ROWS))
    assert len({len(response.tokens) for responses in expected for response in responses}) > 2
    assert difference(generate(sampler), expected) < 1e-5
    (steps,) = sampler.decoders._idle
    assert set(replays.captured) == {ROWS} and len(replays.captured) > 1  # anew where the pools grew
    captured = len(replays.captured)
    assert difference(generate(sampler), expected) < 1e-5
    assert sampler.decoders._idle == [steps] and len(replays.captured) == captured


@pytest.mark.slow
def test_another_stream_may_have_other_adapters(adapted, tokenizer):
    sampler = static_sampler(adapted, tokenizer, without_graph)
    before = generate(sampler)
    adapted.bank.alphas[:] *= 3.0
    adapted.bank.master *= 1.1
    expected = generate(InProcessSampler(adapted, tokenizer, seed=7, rows=ROWS))
    assert difference(generate(sampler), expected) < 1e-5
    assert difference(before, expected) > 1e-2


def test_rows_are_padded_to_few_sizes(adapted, tokenizer):
    replays = Replays()
    sampler = static_sampler(adapted, tokenizer, replays, rows=20)
    (request,) = requests()[:1]
    expected = generate(InProcessSampler(adapted, tokenizer, seed=7), [dataclasses.replace(request, samples=18)])
    assert difference(generate(sampler, [dataclasses.replace(request, samples=18)]), expected) < 1e-5
    assert set(replays.captured) <= {8, 16, 20}


def test_rows_without_adapters_go_through_the_bare_base(monkeypatch, adapted, tokenizer):
    asked = [dataclasses.replace(request, samples=2) for request in requests() if request.slot == -1]
    expected = generate(InProcessSampler(adapted, tokenizer, seed=7, rows=ROWS), asked)
    sampler = static_sampler(adapted, tokenizer, without_graph)
    generate(sampler, requests()[:1])  # the same sizes with adapters
    monkeypatch.setattr(FusedLinears, "weighted_rows", None)
    assert difference(generate(sampler, asked), expected) < 1e-5


def test_a_stream_that_broke_off_leaves_nothing_behind(adapted, tokenizer):
    class Once:
        def next(self, block: bool):
            asked, self.next = requests(), lambda block: ()
            return asked

    sampler = static_sampler(adapted, tokenizer, without_graph)
    next(sampler.stream(Once(), 3, 1.0, ""))
    assert sampler.decoders._idle == []
    asked = requests()[:2]
    assert difference(generate(sampler, asked), generate(InProcessSampler(adapted, tokenizer, seed=7, rows=ROWS), asked)) < 1e-5


def test_a_base_whose_frequencies_depend_on_the_batch_is_refused(adapted):
    adapted.model.config.rope_parameters = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    with pytest.raises(BaseModelError, match="rotary frequencies are fixed"):
        GraphDecoder(adapted, ROWS, 1, without_graph)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-4), (torch.bfloat16, 0.1)])
def test_on_cuda_graphs_write_what_the_same_steps_write_without(make_base, tokenizer, dtype, tolerance):
    made = randomise(AdaptedModel(make_base().to("cuda", dtype), ("q_proj", "k_proj", "v_proj", "o_proj"), 3, 4, 8.0))
    graphs = InProcessSampler(made, tokenizer, seed=7, rows=ROWS)
    assert isinstance(graphs.decoders.acquire(ROWS, TOKENS), GraphDecoder)
    plain = static_sampler(made, tokenizer, without_graph)
    for _ in range(2):  # the second time with the graphs of the first
        answers = graphs.generate(requests(), 100, 1.0, "")
        assert difference(answers, plain.generate(requests(), 100, 1.0, "")) < tolerance
    groups = [
        PromptGroup(request.slot, responses[0].prompt_tokens, tuple(response.tokens for response in responses))
        for request, responses in zip(requests(), answers, strict=True)
    ]
    order = sorted(range(len(groups)), key=lambda at: groups[at].slot)
    with torch.inference_mode():
        learner = made.logprobs(pack([groups[at] for at in order], "cuda"))[0].cpu()
    sampled = torch.tensor([value for at in order for response in answers[at] for value in response.logprobs])
    assert float((sampled - learner).abs().mean()) < tolerance
