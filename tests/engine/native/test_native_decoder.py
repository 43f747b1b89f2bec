"""The decoder in C writes the tokens and log-probabilities of torch's, whatever the base, the instructions and the number of threads.
Where it cannot be used, torch decodes and the reason is given."""

import os
import platform
import re
import shutil
import time
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_models import random_qwen2, randomise
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen3Config, Qwen3ForCausalLM

from populora.core.config import BaseConfig
from populora.core.errors import BaseModelError
from populora.core.types import Request
from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.model.loading import load_base
from populora.engine.native import compiled, packed_model
from populora.engine.native.compiled import describe, load
from populora.engine.native.decoder import NativeDecoder, prepare
from populora.engine.native.threads import share
from populora.engine.sampling.decoders import EagerDecoder
from populora.engine.sampling.inprocess import InProcessSampler

needs_compiler = pytest.mark.skipif(isinstance(load(), str), reason=f"the decoder in C: {load()}")
ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
SHAPE: dict[str, Any] = {
    "vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 96, "max_position_embeddings": 256, "initializer_range": 0.06, "pad_token_id": 0, "eos_token_id": 1,
    "bos_token_id": 2,
}  # fmt: skip
ROPE = {"rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
LLAMA3 = {**ROPE, "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def llama(**changes: Any) -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**(SHAPE | changes)))


def mistral(**changes: Any) -> MistralForCausalLM:
    torch.manual_seed(0)
    return MistralForCausalLM(MistralConfig(**(SHAPE | {"sliding_window": None} | changes)))


BASES = {
    "llama": llama,
    "llama with biases": lambda: biased(llama(attention_bias=True, mlp_bias=True)),
    "llama3 rope": lambda: llama(rope_parameters=LLAMA3),
    "yarn rope": lambda: llama(rope_parameters={**ROPE, "rope_type": "yarn"}),
    "mistral with wide heads": lambda: mistral(head_dim=32),
    "qwen2": lambda: biased(random_qwen2(**SHAPE)),
    "one head of keys": lambda: llama(num_key_value_heads=1, head_dim=32),
    "heads of one vector": lambda: llama(head_dim=load().panel() // 2),
}


def biased(model: Any) -> Any:
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.1)
    return model


class Numbers:
    """Stands for a tokenizer: a text of numbers."""

    eos_token_id = 1

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": [int(number) for number in text.split()]}

    def __len__(self) -> int:
        return 512

    def decode(self, tokens: list[int], **options: Any) -> str:
        return " ".join(map(str, tokens))


def adapt(model: Any, targets: tuple[str, ...] = ALL, rank: int = 8) -> AdaptedModel:
    adapted = randomise(AdaptedModel(model, targets, 3, rank, 16.0), 0.05)
    for slot, smaller in enumerate((rank, rank // 2, 1)):
        adapted.bank.ranks[slot] = smaller
        for a, b in adapted.bank.factors.values():
            a[slot, smaller:], b[slot, :, smaller:] = 0.0, 0.0
    return adapted


def requests_for(lengths: tuple[int, ...] = (1, 15, 16, 17, 70)) -> list[Request]:
    generator = np.random.default_rng(0)
    prompts = {length: " ".join(map(str, generator.integers(2, 256, length))) for length in lengths}
    samples = {length: 11 if length == 17 else 3 for length in lengths}  # one prompt has more rows than are computed together
    return [Request(prompts[length], slot, samples[length], ("t", slot, length)) for slot in (-1, 0, 1, 2) for length in lengths]


def sampler_of(adapted: AdaptedModel, kernels: str = "auto", rows: int = 25) -> InProcessSampler:
    with pytest.MonkeyPatch.context() as patch:
        if kernels == "torch":
            patch.setattr(adapted, "kernels", "this test")
        sampler = InProcessSampler(adapted, Numbers(), 0, rows=rows)
    assert sampler.decoder.startswith("C (" if kernels == "auto" else "torch (this test)")
    return sampler


def respond(adapted: AdaptedModel, kernels: str, temperature: float = 1.0) -> list[Any]:
    sampler = sampler_of(adapted, kernels)
    return list(chain.from_iterable(sampler.generate(requests_for(), 40, temperature, "")))


def check_same(responses: list[Any], expected: list[Any]) -> None:
    for ours, theirs in zip(responses, expected, strict=True):
        assert (ours.tokens, ours.stopped) == (theirs.tokens, theirs.stopped)
        differences = np.abs(np.subtract(ours.logprobs, theirs.logprobs))  # a badly conditioned token differs more than others
        assert differences.mean() < 1e-5 and differences.max() < 1e-3
        assert ours.entropy == pytest.approx(theirs.entropy, abs=1e-5)


@pytest.fixture
def instructions(request, monkeypatch, tmp_path):
    """Compile with other flags, into a cache of the test's own."""
    monkeypatch.setenv("CFLAGS", request.param)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    load.cache_clear()
    yield
    load.cache_clear()


@needs_compiler
@pytest.mark.parametrize("base", BASES)
def test_every_kind_of_base_is_computed_as_by_torch(base):
    adapted = adapt(BASES[base]())
    check_same(respond(adapted, "auto"), respond(adapted, "torch"))


@needs_compiler
@pytest.mark.parametrize("targets", [("q_proj", "v_proj"), ("k_proj",), ("o_proj", "down_proj"), ("up_proj",)])
def test_adapters_on_some_modules_only(targets):
    adapted = adapt(llama(), targets, rank=3)
    check_same(respond(adapted, "auto"), respond(adapted, "torch"))


@needs_compiler
@pytest.mark.parametrize("temperature", [1.0, pytest.param(0.7, marks=pytest.mark.slow), 0.0])
def test_the_tiny_base_at_each_temperature(temperature):
    adapted = adapt(load_base(BaseConfig())[0])
    expected = respond(adapted, "torch", temperature)
    responses = respond(adapted, "auto", temperature)
    check_same(responses, expected)
    assert responses == respond(adapted, "auto", temperature) and len({tuple(response.tokens) for response in responses}) > 4


@pytest.mark.slow
@needs_compiler
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the flags are of x86-64")
@pytest.mark.parametrize("instructions", ["-march=x86-64-v3", "-march=x86-64", "-march=x86-64 -O0"], indirect=True)
def test_other_instructions_give_the_same_tokens(instructions):
    adapted = adapt(llama())
    check_same(respond(adapted, "auto"), respond(adapted, "torch"))


@needs_compiler
def test_numbers_depend_neither_on_threads_nor_on_the_other_rows(monkeypatch):
    adapted = adapt(llama())
    expected = respond(adapted, "auto")
    for threads in (2, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        assert respond(adapted, "auto") == expected
    narrow = sampler_of(adapted, rows=3)
    assert list(chain.from_iterable(narrow.generate(requests_for(), 40, 1.0, ""))) == expected


@needs_compiler
def test_an_adapter_that_changes_is_read_anew():
    adapted = adapt(llama())
    sampler = sampler_of(adapted)
    before = sampler.generate(requests_for(), 8, 1.0, "")
    adapted.bank.load(0, adapted.bank.adapter(1))
    adapted.bank.alphas[2] *= 2
    after = sampler.generate(requests_for(), 8, 1.0, "")
    expected = sampler_of(adapted, "torch").generate(requests_for(), 8, 1.0, "")
    check_same(list(chain.from_iterable(after)), list(chain.from_iterable(expected)))
    changed = [first != second for first, second in zip(before, after, strict=True)]
    assert changed == [request.slot in (0, 2) for request in requests_for()]


@needs_compiler
@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda: llama().bfloat16(), "C is for bases in float32 on a CPU"),
        (lambda: Qwen3ForCausalLM(Qwen3Config(**SHAPE, head_dim=16)), "this is qwen3"),
        (lambda: llama(intermediate_size=84), r"this base has \[84\]"),
        (
            lambda: llama(num_attention_heads=16, num_key_value_heads=16, head_dim=6),
            r"heads of a multiple of \d+ dimensions, this base's have 6",
        ),
        (lambda: llama(hidden_act="gelu"), "this base has gelu"),
        (lambda: llama(rope_parameters={**ROPE, "rope_type": "dynamic"}), "this base has dynamic"),
    ],
)
def test_another_base_is_left_to_torch_with_the_reason(model, reason):
    adapted = AdaptedModel(model(), ("q_proj",), 1, 2, 4.0)
    decoders = InProcessSampler(adapted, Numbers(), 0).decoders
    assert isinstance(decoders.acquire(1, 1), EagerDecoder)
    assert re.search(rf"torch \(.*{reason}", decoders.description)


@needs_compiler
def test_results_that_are_not_those_of_torch_stop_the_run(monkeypatch):
    describe_layer = packed_model.PackedModel._layer

    def broken(self, layer):
        described = describe_layer(self, layer)
        described.down.weight = described.out.weight
        return described

    monkeypatch.setattr(packed_model.PackedModel, "_layer", broken)
    with pytest.raises(BaseModelError, match=r'hidden states differ from torch.*base.kernels = "torch" does without it'):
        prepare(adapt(llama(intermediate_size=64)))


@pytest.mark.parametrize(
    ("compiler", "reason"),
    [
        ("nothing-of-this-name -pipe", "there is no C compiler 'nothing-of-this-name'"),
        ("false", "failed: "),
        ("slow-compiler", "took more than 1 s: start again"),
    ],
)
def test_without_a_compiler_torch_decodes_and_says_why(monkeypatch, tmp_path, compiler, reason):
    monkeypatch.setenv("CC", compiler)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compiled, "SECONDS", 1)
    slow = tmp_path / "slow-compiler"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    load.cache_clear()
    try:
        adapted = adapt(llama(head_dim=32))
        decoders = InProcessSampler(adapted, Numbers(), 0).decoders
    finally:
        load.cache_clear()
    assert adapted.computation["attention"].startswith("torch (") and reason in adapted.computation["attention"]
    assert (
        isinstance(decoders.acquire(1, 1), EagerDecoder) and decoders.description.startswith("torch (") and reason in decoders.description
    )


def test_a_user_without_a_home_has_no_compiled_library_and_is_told_why(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("Could not determine home directory.")))
    load.cache_clear()
    try:
        assert "set HOME or XDG_CACHE_HOME" in str(load()) or "there is no C compiler" in str(load())
    finally:
        load.cache_clear()


