"""Whole runs on the shipped base: both arms, and what they leave behind."""

import json
import sys
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import pytest
import torch
from alignment import moved, tensors_at
from peft import AutoPeftModelForCausalLM, PeftModel
from small_run import SMALL, Silent, contents
from transformers import AutoModelForCausalLM, AutoTokenizer

from populora.adapters.peft_format import load_adapter
from populora.cli.main import main
from populora.core.config import BaseConfig, Config, EvaluationConfig, EvolutionConfig, PopulationConfig
from populora.core.errors import AdapterEffectError, RunDirectoryError
from populora.core.types import CODE_TYPES
from populora.engine.backend import local_backend
from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.model.loading import base_folder
from populora.engine.model.packing import PromptGroup, pack
from populora.engine.sampling.inprocess import InProcessSampler
from populora.runs.metrics_log import read_log
from populora.runs.reader import load_run
from populora.runs.tables import read_table
from populora.tasks.render import load_prompts
from populora.training import step as training_step
from populora.training.loop import build_run, resume, train
from populora.training.seed_buffer import fill_buffer

PACKAGE = Path(training_step.__file__).parents[1]


def test_the_same_seed_gives_the_same_bytes(undisturbed, tmp_path):
    train(SMALL, tmp_path / "again", Silent())
    assert contents(tmp_path / "again") == contents(undisturbed)


def test_members_of_any_kept_step_are_read_by_name(undisturbed):
    run = load_run(undisturbed)
    assert run.members == ["T0", "T1", "S0", "S1"]
    assert all(run.member_folder(name).samefile(undisturbed / "adapters" / name) for name in run.members)
    newest, before = ([load_adapter(run.member_folder(name, step)).fingerprint() for name in run.members] for step in (None, 3))
    assert newest == [run.member(name).fingerprint() for name in run.members] and newest != before
    with pytest.raises(RunDirectoryError, match="has no member 'S2': expected one of S0, S1, T0, T1"):
        run.member_folder("S2")
    with pytest.raises(RunDirectoryError, match="no checkpoint of step 1, but of 3, 4"):
        run.member("S1", step=1)


@pytest.mark.thorough
def test_a_run_does_not_depend_on_the_addresses_of_its_tensors(undisturbed, tmp_path, monkeypatch):
    """Neither of the base's weights, which are mapped from a file, nor of what comes from checkpoints and from NumPy."""
    load = AutoModelForCausalLM.from_pretrained

    def from_pretrained(*args, **kwargs):
        model, info = load(*args, **kwargs)
        for parameter in model.parameters():
            parameter.data = moved(parameter.data, 4)
        return model, info

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", from_pretrained)
    with tensors_at(4):
        train(SMALL, tmp_path / "run", Silent(), stop=iter([False, True]).__next__)
        resume(tmp_path / "run", Silent())
    assert contents(tmp_path / "run") == contents(undisturbed)


@pytest.mark.thorough
def test_a_run_says_that_torch_decodes_and_a_resume_that_it_no_longer_does(tmp_path):
    class Remarks(Silent):
        def remark(self, text):
            remarks.append(text)

    remarks: list[str] = []
    small = replace(SMALL, steps=2, evaluation=EvaluationConfig(every=0))
    train(replace(small, base=replace(small.base, kernels="torch")), tmp_path / "run", Remarks(), stop=iter([False, True]).__next__)
    assert remarks == ['decoding by torch (base.kernels = "torch"), which is several times slower than C']
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert set(facts["computation"]) == {"processor", "decoder", "attention", "products"}
    facts["computation"]["decoder"] = "C (other instructions)"
    (tmp_path / "run" / "run.json").write_text(json.dumps(facts))
    resume(tmp_path / "run", Remarks())
    (remark,) = remarks[1:]
    assert remark.startswith('decoder C (other instructions), now torch (base.kernels = "torch"): the results may differ')


def test_the_threads_of_a_run_are_not_those_of_what_follows():
    before = torch.get_num_threads()
    with local_backend(replace(SMALL, threads=before + 1)):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


@pytest.mark.slow
def test_another_seed_gives_another_run(undisturbed, tmp_path):
    train(replace(SMALL, seed=6, steps=1), tmp_path / "other", Silent())
    assert read_log(tmp_path / "other")[0] != read_log(undisturbed)[0]


