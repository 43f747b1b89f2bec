"""The in-process sampler's own side: cache, prefilling and stop texts, in C and by torch. All samplers share test_conformance.py."""

from collections import Counter

import pytest
import torch
from draws import PROMPTS, STOP, requests_of, same_draws
from small_models import randomise

from populora.core.config import Config, SelfplayConfig
from populora.core.errors import ConfigError
from populora.core.types import Request
from populora.engine.backend import open_engine
from populora.engine.learning.batching import TrainRow
from populora.engine.learning.learner import InProcessLearner
from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.model.loading import load_base
from populora.engine.native.compiled import load
from populora.engine.native.decoder import CACHED_ROWS, NativeDecoder
from populora.engine.sampling.batch import ContinuousBatch
from populora.engine.sampling.decoders import TorchDecoder
from populora.engine.sampling.inprocess import InProcessSampler

REQUESTS = requests_of((2, -1, 0, 1))


@pytest.fixture(params=["C", "torch"], autouse=True)
def decoder(request, monkeypatch) -> str:
    if request.param == "torch":
        monkeypatch.setattr("populora.engine.sampling.decoder_pool.prepare", lambda adapted: "this test")
    elif isinstance(load(), str):
        pytest.skip(f"the decoder in C: {load()}")
    return request.param


def test_slots_that_share_a_key_draw_the_same_numbers(adapted, sampler):
    """So that adapters are compared on equal terms."""
    adapted.bank.load(1, adapted.bank.adapter(0))
    first, second = sampler.generate([Request(PROMPTS[0], slot, 3, ("shared",)) for slot in (0, 1)], 40, 1.0, STOP)
    assert [generation.tokens for generation in first] == [generation.tokens for generation in second]
    assert len({tuple(generation.tokens) for generation in first}) > 1


def test_the_same_call_is_bit_identical_and_fewer_rows_draw_the_same(adapted, sampler, tokenizer):
    first = sampler.generate(REQUESTS, 40, 1.0, STOP)
    assert first == sampler.generate(REQUESTS, 40, 1.0, STOP)
    narrow = InProcessSampler(adapted, tokenizer, seed=7, rows=4).generate(REQUESTS, 40, 1.0, STOP)
    assert all(same_draws(adapted, 7, *answers) for answers in zip(REQUESTS, first, narrow, strict=True))


def test_an_engine_of_its_own_answers_as_the_model_that_learns_but_cannot_learn(tokenizer):
    config = Config(selfplay=SelfplayConfig(max_prompt_tokens=256, max_response_tokens=24))
    lora, requests = config.lora, [Request(PROMPTS[0], slot, 2, ("engine", slot)) for slot in (0, -1)]
    learning = randomise(AdaptedModel(load_base(config.base)[0], lora.targets, 1, lora.rank, lora.alpha))
    expected = InProcessSampler(learning, tokenizer, config.seed).generate(requests, 24, 1.0, STOP)
    with open_engine(config, 1) as (engine, _):
        engine.sync_weights(learning.bank, [0])
        assert engine.generate(requests, 24, 1.0, STOP) == expected
        assert engine.adapted.bank.gradient.is_meta
        with pytest.raises(RuntimeError, match="meta"):
            InProcessLearner(engine.adapted, config.learner).update([TrainRow(0, [1, 2], [3], [-1.0], 1.0)])


