"""The code for CUDA on a device that is not there (`pretended_cuda`): the CPU's results, nothing on the wrong device, no needless waits."""

import dataclasses
import math
from collections import Counter
from pathlib import Path

import pytest
import torch
from pretended_cuda import PretendedCuda, on_cpu, without_compiler
from small_models import random_qwen2, random_rows, randomise

import populora
from populora.core.config import LearnerConfig
from populora.core.types import Request
from populora.engine.learning.learner import InProcessLearner
from populora.engine.model import flex
from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.sampling.decoders import EagerDecoder, TorchDecoder
from populora.engine.sampling.graph_decoder import GraphDecoder
from populora.engine.sampling.inprocess import InProcessSampler

SLOTS = 3
CONFIG = LearnerConfig(micro_batch_tokens=150, base_kl=0.1)
PROMPTS = ("def f(x):\n    return x", "def g(a, b):\n    return a * b")
DOUBLE = {"token_sampling.inverse_cdf", "learner._backward", "learner.accumulate", "decoders.sample"}
"""Where float64 is meant: sums over a vocabulary or a batch, and the uniform numbers."""
MIXED = {"segments._loop_outer", "segments._grouped_outer", "linear.forward_rows", "linear.backward_rows", "linear.weighted_rows"}
"""Where float32 is meant beside bfloat16: the bank's gradients, and each token's alpha / rank if members differ in it."""
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


@pytest.fixture
def pretended(monkeypatch) -> PretendedCuda:
    without_compiler(monkeypatch)
    return PretendedCuda()


def adapted_on(device: str, dtype: torch.dtype = torch.float32, vocabulary: int = 96, **options) -> AdaptedModel:
    base = random_qwen2(vocab_size=vocabulary, hidden_size=64, max_position_embeddings=192)
    made = randomise(AdaptedModel(base.to(device, dtype), ("q_proj", "v_proj", "up_proj"), SLOTS, 4, 8.0, **options))
    made.bank.ranks[:] = torch.tensor([4, 2, 4])
    return made


def updated(adapted: AdaptedModel, config: LearnerConfig = CONFIG) -> dict:
    return InProcessLearner(adapted, config, agreement=math.inf).update(random_rows(0, {0: 2, 1: 3, 2: 2}, 20))


@pytest.mark.parametrize("checkpointing", ["none", "mlp", "layer"])
def test_an_update_is_that_of_the_cpu(pretended, checkpointing):
    expected, stats = adapted_on("cpu"), []
    stats.append(updated(expected))
    with pretended:
        adapted = adapted_on("cuda", checkpointing=checkpointing)
        stats.append(updated(adapted))
    torch.testing.assert_close(on_cpu(adapted.bank.master), expected.bank.master, rtol=1e-4, atol=1e-5)
    for slot, update in stats[0].items():
        assert dataclasses.astuple(stats[1][slot]) == pytest.approx(dataclasses.astuple(update), rel=1e-3, abs=1e-6)


SENT_BY_A_MICRO_BATCH = Counter({"packing.pack": 10, "flex.of_tokens": 6, "segments.build": 2, "learner._columns": 3})
"""Of the member and of the bare base: ids, positions, predictors, targets and last tokens, what each token sees, the segments' ends. Then
slots, old log-probabilities and advantages."""


@pytest.mark.slow
@pytest.mark.parametrize("budget, batches", [(60, 5), (10_000, 1)])
def test_an_update_reads_back_its_sums_its_norms_and_each_step_however_many_micro_batches_it_has(pretended, budget, batches):
    with pretended:
        adapted = adapted_on("cuda")
        pretended.waits.clear()
        pretended.sent.clear()
        updated(adapted, dataclasses.replace(CONFIG, micro_batch_tokens=budget))
    assert pretended.waits == Counter({"learner.accumulate": 1, "learner.norms": 1, "learner.adamw_step": SLOTS})
    once = {"learner.accumulate": 1, "bank.scale": 1}  # the latter by the micro-batch whose members differ in rank
    assert pretended.sent == Counter({name: batches * count for name, count in SENT_BY_A_MICRO_BATCH.items()} | once)


SENT_BY_A_PREFILL = Counter(
    {"packing.pack": 5, "flex.of_tokens": 3, "flex.flex_plan": 1, "segments.build": 1, "bank.scale": 1, "paged._tensor": 2}
)


def assert_sends_of_graphs(pretended: PretendedCuda, draws: int) -> None:
    """Assert that a token's random numbers are all that it sends from memory that is not pinned, unless the rows change."""
    changes = pretended.sent["graph_decoder.__call__"]
    assert pretended.sent == Counter({"decoders.sample": draws, "graph_decoder.__call__": changes}) + SENT_BY_A_PREFILL
    assert pretended.pinned == {"paged.send": 3 * (draws - 1) + 3 * changes}  # tokens, positions, addresses; and pages if those change
    assert 0 < changes < draws / 2


@pytest.mark.slow
@pytest.mark.parametrize("decoder", [EagerDecoder, GraphDecoder])
def test_answers_are_those_of_the_cpu_and_of_a_token_only_the_draw_is_read_back(pretended, tokenizer, monkeypatch, decoder):
    requests = [Request(PROMPTS[slot % 2], slot, 3, ("test", slot)) for slot in range(-1, SLOTS)]

    def answers(adapted: AdaptedModel) -> list[tuple[int, ...]]:
        sampler = InProcessSampler(adapted, tokenizer, seed=7, rows=5)
        if decoder is EagerDecoder:
            monkeypatch.setattr(sampler.decoders, "acquire", lambda rows, max_tokens: EagerDecoder(adapted))
        return [tuple(response.tokens) for responses in sampler.generate(requests, 14, 1.0, "a") for response in responses]

    expected, draws = answers(adapted_on("cpu", vocabulary=len(tokenizer))), Counter[str]()
    draw = TorchDecoder.sample
    monkeypatch.setattr(TorchDecoder, "sample", lambda *given: (draws.update(["draw"]), draw(*given))[1])
    with pretended:
        adapted = adapted_on("cuda", vocabulary=len(tokenizer))
        for counter in (pretended.waits, pretended.sent):
            counter.clear()
        assert answers(adapted) == expected
    assert len(set(expected)) == len(expected) == 12
    assert pretended.waits == {"decoders.sample": 3 * draws.total()}  # tokens, log-probabilities, entropies
    if decoder is GraphDecoder:
        assert_sends_of_graphs(pretended, draws.total())


