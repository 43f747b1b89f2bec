"""Three steps of 2T+2S in the shape of Qwen2.5-0.5B, with its vocabulary and the prompts for real models, by both samplers.

What a real model's text brings happens here: prompts of a thousand tokens, tokens that hold the end of a tag and what follows, characters
of several tokens, two ends of text, and responses that are cut off.
"""

from dataclasses import replace

import pytest
from scripted_answers import INPUTS, MESSAGE, in_process, in_vllm
from small_run import SMALL, Silent
from vllm_tests import DEVICE, needs_vllm

from populora.core.config import BaseConfig, EngineConfig, EvaluationConfig, EvolutionConfig, LearnerConfig, TasksConfig
from populora.core.errors import AdapterEffectError
from populora.engine.sampling.vllm import VllmSampler
from populora.evals.benchmarks import BENCHMARKS
from populora.evals.eval_records import Item
from populora.evals.prompts import load_template, render
from populora.runs.metrics_log import read_log
from populora.runs.tables import read_table
from populora.tasks.render import load_prompts
from populora.training.loop import train

LIMIT = 112
"""Tokens of a response; the longest scripted one that ends has fewer."""


def settings(base, **changes):
    selfplay = replace(SMALL.selfplay, samples_per_prompt=3, rho_samples=2, max_prompt_tokens=1536, max_response_tokens=LIMIT)
    return replace(
        SMALL, steps=3, selfplay=selfplay, tasks=TasksConfig(code_f_inputs=INPUTS),
        base=BaseConfig(str(base), device=DEVICE, prompts="azr", kernels="torch"), learner=LearnerConfig(learning_rate=3e-3),
        evolution=EvolutionConfig(every=2), evaluation=EvaluationConfig(every=0), **changes,
    )  # fmt: skip


@pytest.fixture(scope="module")
def ours(qwen, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ours") / "run"
    with in_process(LIMIT):
        train(settings(qwen), folder, Silent())
    return folder


@pytest.fixture(scope="module")
def theirs(qwen, tmp_path_factory):
    folder = tmp_path_factory.mktemp("theirs") / "run"
    with in_vllm(LIMIT):
        train(settings(qwen, engine=EngineConfig(backend="vllm", cache_mb=256)), folder, Silent())
    return folder


def rows(run, name):
    return read_table(run, name).to_pylist()


def test_text_is_read_as_it_was_written_and_cut_off_at_the_limit(ours, tokenizer):
    responses = rows(ours, "proposals") + rows(ours, "attempts")
    endless = [row for row in responses if not row["stopped"]]
    assert len(endless) == 9 and {row["response_tokens"] for row in endless} == {LIMIT} and not any(row["formatted"] for row in endless)
    written = [row for row in responses if row["stopped"]]
    assert all(row["formatted"] for row in written) and {row["text"].endswith("</answer>\n\n") for row in written} == {True, False}
    assert [row["response_tokens"] for row in written] == [len(tokenizer(row["text"])["input_ids"]) + 1 for row in written]  # and the end


def test_proposals_are_valid_and_answers_right_where_they_were_written_so(ours):
    proposals, attempts = rows(ours, "proposals"), rows(ours, "attempts")
    for task in ("code_i", "code_o"):
        verdicts = [(row["valid"], row["rejection"]) for row in proposals if row["task"] == task]
        assert verdicts == [(True, ""), (True, ""), (False, "format"), (True, ""), (True, ""), (False, "error:syntax")] * 3
    assert max(row["prompt_tokens"] for row in proposals) > 900
    valid = [row["problem_id"] for row in proposals if row["task"] == "code_f" and row["valid"]]
    messages = {row["problem_id"]: row["message"] for row in rows(ours, "problems")}
    assert len(valid) >= 9 and all(messages[name].startswith(MESSAGE) for name in valid)
    right = {
        task: [row["correct"] for row in attempts if row["task"] == task and row["formatted"]] for task in ("code_i", "code_o", "code_f")
    }
    assert all(0 < sum(marks) < len(marks) for marks in right.values())


def test_members_learn_and_children_are_born(ours):
    last = read_log(ours)[-1]
    assert last["learner/skipped/teacher"] == last["learner/skipped/student"] == 0.0
    assert len(rows(ours, "children")) >= 1


def test_the_bases_own_chat_template_makes_the_prompts_of_evaluation(tokenizer):
    benchmark, item = BENCHMARKS["humaneval_plus"], Item("HumanEval/0", {"prompt": "def f(x):\n    ..."})
    template = load_template("evalplus_chat", benchmark, load_prompts("azr"))
    question = template.text.replace("{problem}", item.fields["prompt"])
    turn = tokenizer.apply_chat_template([{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True)
    prompt = render(template, benchmark, item, tokenizer)
    assert prompt == turn + template.response
    ids, (start, end) = tokenizer(prompt)["input_ids"], tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])
    assert (ids.count(start), ids.count(end)) == (3, 2), "system, user and assistant; the last turn is open"


@needs_vllm
def test_vllm_gives_every_token_the_log_probability_of_the_learner_after_each_hot_swap(theirs):
    differences = [line[f"learner/max_difference/{member}"] for line in read_log(theirs) for member in ("T0", "T1", "S0", "S1")]
    assert len(differences) == 12 and max(differences) < 1e-3


@needs_vllm
def test_both_samplers_make_the_same_run(ours, theirs):
    for name, columns in (("proposals", ("text", "valid", "rejection", "stopped")), ("attempts", ("text", "correct", "reason", "stopped"))):
        left, right = rows(ours, name), rows(theirs, name)
        assert [[row[column] for column in columns] for row in left] == [[row[column] for column in columns] for row in right]
        assert [row["mean_logprob"] for row in left] == pytest.approx([row["mean_logprob"] for row in right], abs=2e-3)


@needs_vllm
def test_an_adapter_that_does_not_reach_vllm_stops_the_run(qwen, tmp_path, monkeypatch):
    sync = VllmSampler.sync_weights
    monkeypatch.setattr(VllmSampler, "sync_weights", lambda sampler, bank, slots: None if sampler._versions else sync(sampler, bank, slots))
    with in_vllm(LIMIT), pytest.raises(AdapterEffectError):
        train(settings(qwen, engine=EngineConfig(backend="vllm", cache_mb=256)), tmp_path / "run", Silent())