def test_no_more_responses_are_decoded_at_a_time_than_the_cache_holds(monkeypatch, adapted, sampler, tokenizer):
    limits: list[int] = []

    class Watched(ContinuousBatch):
        def __init__(self, stop, limit, *others):
            limits.append(limit)
            super().__init__(stop, limit, *others)

    monkeypatch.setattr("populora.engine.sampling.inprocess.ContinuousBatch", Watched)
    monkeypatch.setattr("populora.engine.sampling.decoder_pool.CACHED_BYTES", 0)
    small = InProcessSampler(adapted, tokenizer, seed=7, cache_mb=1)
    shape = adapted.model.config
    token = 2 * 4 * shape.num_hidden_layers * shape.num_key_value_heads * shape.hidden_size // shape.num_attention_heads
    answers = zip(REQUESTS, small.generate(REQUESTS, 45, 1.0, STOP), sampler.generate(REQUESTS, 45, 1.0, STOP), strict=True)
    assert all(same_draws(adapted, 7, *pair) for pair in answers)
    assert limits == [(1 << 20) // (64 * token), 512]  # whole pages
    with pytest.raises(ConfigError, match=r"engine.cache_mb is 1: one response of 100000 tokens needs"):
        small.generate(REQUESTS, 100_000, 1.0, STOP)


def test_in_c_a_base_that_fits_into_the_cache_is_decoded_in_few_rows_a_thread(monkeypatch, sampler, decoder):
    few = CACHED_ROWS * torch.get_num_threads()
    assert sampler.decoders.best_rows(512) == (few if decoder == "C" else 512) and sampler.decoders.best_rows(3) == 3
    monkeypatch.setattr("populora.engine.sampling.decoder_pool.CACHED_BYTES", 0)
    assert sampler.decoders.best_rows(512) == 512


def test_torch_decodes_all_adapters_evenly_and_c_one_after_the_other(monkeypatch, adapted, tokenizer, decoder):
    written: list[Counter[int]] = []

    class Watched(ContinuousBatch):
        def _write(self):
            written.append(Counter(row.owner.request.slot for row in self._rows))
            return super()._write()

    monkeypatch.setattr("populora.engine.sampling.inprocess.ContinuousBatch", Watched)
    requests = [Request(PROMPTS[0], slot, 6, ("even", slot)) for slot in (0, 1, 2)]
    InProcessSampler(adapted, tokenizer, seed=7, rows=6).generate(requests, 8, 1.0, "")
    assert written[0] == ({0: 6} if decoder == "C" else {0: 2, 1: 2, 2: 2})
    assert written[-1] == ({2: 6} if decoder == "C" else {0: 2, 1: 2, 2: 2})


@pytest.mark.slow
def test_a_prompt_is_computed_once_and_free_places_are_filled_while_others_are_written(monkeypatch, adapted, tokenizer, decoder):
    decks: list[ContinuousBatch] = []
    live: list[int] = []
    prompts: list[int] = []

    class Watched(ContinuousBatch):
        def _prefill(self, requests):
            prompts.append(len(requests))
            super()._prefill(requests)

        def _fill(self, chosen):
            decks[:] = [self]
            live.append(len(self._rows))
            super()._fill(chosen)

    monkeypatch.setattr("populora.engine.sampling.inprocess.ContinuousBatch", Watched)
    narrow = InProcessSampler(adapted, tokenizer, seed=7, rows=3)
    assert sum(request.samples for request in REQUESTS) > 3 and any(request.samples > 1 for request in REQUESTS)
    narrow.generate(REQUESTS, 40, 1.0, STOP)
    assert sum(prompts) == len(REQUESTS)
    assert live[0] == 0 and max(live) > 0
    (deck,) = decks
    cache = deck._cache
    if decoder == "C":
        assert not cache._prompts and not cache.rows.size and len(cache._free) == narrow.rows
    else:
        assert not cache._place and not cache._lengths.any() and sorted(cache._free) == list(range(cache._capacity))


def test_the_memory_of_a_stream_serves_the_next_of_the_same_lengths_alone(adapted, tokenizer, decoder):
    sampler = InProcessSampler(adapted, tokenizer, seed=7)
    first = sampler.generate(REQUESTS, 40, 1.0, STOP)
    if decoder == "torch":
        assert sampler.decoders._idle == []
        return
    (kept,) = sampler.decoders._idle
    assert sampler.generate(REQUESTS, 40, 1.0, STOP) == first and sampler.decoders._idle == [kept]
    sampler.generate(REQUESTS, 8, 1.0, STOP)
    assert [decoder.size[1] for decoder in sampler.decoders._idle] == [8]


@pytest.mark.parametrize(
    ("texts", "stop", "kept", "stopped"),
    [
        (["7\n```</answer> 12"], STOP, "7\n```</answer>", True),  # one token holds the stop text and more
        (["7</answer>\n"], STOP, "7</answer>", True),
        (["</answe>rs"], STOP, "</answe>rs", False),
        (["ab<eos>cd"], STOP, "ab", True),
        ("ok</answer>!", STOP, "ok</answer>", True),  # spelt in single characters
        (["x = 1 end of\nit all"], "of\nit", "x = 1 end of\nit", True),  # with spaces
    ],
)
def test_a_response_ends_at_the_stop_text_or_eos(monkeypatch, sampler, tokenizer, texts, stop, kept, stopped):
    tokens = [token for text in texts for token in tokenizer(text)["input_ids"]]
    script = iter(tokens)

    def scripted(self, hidden, temperature, uniforms):
        return [next(script)], [0.0], [0.0]

    monkeypatch.setattr(NativeDecoder, "sample", scripted)
    monkeypatch.setattr(TorchDecoder, "sample", scripted)
    ((response,),) = sampler.generate([Request("x", 0, 1, ("stop",))], len(tokens), 1.0, stop)
    assert (response.text, response.stopped) == (kept, stopped)
    assert list(response.tokens) == tokens[: len(response.tokens)]
