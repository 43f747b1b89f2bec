import json

import pytest
from benchmarks.speed.timed_decoders import TimedDecoders

from benchmarks import roofline
from populora.core.config import Config, LoraConfig
from populora.engine.planning.model_shape import qwen2

WORK = {"prefill": {"FLOP": 4e9, "bytes": 1e9}, "update": {"FLOP": 2e9, "bytes": 3e9}}
LIMITS = {"GFLOP/s": 2.0, "GB/s": 1.0}


@pytest.mark.parametrize(("step", "met"), [(20.0, True), (25.0, False)])
def test_a_step_is_judged_by_the_slower_of_arithmetic_and_memory_in_each_phase(step, met):
    judged = roofline.judge(WORK, LIMITS, [{"step": step, "prefill": 3.0, "update": 12.0}])
    assert judged["least seconds"] == {"prefill": 2.0, "update": 3.0, "step": 5.0}
    assert judged["bound by"] == {"prefill": "FLOP", "update": "bytes"}
    assert {phase: ratio["median"] for phase, ratio in judged["measured / least"].items()} == {
        "prefill": 1.5,
        "update": 4.0,
        "step": step / 5,
    }
    assert judged["bars"]["step"]["met"] is met


def test_flops_are_those_of_each_token_and_a_shared_prompt_is_computed_once():
    shape = qwen2("made up", hidden=8, inner=16, layers=2, heads=2, kv_heads=1, vocabulary=32, tied=True, context=64)
    config = Config(lora=LoraConfig(rank=2, targets=("q_proj",)))
    adapter, prompt, fed = 2 * 2 * (8 + 8), 6, [3, 5]
    pairs = [sum(prompt + place + 0.5 for place in range(count)) for count in fed]
    flops = roofline.phase_flops(config, shape, [(prompt, fed)], [(prompt, fed)])
    assert flops["prefill"] == pytest.approx(2 * prompt * (shape.linear + adapter) + 4 * shape.attention * prompt**2 / 2)
    assert flops["decode"] == pytest.approx(2 * 8 * (shape.linear + adapter) + 2 * 10 * shape.head + 4 * shape.attention * sum(pairs))
    trained = 14 * (4 * shape.linear + 6 * adapter) + 4 * 10 * shape.head + 12 * shape.attention * (prompt**2 / 2 + sum(pairs))
    assert flops["update"] == pytest.approx(trained)


def test_responses_of_one_adapter_to_one_prompt_read_its_keys_together():
    texts = [("T0", (1, 2), (7, 8, 9)), ("T0", (1, 2), (7, 8)), ("S0", (1, 2), (7,))]
    groups = roofline.grouped(texts)
    assert groups == [(2, [2, 1]), (2, [0])]
    read = [
        sum(2 * (place < max(fed)) for place in range(9)) + sum(place + 1 for count in fed for place in range(count)) for _, fed in groups
    ]
    assert [roofline.tokens_read(group) for group in groups] == read


def test_a_timed_decoder_gives_what_the_decoder_gives():
    class Decoder:
        cache, spreads_slots = "cache", False

        def prefill(self, prompts, slots):
            return prompts, slots

        def __call__(self, tokens, slots):
            return tokens, slots

        def sample(self, hidden, temperature, uniforms):
            return hidden, temperature, uniforms

    class Pool:
        def __init__(self):
            self.released = []

        def acquire(self, rows, max_tokens):
            return Decoder()

        def release(self, decoder):
            self.released.append(decoder)

    pool = Pool()
    decoders = TimedDecoders(pool)
    decoder = decoders.acquire(4, 8)
    assert (decoder.cache, decoder.prefill([1], [0]), decoder([1], [0]), decoder.sample(1, 2, 3)) == (
        "cache",
        ([1], [0]),
        ([1], [0]),
        (1, 2, 3),
    )
    decoders.release(decoder)
    assert isinstance(pool.released[0], Decoder)
    assert decoders.spent["prefill"] > 0 and decoders.spent["decode"] > 0


@pytest.mark.thorough
@pytest.mark.parametrize("kernels", ["auto", "torch"])
def test_the_phases_of_a_step_are_measured(tmp_path, kernels):
    roofline.main(["--toy", "--rounds", "1", "--kernels", kernels, "--out", str(tmp_path / "roofline.json")])
    record = json.loads((tmp_path / "roofline.json").read_text())
    seconds = {phase: values["median"] for phase, values in record["seconds"].items()}
    parts = ("prefill", "decode", "rest of the sampler", "update", "wait for verdicts", "rest of the step")
    assert sum(seconds[phase] for phase in parts) == pytest.approx(seconds["step"], abs=0.01)
    assert set(record["measured / least"]) == {"prefill", "decode", "update", "step"} and record["decoder"].startswith("torch") == (
        kernels == "torch"
    )