@pytest.mark.slow
@needs_compiler
def test_a_compiler_may_have_arguments(monkeypatch, tmp_path):
    monkeypatch.setenv("CC", "cc -pipe")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    load.cache_clear()
    try:
        assert describe(load()).startswith("C (")
    finally:
        load.cache_clear()


@pytest.mark.slow
@needs_compiler
def test_a_second_process_finds_the_compiled_library(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    command = (shutil.which("cc") or "", *compiled.FLAGS)
    path = compiled._compiled(command)
    written = os.stat(path).st_mtime_ns
    assert compiled._compiled(command) == path and os.stat(path).st_mtime_ns == written
    assert [file.name for file in (tmp_path / "populora").iterdir()] == [path.name]
    assert compiled._compiled((*command, "-DOTHER")) != path


def test_another_compiler_of_the_same_path_compiles_anew(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiler = tmp_path / "cc"
    for version in ("old", "newer"):
        compiler.write_text(f'#!/bin/sh\nfor last; do :; done\necho {version} > "$last"\n')  # the last argument is the library
        compiler.chmod(0o755)
        assert compiled._compiled((str(compiler),)).read_text() == f"{version}\n"


def test_the_caller_goes_on_only_after_every_thread_has_ended():
    """Or C would write into memory that is freed when the caller is interrupted."""
    ended = []

    def work(part: int, first: int, end: int) -> None:
        if part == 0:
            raise KeyboardInterrupt
        time.sleep(0.2)
        ended.append(part)

    with pytest.raises(KeyboardInterrupt):
        share(work, range(5), 2)
    assert sorted(ended) == [1, 2, 3]


@needs_compiler
def test_a_token_that_the_base_does_not_have_is_refused():
    sampler = InProcessSampler(adapt(llama()), Numbers(), 0)
    with pytest.raises(BaseModelError, match="token 512, the base has 512"):
        sampler.generate([Request("3 512", 0, 1, ("t",))], 8, 1.0, "")


@needs_compiler
def test_a_decoder_is_for_the_pools_of_one_stream():
    model = prepare(adapt(llama()))
    assert not isinstance(model, str)
    cache, panel = NativeDecoder(model, 5, 20, 1).cache, model.functions.panel()
    capacity = -(-20 // panel) * panel  # of a response: whole panels of keys
    numbers, _ = cache.add_prompts([3, 17])
    cache.add_rows([numbers[0]] * 4 + [numbers[1]])
    cache.rows[4] = range(5)
    cache.keep_rows(np.array([4, 1]))
    assert cache.rows[[1, 4, 5]].tolist() == [[17, 3], [4, 1], [capacity] * 2] and len(cache._free) == 3