@pytest.mark.slow
def test_in_bfloat16_only_what_is_summed_or_scaled_is_wider(pretended, tokenizer):
    with pretended:
        adapted = adapted_on("cuda", torch.bfloat16, len(tokenizer))
        updated(adapted)
        InProcessSampler(adapted, tokenizer, seed=7, rows=5).generate([Request(PROMPTS[0], 1, 2, ("test",))], 5, 1.0, "")
    assert set(pretended.mixed) <= MIXED and set(pretended.double) == DOUBLE


def test_an_adapter_comes_from_the_device_in_one_transfer_and_goes_back(pretended):
    expected = adapted_on("cpu").bank
    with pretended:
        bank = adapted_on("cuda").bank
        pretended.waits.clear()
        adapter, state = bank.adapter(1), bank.state([0, 2])
        assert pretended.waits["bank.adapter"] == 1
        bank.load(0, adapter)
        bank.restore(state, [1, 2])
    for name, (a, b) in expected.adapter(1).modules.items():
        assert torch.equal(adapter.modules[name][0], a) and torch.equal(adapter.modules[name][1], b)
    assert torch.equal(on_cpu(bank.master)[1:], expected.master[[0, 2]])
    assert bank.adapter(0).rank == 2


def metrics_of_a_run(folder: Path, steps: int, **base: str) -> list[dict]:
    small = {"prompts_per_type": 1, "rho_samples": 4, "max_response_tokens": 24}
    changes = {"selfplay": small, "evolution": {"every": 1}, "evaluation": {"every": 1, "problems_per_type": 1}, "base": base}
    return populora.train(populora.load_config("tiny", steps=steps, **changes), folder, verbose=False).metrics.to_pylist()


@pytest.mark.thorough
def test_a_run_on_the_device_is_the_run_on_the_cpu(pretended, tmp_path):
    """Proposals, answers, updates, held-out evaluation, children: every metric of a step. In the next, the children play and learn."""
    expected = metrics_of_a_run(tmp_path / "cpu", 2, device="cpu")
    with pretended:
        rows = metrics_of_a_run(tmp_path / "cuda", 2, device="cuda")
    assert rows[0]["evolution/children"] == 2 and rows[0]["held_out/S0/tokens"] > 0
    # Only the first step: Adam's first update is as large for a gradient that is rounding as for any other.
    first, other = ({name: value for name, value in metrics[0].items() if value is not None} for metrics in (rows, expected))
    assert first == pytest.approx(other, rel=1e-3, abs=1e-4, nan_ok=True)
    assert [row["step"] for row in rows] == [1, 2]
    assert set(pretended.double) == DOUBLE


@pytest.mark.thorough
def test_a_run_in_bfloat16_widens_what_an_update_and_sampling_widen(pretended, tmp_path):
    with pretended:
        (row,) = metrics_of_a_run(tmp_path / "run", 1, device="cuda", dtype="bfloat16")
    assert row["held_out/S0/tokens"] > 0
    assert set(pretended.mixed) <= MIXED and set(pretended.double) == DOUBLE


WAITS = (
    lambda x: x[0].item(), lambda x: x[x > 0], lambda x: x.unique(), lambda x: x.nonzero(), lambda x: x.cpu(), lambda x: x.tolist(),
    lambda x: torch.equal(x, x), lambda x: torch.zeros(4).copy_(x), lambda x: bool(x.any()),
)  # fmt: skip


@pytest.mark.parametrize("wait", WAITS)
def test_a_wait_of_the_host_is_noticed(pretended, wait):
    with pretended:
        x = torch.ones(4, device="cuda")
        (x + 1)[[0, 1]].sum()
        assert not pretended.waits
        wait(x)
    assert pretended.waits.total() == 1 and not pretended.double and not pretended.mixed


STRAYS = (
    torch.add, lambda x, stray: stray[x.long()], lambda x, stray: x.index_copy_(0, x.long(), stray),
    lambda x, stray: x.__setitem__(x.long() - 1, stray), lambda x, stray: torch.where(x > 0, x, stray),
    lambda x, stray: flex.kernel(4)(x, x, x, stray),
)  # fmt: skip


@pytest.mark.parametrize("meet", STRAYS)
def test_a_tensor_on_the_cpu_that_meets_one_of_the_device_is_an_error(pretended, meet):
    with pretended, pytest.raises(AssertionError, match=r"of a CUDA tensor and one \(4,\) on the CPU"):
        meet(torch.ones(4, device="cuda"), torch.ones(4))


def test_what_else_a_gpu_would_mind_is_noticed(pretended):
    with pretended:
        x = torch.ones(4, device="cuda")
        x.copy_(torch.ones(4))
        x[[0, 1]] = 2.0
        assert pretended.sent.total() == 2  # values, and a list of indices
        x.double()
        torch.mul(x.bfloat16(), x)
    assert pretended.double.total() == pretended.mixed.total() == 1 and not pretended.waits
