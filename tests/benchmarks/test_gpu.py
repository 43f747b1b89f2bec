"""The GPU benchmark: it runs end to end without a GPU and says so, judges its goals, and counts FLOPs as torch does."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return importlib.import_module("gpu")


@pytest.mark.slow
def test_without_a_gpu_it_runs_at_toy_size_and_claims_nothing(gpu, tmp_path):
    gpu.main(["--rounds", "1", "--out", str(tmp_path / "gpu.json")])
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert found["gpu"] is None and found["note"].startswith("no GPU figure exists yet")
    assert [(goal["measured"], goal["met"]) for goal in found["goals"]] == [(None, None)] * 3
    toy = found["shapes"]["toy"]
    assert set(toy["training"]) == {f"checkpointing {kind}, 256 tokens" for kind in ("none", "mlp", "layer")}
    assert set(toy["decoding"]["16 rows"]) == {"base only", "8 adapters", "16 adapters", "speeds"}


def test_the_committed_result_has_figures_of_a_gpu_or_says_that_there_are_none(gpu):
    found = json.loads((FOLDER / "speed" / "gpu.json").read_text())
    assert (found["gpu"] is None) == ("note" in found)
    assert found["goals"] == gpu.goals(found)


def measured(training: float, utilisation: float, decoding: float) -> dict:
    case = {"8 adapters": {"model_flop_utilisation": {"nominal": utilisation}}, "speeds": {"8 adapters / 1 adapter": {"median": training}}}
    better = {"8 adapters": {"model_flop_utilisation": {"nominal": 0.1}}, "speeds": {"8 adapters / 1 adapter": {"median": 1.1}}}
    steps = {"speeds": {"8 adapters / base only": {"median": decoding}}}
    shape = {"training": {"a": case, "b": better, "c": "does not fit into memory"}, "decoding": {"a": steps}}
    return {"gpu": {"nominal_tflops": 989.0}, "shapes": {"Qwen2.5-7B": shape}}


def test_goals_are_met_or_missed(gpu):
    assert [goal["met"] for goal in gpu.goals(measured(0.98, 0.46, 0.9))] == [True, True, True]
    missed = gpu.goals(measured(0.9, 0.4, 0.8))
    assert [(goal["measured"], goal["met"]) for goal in missed] == [(0.9, False), (0.4, False), (0.8, False)]


def test_a_case_that_does_not_fit_is_named_and_other_failures_are_raised(gpu):
    def fail(error: Exception) -> None:
        raise error

    assert gpu.card.attempt(lambda: fail(torch.OutOfMemoryError())) == "does not fit into memory"
    with pytest.raises(RuntimeError, match="illegal memory access"):
        gpu.card.attempt(lambda: fail(RuntimeError("illegal memory access")))


def test_flops_are_those_that_torch_counts(gpu):
    """But for attention, which torch counts as if it were not causal, and for the first layer, whose input needs no gradient."""
    plan, rows = gpu.card.TOY, 16
    base = plan.bases["toy"]
    adapted = gpu.card.adapted_model(plan, base, "none")
    step = gpu.card.packing.learn(adapted, gpu.card.batch(list(range(rows)), row=plan.row))

    def product(into: torch.Size, left: torch.Size, right: torch.Size, **options: object) -> int:
        return 2 * left.numel() * right[-1]

    in_place = {torch.ops.aten.addmm_: product, torch.ops.aten.baddbmm_: product}  # torch leaves them out
    with FlopCounterMode(display=False, custom_mapping=in_place) as counter:
        step()
    counted = sum(flops for op, flops in counter.get_flop_counts()["Global"].items() if "attention" not in str(op))
    hidden, layers, _, heads, kv_heads = base.widths
    attention = 12 * layers * hidden * rows * plan.row * (plan.row + 1) / 2
    outputs = hidden + 2 * hidden * kv_heads // heads
    first = 2 * rows * plan.row * (hidden * outputs + 3 * plan.rank * hidden)
    assert counted == gpu.card.training_flops(base, plan.rank, rows, plan.row) - attention - first
