"""The probes of the check that the sampler has the learner's adapters."""

from types import SimpleNamespace

from populora.core.config import Config
from populora.training import sync
from populora.training.buffer import ProblemBuffer


def test_without_any_problem_the_probe_is_the_identity(monkeypatch):
    config, probes = Config(), list[str]()
    buffer = ProblemBuffer(1, config.task_types)
    run = SimpleNamespace(config=config, buffer=buffer, solve_prompt=lambda problem: problem.id, learner=None, sampler=None, bank=None)
    monkeypatch.setattr(sync, "check_adapter_sync", lambda learner, sampler, bank, prompts, slots: probes.extend(prompts))
    sync.check_sync(run, [])  # type: ignore[arg-type]
    assert probes == ["identity-code_o"]
