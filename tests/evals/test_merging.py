"""Merged adapters are the same models, and a merge that is not is refused."""

from dataclasses import replace

import pytest
import torch
from small_sources import change_settings, completions

from populora.adapters.peft_format import read_folder
from populora.core.config import BaseConfig
from populora.core.errors import ConfigError
from populora.engine.model.loading import load_base
from populora.evals import generate as generation
from populora.evals.benchmarks import BENCHMARKS
from populora.evals.generate import generate, make_eval_plan
from populora.evals.loaded_adapters import merge
from populora.evals.prompts import EvalTask


@pytest.mark.parametrize("rslora", [False, True])
def test_the_merged_weights_are_the_base_plus_the_scaled_delta(make_adapter, tmp_path, rslora):
    folder = make_adapter("mine", 1, rank=4)
    change_settings(folder, use_rslora=rslora)
    base = BaseConfig()
    merge(base, folder, tmp_path / "merged")
    before, after = (load_base(config)[0].state_dict() for config in (base, replace(base, path=str(tmp_path / "merged"))))
    scale = 8.0 / 4**0.5 if rslora else 8.0 / 4
    deltas = {f"{name}.weight": scale * b @ a for name, (a, b) in read_folder(folder).adapter.modules.items()}
    for name, weight in before.items():
        torch.testing.assert_close(after[name], weight + deltas.get(name, 0.0), rtol=0, atol=1e-6)


def test_without_peft_it_is_said_before_anything_is_written(make_adapter, models_of, crux, monkeypatch):
    monkeypatch.setattr(generation, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"takes PEFT, which is not installed: `.* pip install .*peft.*, or evaluate without --merge"):
        make_eval_plan(models_of(make_adapter("mine", 1)), [EvalTask(BENCHMARKS["cruxeval_output"], crux)], merge=True)


def test_merged_models_say_what_their_adapters_say(make_adapter, models_of, crux, tmp_path):
    models = models_of(make_adapter("one", 1), make_adapter("two", 2, rank=2), "tiny")
    tasks = [EvalTask(BENCHMARKS["cruxeval_output"], crux)]
    texts = {}
    for merge_them in (False, True):
        out = tmp_path / f"merge-{merge_them}"
        out.mkdir()
        generate(make_eval_plan(models, tasks, merge_them), out, lambda *_: None)
        texts[merge_them] = [line["completion"] for name in ("one", "two", "base") for line in completions(out, "cruxeval_output", name)]
        assert sorted(path.name for path in out.iterdir()) == ["adapters", "evaluation.json", "generations"]
    same = sum(ours == theirs for ours, theirs in zip(texts[False], texts[True], strict=True))
    assert len(texts[True]) == 9 and same >= 8  # where two tokens are almost equally likely, rounding may choose
