"""Pretraining: a build that was killed and went on gives the bytes of an undisturbed one; loss weights; schedule."""

import dataclasses
import json
import platform

import numpy as np
import pytest
import torch
from experiments.tiny_base import build as building
from experiments.tiny_base.build import build
from experiments.tiny_base.corpus import draw_shard
from experiments.tiny_base.data import PretrainConfig, Stage, corpus_digest, mixture_of, shard_batches, tokenised
from experiments.tiny_base.mixtures import GUESSING, MIXTURES, REASONING, SETTLED
from experiments.tiny_base.pretrain import learning_rate, loss_of, new_model, pretrain, start_from
from experiments.tiny_base.recipes import RECIPES
from experiments.tiny_base.tokenizer import build_tokenizer, vocabulary_size

from populora.core.config import BaseConfig
from populora.core.errors import RunDirectoryError
from populora.engine.model.loading import base_folder, load_base

STAGE = Stage(4e-3, (("short", 1), ("final", 1)), decay_shards=1)
SMALL = PretrainConfig(
    hidden=32, layers=1, heads=2, kv_heads=1, feed_forward=32, stages=(STAGE,), shard_documents=24, batch_tokens=1024, warmup_steps=2
)  # fmt: skip


class Stop(Exception):
    pass


def _stop(line: dict) -> None:
    raise Stop


@pytest.mark.thorough
def test_going_on_after_a_stop_gives_the_same_weights(tmp_path):
    whole = pretrain(SMALL, tmp_path / "whole")
    with pytest.raises(Stop):
        pretrain(SMALL, tmp_path / "stopped", progress=_stop)
    resumed = pretrain(SMALL, tmp_path / "stopped")
    for left, right in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(left, right)


@pytest.mark.thorough
def test_workers_share_the_batches_of_one_recipe(tmp_path):
    """One worker and two take the same steps on the same tokens; their sums differ by rounding alone."""
    logs = []
    for workers in (1, 2):
        pretrain(
            dataclasses.replace(SMALL, stages=(Stage(4e-3, (("short", 1),), 1),), batch_tokens=4096, workers=workers),
            tmp_path / str(workers),
        )
        logs.append(json.loads((tmp_path / str(workers) / "training_log.jsonl").read_text()))
    assert logs[0]["step"] == logs[1]["step"] and logs[0]["tokens"] == logs[1]["tokens"]
    assert logs[0]["loss"] == pytest.approx(logs[1]["loss"], abs=2e-4)


@pytest.mark.thorough
def test_a_checkpoint_of_another_recipe_is_refused(tmp_path):
    with pytest.raises(Stop):
        pretrain(SMALL, tmp_path, progress=_stop)
    with pytest.raises(RunDirectoryError, match="weight_decay"):
        pretrain(dataclasses.replace(SMALL, weight_decay=0.5), tmp_path)


def test_a_damaged_checkpoint_is_named_and_left_alone(tmp_path):
    (tmp_path / "checkpoint.pt").write_bytes(b"half a checkpoint")
    with pytest.raises(RunDirectoryError, match=r"checkpoint.pt' is damaged"):
        pretrain(SMALL, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint.pt"]


@pytest.mark.thorough
def test_a_disk_that_refuses_the_checkpoint_is_one_message_from_the_worker(tmp_path):
    (tmp_path / "checkpoint.pt.part").mkdir()  # where it is written aside
    with pytest.raises(RunDirectoryError, match=r"^cannot write .*checkpoint.pt': Is a directory"):
        pretrain(SMALL, tmp_path)


@pytest.mark.thorough
def test_a_disk_that_refuses_the_finished_base_is_one_message_and_the_training_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(building, "HELD_OUT_PER_CELL", 1)
    monkeypatch.setattr(building, "SEEDS_PER_TYPE", 4)
    (tmp_path / "out").write_text("a file where the folder should be")
    with pytest.raises(RunDirectoryError, match=r"^cannot write .*out'"):
        build(SMALL, tmp_path / "work", tmp_path / "out")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "model.safetensors").mkdir()
    with pytest.raises(RunDirectoryError, match=r"^cannot write .*full'"):
        build(SMALL, tmp_path / "work", tmp_path / "full")
    lines = (tmp_path / "work" / "training_log.jsonl").read_bytes()
    card = (build(SMALL, tmp_path / "work", tmp_path / "base") / "README.md").read_text()
    assert (tmp_path / "work" / "training_log.jsonl").read_bytes() == lines, "nothing was trained again"
    assert "Qwen2-architecture" in card and "{" not in card.split("```")[0]
    model, tokenizer = load_base(BaseConfig(path=str(tmp_path / "base")))
    assert model.num_parameters() < 50_000 and len(tokenizer) == len(build_tokenizer())


def test_weights_are_full_on_responses_light_on_prompts_and_zero_on_padding():
    tokenizer = build_tokenizer()
    think = tokenizer("<think>")["input_ids"][0]
    for tokens, weights in shard_batches(dataclasses.replace(SMALL, stages=(Stage(4e-3, (("reasoning", 9),), 1),)), 0):
        for row, weight in zip(tokens, weights, strict=True):
            end = int(np.flatnonzero(row == tokenizer.eos_token_id)[0])
            start = int(np.flatnonzero(row == think)[-1]) + 1
            proposer = row[0] == tokenizer("<propose>")["input_ids"][0]
            assert weight[start : end + 1] == pytest.approx(0.4 if proposer else 1.0) and not weight[end + 1 :].any()
            assert weight[1:start] == pytest.approx(0.03)