@pytest.mark.slow
def test_every_setting_is_read_by_a_run(tmp_path, monkeypatch):
    """Beyond the checks of ``config.py`` itself: no setting is accepted and ignored."""
    sections = [Config, *(type(value) for value in vars(SMALL).values() if is_dataclass(value))]
    read = set()

    def spy(self, name):
        asker = Path(sys._getframe(1).f_code.co_filename)
        if PACKAGE in asker.parents and asker.name != "config.py":
            read.add((type(self), name))
        return object.__getattribute__(self, name)

    for section in sections:
        monkeypatch.setattr(section, "__getattribute__", spy, raising=False)
    load_prompts.cache_clear()
    short = replace(SMALL.selfplay, max_response_tokens=48)  # some proposals are cut off: invalid ones are paid too
    train(replace(SMALL, steps=3, selfplay=short), tmp_path / "run", Silent())
    monkeypatch.undo()
    assert not [(kind.__name__, item.name) for kind in sections for item in fields(kind) if (kind, item.name) not in read]


def test_an_exported_member_finds_its_base_by_itself(undisturbed, tmp_path):
    assert main(["export", str(undisturbed), "--member", "S1", "-o", str(tmp_path / "s1")]) == 0
    exported = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "s1")
    base = AutoModelForCausalLM.from_pretrained(base_folder(BaseConfig()))
    member, tokens = PeftModel.from_pretrained(base, undisturbed / "adapters" / "S1"), torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        assert torch.equal(exported(tokens).logits, member(tokens).logits)


@pytest.mark.slow
def test_a_run_whose_base_is_rounded_more_goes_on_and_the_display_says_so(tmp_path, monkeypatch):
    sampled = InProcessSampler.stream

    def rounded(sampler, *arguments):
        for request, generations in sampled(sampler, *arguments):
            yield request, [replace(each, logprobs=tuple(value + 1.5e-5 for value in each.logprobs)) for each in generations]

    monkeypatch.setattr(InProcessSampler, "stream", rounded)
    display, remarks = Silent(), []
    display.remark = remarks.append
    train(replace(SMALL, steps=1), tmp_path / "run", display)
    assert len(remarks) == 1 and "may differ by 3e-05 nats in the mean instead of 1e-05" in remarks[0]
    monkeypatch.setattr("populora.training.loop.allow_rounding", lambda run, remark: None)
    with pytest.raises(AdapterEffectError, match="sampler and learner must agree within 1e-05"):
        train(replace(SMALL, steps=1), tmp_path / "refused", Silent())


@pytest.mark.gpu
def test_a_run_on_cuda_trains_every_member(tmp_path):
    """Its own guards compare sampler and learner in every step."""
    config = replace(SMALL, steps=2, base=BaseConfig(device="cuda"), evolution=EvolutionConfig(every=0))
    train(config, tmp_path / "run", Silent())
    assert len(read_log(tmp_path / "run")) == 2
    members = [load_adapter(folder) for folder in (tmp_path / "run" / "adapters").iterdir()]
    assert len(members) == 4 and all(any(b.count_nonzero() for _, b in member.modules.values()) for member in members)


def test_matchups_ratings_and_children_are_on_record(undisturbed):
    metrics = read_log(undisturbed)
    assert [line["step"] for line in metrics] == [1, 2, 3, 4]
    children = read_table(undisturbed, "children").to_pylist()
    assert {child["member"][0] for child in children} == {"T", "S"} and {child["born"] for child in children} == {2}
    assert read_table(undisturbed, "matchups").num_rows == 2 * 4
    assert any(line.get(f"rating/mu/{member}", 25.0) != 25.0 for line in metrics for member in ("T0", "T1", "S0", "S1"))
    assert any(name.startswith("held_out/") for name in metrics[1])


def test_children_are_bred_again_to_the_byte(undisturbed, capsys):
    before = contents(undisturbed)
    assert main(["replay", str(undisturbed)]) == 0
    assert "2 of 2 bit-identical" in capsys.readouterr().out and contents(undisturbed) == before


