"""Invalid settings are refused before a run directory exists; a failure during the run stops it."""

import json
from dataclasses import replace

import pytest
from small_run import SMALL, Silent

from populora.core.config import BaseConfig, EvaluationConfig, EvolutionConfig, LearnerConfig, LoraConfig, SandboxConfig
from populora.core.errors import AdapterEffectError, PopuloraError, SandboxUnavailableError
from populora.engine.sampling.inprocess import InProcessSampler
from populora.training.loop import train


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"evaluation": EvaluationConfig(every=2, problems_per_type=217)}, "evaluation.problems_per_type is 217"),
        ({"selfplay": replace(SMALL.selfplay, max_prompt_tokens=5)}, "max_prompt_tokens"),
        ({"selfplay": replace(SMALL.selfplay, max_response_tokens=500)}, "context"),
        ({"selfplay": replace(SMALL.selfplay, seeds=500, buffer_size=1000)}, "selfplay.seeds"),
        ({"evolution": EvolutionConfig(operators=("m99",))}, "m99"),
        ({"lora": LoraConfig(targets=("no_proj",))}, "no_proj"),
        ({"lora": LoraConfig(ranks=(4, 4))}, "lora.ranks has 2 values for 4 members"),
        ({"learner": LearnerConfig(micro_batch_tokens=351)}, "micro_batch_tokens 351 is smaller than one row of selfplay's limits, 352"),
        ({"base": BaseConfig(path="/nonexistent/base")}, "/nonexistent/base"),
        ({"base": BaseConfig(device="toaster")}, "toaster"),
        ({"base": BaseConfig(device="cuda:99")}, "device 'cuda:99' is not available"),
        ({"base": BaseConfig(prompts="azr")}, "max_prompt_tokens"),
    ],
)
def test_what_cannot_work_is_refused_in_one_sentence(change, said, tmp_path):
    with pytest.raises(PopuloraError, match=said):
        train(replace(SMALL, **change), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_without_sandbox_layers_nothing_begins_unless_the_risk_is_accepted_and_recorded(tmp_path, monkeypatch):
    layers = {layer: (layer == "limits", "for this test") for layer in ("namespaces", "landlock", "seccomp", "limits")}
    monkeypatch.setattr("populora.sandbox.layers.probe_layers", lambda bubblewrap: layers)
    with pytest.raises(SandboxUnavailableError, match=r"at least the 'standard' sandbox.*sandbox\.allow_weak = true"):
        train(SMALL, tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()
    train(replace(SMALL, steps=1, sandbox=SandboxConfig(allow_weak=True)), tmp_path / "run", Silent())
    assert json.loads((tmp_path / "run" / "run.json").read_text())["sandbox"] == "weak"


def test_a_sampler_that_missed_an_update_stops_the_run(tmp_path, monkeypatch):
    sampled = InProcessSampler.generate

    def stale(sampler, requests, *arguments):
        answers = sampled(sampler, requests, *arguments)
        if requests[0].key[0] != "sync-check" or requests[0].key[1] == "base":  # the check of adapters after the update
            return answers
        return [[replace(answer, logprobs=tuple(value + 1e-3 for value in answer.logprobs)) for answer in group] for group in answers]

    monkeypatch.setattr(InProcessSampler, "generate", stale)
    with pytest.raises(AdapterEffectError, match="sampler and learner must agree"):
        train(SMALL, tmp_path / "run", Silent())