@pytest.mark.parametrize("mixture", [REASONING, GUESSING, SETTLED])
def test_pieces_become_the_tokens_of_the_whole_response_each_with_its_weight(mixture):
    tokenizer = build_tokenizer()
    documents = draw_shard(0, 0, 200, mixture)
    for document, row in zip(documents, tokenised(documents, 0.03), strict=True):
        prompt, response = (tokenizer(text)["input_ids"] for text in (document.prompt, document.response))
        assert row.tokens == [*prompt, *response, tokenizer.eos_token_id]
        weights = [weight for text, weight in document.pieces for _ in tokenizer(text)["input_ids"]]
        assert row.weights == [0.0, *[0.03] * (len(prompt) - 1), *weights, weights[-1]]


def test_the_loss_is_the_weighted_mean_of_cross_entropies():
    batch = shard_batches(SMALL, 0)[0]
    model = new_model(SMALL, vocabulary_size(build_tokenizer())).eval()
    tokens, weights = (torch.from_numpy(part) for part in batch)
    with torch.no_grad():
        logprobs = model(tokens).logits[:, :-1].float().log_softmax(-1)
        chosen = logprobs.gather(-1, tokens[:, 1:, None]).squeeze(-1)
        expected = -(chosen * weights[:, 1:]).sum() / weights[:, 1:].sum()
        assert float(loss_of(model, batch, float(weights.sum()), torch.device("cpu"))) == pytest.approx(float(expected), rel=1e-5)


TWO = dataclasses.replace(
    SMALL, stages=(Stage(1.0, (("short", 2), ("final", 8)), 4), Stage(0.5, (("searching", 2), ("finished", 2)), 2)), warmup_steps=10
)  # fmt: skip


def test_every_stage_warms_up_holds_and_falls_to_zero():
    assert learning_rate(TWO, 0, 0.0) == pytest.approx(0.1)
    assert learning_rate(TWO, 50, 5.9) == 1.0
    assert learning_rate(TWO, 90, 8.0) == pytest.approx(0.5)
    assert learning_rate(TWO, 99, 9.999) == pytest.approx(0.0, abs=1e-3)
    assert learning_rate(TWO, 4, 10.0) == pytest.approx(0.25)
    assert learning_rate(TWO, 50, 12.0) == 0.5
    assert learning_rate(TWO, 90, 14.0) == 0.0


def test_phases_follow_each_other_through_the_stages():
    names = {id(mixture): name for name, mixture in MIXTURES.items()}
    phases = [names[id(mixture_of(TWO, index))] for index in range(TWO.shards)]
    assert phases == ["short"] * 2 + ["final"] * 8 + ["searching"] * 2 + ["finished"] * 2


@pytest.mark.thorough
def test_a_stage_begins_with_fresh_optimisers_also_after_a_stop(tmp_path):
    config = dataclasses.replace(SMALL, stages=(STAGE, dataclasses.replace(STAGE, learning_rate=1e-3)))
    whole = pretrain(config, tmp_path / "whole")
    pretrain(dataclasses.replace(config, stages=(STAGE,)), tmp_path / "first")
    saved = torch.load(tmp_path / "first" / "checkpoint.pt", weights_only=True)
    saved["config"] |= dataclasses.asdict(config) | {"corpus": corpus_digest(config)}
    saved["optimizers"] = []  # nothing of them may be needed
    torch.save(saved, tmp_path / "first" / "checkpoint.pt")
    for left, right in zip(whole.parameters(), pretrain(config, tmp_path / "first").parameters(), strict=True):
        assert torch.equal(left, right)


def test_a_base_of_two_languages_starts_with_the_weights_of_the_first():
    both = RECIPES["both"]
    base, tokenizer = load_base(BaseConfig())
    model = new_model(both, vocabulary_size(build_tokenizer(both.languages)))
    new_rows = model.get_input_embeddings().weight.detach().clone()[len(tokenizer) :]
    start_from(model, both.start)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    tokens = torch.tensor([tokenizer("<solve><code_o>```python\ndef f(x):\n    return x + 1\n```\n")["input_ids"]])
    with torch.no_grad():
        assert torch.allclose(model.eval()(tokens).logits[..., : len(tokenizer)], base(tokens).logits[..., : len(tokenizer)], atol=1e-5)
    assert torch.equal(model.get_input_embeddings().weight[len(tokenizer) :], new_rows)
    assert torch.equal(model.model.layers[2].mlp.up_proj.weight, base.model.layers[2].mlp.up_proj.weight)


@pytest.mark.slow
def test_the_recipe_of_the_shipped_base_draws_the_same_corpus_as_ever():
    recipe = json.loads((base_folder(BaseConfig()) / "recipe.json").read_text())
    if recipe["python"].split(".")[:2] == platform.python_version().split(".")[:2]:
        assert corpus_digest(RECIPES["python"]) == recipe["corpus"]