@pytest.mark.slow
def test_members_are_evaluated_before_children_replace_them(tmp_path, monkeypatch):
    births, evaluate = {}, training_step.evaluate_if_due

    def spy(run, step):
        births[step] = {member.lineage.born for member in run.population.members}
        return evaluate(run, step)

    monkeypatch.setattr(training_step, "evaluate_if_due", spy)
    train(replace(SMALL, steps=3), tmp_path / "run", Silent())
    assert {child["born"] for child in read_table(tmp_path / "run", "children").to_pylist()} == {2}
    assert births == {1: {0}, 2: {0}, 3: {0, 2}}


def test_rewards_on_record_follow_the_equations(undisturbed):
    proposals = read_table(undisturbed, "proposals").to_pylist()
    attempts = read_table(undisturbed, "attempts").to_pylist()
    assert {row["reward"] for row in attempts} <= {1.0, -0.5, -1.0}
    for row in proposals:
        correct = [a["correct"] for a in attempts if a["problem_id"] == row["problem_id"] and a["step"] == row["step"] and not a["filled"]]
        if row["rejection"]:
            assert row["reward"] == -1.0
        else:
            rho = sum(correct) / len(correct)
            assert row["rho"] == pytest.approx(rho) and row["reward"] == pytest.approx(0.0 if rho in (0.0, 1.0) else 1.0 - rho)


def counted(folder):
    """Sampled and trained tokens of each step, from the tables, with the updates that were skipped from the log."""
    proposals, attempts = (read_table(folder, name).to_pylist() for name in ("proposals", "attempts"))
    for line in read_log(folder):
        rows = [[row for row in table if row["step"] == line["step"]] for table in (proposals, attempts)]
        sampled = [sum(row["response_tokens"] for row in table) for table in rows]
        trained = [(row["author"], row["response_tokens"]) for row in rows[0] if row["reward"] is not None]
        trained += [(row["student"], row["response_tokens"]) for row in rows[1] if row["trained"]]
        yield line, [*sampled, sum(tokens for member, tokens in trained if not line[f"learner/skipped/{member}"])]


def test_counted_tokens_are_those_of_the_rows_on_record(undisturbed):
    for line, tokens in counted(undisturbed):
        assert [line[f"tokens/{phase}"] for phase in ("propose", "solve", "update")] == tokens and tokens[0]


@pytest.mark.slow
def test_the_baseline_is_the_same_step_with_one_agent(tmp_path):
    config = replace(SMALL, steps=2, population=PopulationConfig(single_agent=True), evaluation=EvaluationConfig())
    train(config, tmp_path / "run", Silent())
    proposals, attempts = (read_table(tmp_path / "run", name).to_pylist() for name in ("proposals", "attempts"))
    assert {row["author"] for row in proposals} == {"A0"} == {row["student"] for row in attempts}
    assert not read_table(tmp_path / "run", "children").num_rows
    assert load_adapter(tmp_path / "run" / "adapters" / "A0").rank == 4
    for line, tokens in counted(tmp_path / "run"):
        assert [line[f"tokens/{phase}"] for phase in ("propose", "solve", "update")] == tokens


def test_peft_loads_the_members_and_gives_our_log_probabilities(undisturbed):
    folder = base_folder(BaseConfig())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("<solve><code_o>```python\ndef f(x):\n    return x + 1\n```\n```input\n3\n```\n<think></think><answer>")["input_ids"]
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder), undisturbed / "adapters" / "T0")
    with torch.inference_mode():
        theirs = model(torch.tensor([ids])).logits[0].log_softmax(-1)[:-1].gather(-1, torch.tensor(ids[1:])[:, None])[:, 0]
        adapted = AdaptedModel(AutoModelForCausalLM.from_pretrained(folder), SMALL.lora.targets, 1, 4, 8.0)
        adapted.bank.load(0, load_adapter(undisturbed / "adapters" / "T0"))
        ours, _ = adapted.logprobs(pack([PromptGroup(0, tuple(ids[:1]), (tuple(ids[1:]),))], adapted.device))
    assert not adapted.bank.untrained(0)
    assert float((ours - theirs).abs().max()) < 1e-5


def test_ids_are_unique_in_the_buffer(tmp_path):
    with build_run(SMALL) as run:
        fill_buffer(run)
        ids = [problem.id for task in CODE_TYPES for problem in run.buffer.problems(task)]
        assert len(set(ids)) == len(ids)
