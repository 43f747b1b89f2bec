"""Whole runs on the shipped base: deterministic, killable at any moment, both arms, and what they leave behind."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import pytest
import torch
from peft import AutoPeftModelForCausalLM, PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from populora import selfplay
from populora.analysis.coverage import RANGES
from populora.cli import main
from populora.config import (
    BaseConfig,
    Config,
    EvaluationConfig,
    EvolutionConfig,
    LearnerConfig,
    LoraConfig,
    PopulationConfig,
    SandboxConfig,
    SelfplayConfig,
    to_mapping,
)
from populora.engine.inprocess import InProcessSampler
from populora.engine.loading import base_folder
from populora.errors import AdapterEffectError, PopuloraError, RunDirectoryError, SandboxUnavailableError
from populora.lora.linear import AdaptedModel
from populora.lora.packing import Group, pack
from populora.lora.peft_format import load_adapter
from populora.rng import stream
from populora.runlog.checkpoint import load_checkpoint
from populora.runlog.directory import locked
from populora.runlog.journal import TIMINGS, read_log
from populora.runlog.records import read_table
from populora.training import prepared, resume, seeded, train
from populora.types import TASK_TYPES

PACKAGE = Path(selfplay.__file__).parent
SMALL = Config(
    seed=5, steps=4, threads=1, keep_checkpoints=2,
    lora=LoraConfig(rank=4, alpha=8.0),
    population=PopulationConfig(teachers=2, students=2),
    selfplay=SelfplayConfig(
        prompts_per_type=1, samples_per_prompt=3, rho_samples=3, max_prompt_tokens=256, max_response_tokens=96, buffer_size=64, seeds=16
    ),
    learner=LearnerConfig(learning_rate=1e-3),
    evolution=EvolutionConfig(every=2),
    evaluation=EvaluationConfig(every=2, problems_per_type=2),
)  # fmt: skip


def toml_of(config: Config) -> str:
    """Settings as TOML: JSON's scalars and lists are TOML's."""
    nested = to_mapping(config)
    lines = [f"{name} = {json.dumps(value)}" for name, value in nested.items() if not isinstance(value, dict)]
    for table, values in nested.items():
        if isinstance(values, dict):
            lines += [f"[{table}]", *(f"{name} = {json.dumps(value)}" for name, value in values.items())]
    return "\n".join(lines) + "\n"


class Silent:
    def phase(self, name):
        pass

    def step(self, record, metrics):
        pass

    def close(self, summary):
        pass


def contents(folder: Path) -> dict[str, bytes]:
    """All bytes of a run that must be equal for equal seeds: everything but times and the lock."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in ("timings.jsonl", "lock"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    train(SMALL, folder, Silent())
    return folder


def test_the_same_seed_gives_the_same_bytes(undisturbed, tmp_path):
    train(SMALL, tmp_path / "again", Silent())
    assert contents(tmp_path / "again") == contents(undisturbed)


def test_another_seed_gives_another_run(undisturbed, tmp_path):
    train(replace(SMALL, seed=6, steps=1), tmp_path / "other", Silent())
    assert read_log(tmp_path / "other")[0] != read_log(undisturbed)[0]


def test_a_stopped_run_goes_on_to_the_same_bytes(undisturbed, tmp_path):
    asked = iter([False, True])
    summary = train(SMALL, tmp_path / "run", Silent(), stop=lambda: next(asked, True))
    assert (summary.stopped, summary.step) == (True, 1)
    resume(tmp_path / "run", Silent())
    assert contents(tmp_path / "run") == contents(undisturbed)


BASELINE = replace(SMALL, population=PopulationConfig(single_agent=True), checkpoint_every=2)
CROSSING = replace(
    SMALL, population=PopulationConfig(teachers=3, students=3), checkpoint_every=2,
    evolution=EvolutionConfig(every=2, operators=("x1", "x2", "x3", "x4")),
)  # fmt: skip


def test_a_stop_between_two_checkpoints_leaves_one_of_its_own(tmp_path):
    train(replace(BASELINE, checkpoint_every=3), tmp_path / "run", Silent(), stop=iter([False, True]).__next__)
    found = load_checkpoint(tmp_path / "run")
    assert found and found.step == 1


class Crash(Exception):
    pass


class Crashing(Silent):
    """A display at which the run dies after a step is logged for which no checkpoint is due."""

    def step(self, record, metrics):
        if record.step == 3:
            raise Crash


@pytest.mark.parametrize("config", [BASELINE, CROSSING], ids=["baseline", "crossovers"])
def test_a_run_that_died_goes_on_to_the_same_bytes_in_every_arm(config, tmp_path):
    train(config, tmp_path / "undisturbed", Silent())
    with pytest.raises(Crash):
        train(config, tmp_path / "run", Crashing())
    assert len(read_log(tmp_path / "run")) == 3
    resume(tmp_path / "run", Silent())
    assert contents(tmp_path / "run") == contents(tmp_path / "undisturbed")


@pytest.mark.parametrize("writes", [8, 25, 40])
def test_a_disk_that_fills_up_stops_the_run_and_loses_nothing(undisturbed, tmp_path, monkeypatch, writes):
    left = iter(range(writes))

    def fill(descriptor):
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("populora.runlog.files.os.fsync", fill)
        with pytest.raises(RunDirectoryError, match="free some space"):
            train(SMALL, tmp_path / "run", Silent())
    resume(tmp_path / "run", Silent())
    assert contents(tmp_path / "run") == contents(undisturbed)


def test_a_damaged_checkpoint_is_named_and_after_its_removal_the_older_one_gives_the_same_bytes(undisturbed, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder)
    newest = max((folder / "checkpoints").iterdir())
    (newest / "state.json").write_bytes(b"{}")
    with pytest.raises(RunDirectoryError, match=newest.name):
        resume(folder, Silent())
    shutil.rmtree(newest)
    resume(folder, Silent())
    assert contents(folder) == contents(undisturbed)


def test_what_cannot_be_restored_leaves_the_run_as_it_was(undisturbed, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder)
    shutil.rmtree(max((folder / "checkpoints").iterdir()))  # the log goes beyond what is left
    before = contents(folder)
    monkeypatch.setattr("populora.analysis.coverage.RANGES", RANGES + 1.0)
    with pytest.raises(RunDirectoryError, match="tessellation"):
        resume(folder, Silent())
    assert contents(folder) == before


def test_adapters_that_a_power_cut_emptied_are_written_again(undisturbed, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder)
    (folder / "adapters" / "T0" / "adapter_model.safetensors").write_bytes(b"")
    (folder / "adapters" / ".T1.half").mkdir()  # what a kill left
    (folder / "adapters" / ".DS_Store").write_bytes(b"")  # what it did not
    resume(folder, Silent())
    (folder / "adapters" / ".DS_Store").unlink()
    assert contents(folder) == contents(undisturbed)


def test_a_run_that_another_process_writes_is_left_alone(undisturbed, tmp_path):
    shutil.copytree(undisturbed, tmp_path / "run")
    before = contents(tmp_path / "run")
    with locked(tmp_path / "run"), pytest.raises(RunDirectoryError, match="in use"):
        resume(tmp_path / "run", Silent())
    assert contents(tmp_path / "run") == before
    (tmp_path / "new").mkdir()
    with locked(tmp_path / "new"), pytest.raises(RunDirectoryError, match="in use"):
        train(SMALL, tmp_path / "new", Silent())
    assert contents(tmp_path / "new") == {}


@pytest.mark.slow
def test_after_ctrl_c_in_a_terminal_a_run_goes_on_to_the_same_bytes(undisturbed, tmp_path):
    """As a terminal sends it: to the sandbox processes too."""
    (tmp_path / "small.toml").write_text(toml_of(SMALL))
    command = [sys.executable, "-m", "populora.cli", "train", str(tmp_path / "small.toml"), "--out", str(tmp_path / "run")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while process.poll() is None and not (tmp_path / "run" / "metrics.jsonl").exists():
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130 and f"`populora resume {tmp_path / 'run'}` goes on" in said
    assert subprocess.run([*command[:3], "resume", str(tmp_path / "run")], capture_output=True, check=False).returncode == 0
    assert contents(tmp_path / "run") == contents(undisturbed)


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
    short = replace(SMALL.selfplay, max_response_tokens=48)  # some proposals are cut off: invalid ones are paid too
    train(replace(SMALL, steps=3, selfplay=short), tmp_path / "run", Silent())
    monkeypatch.undo()
    assert not [(kind.__name__, item.name) for kind in sections for item in fields(kind) if (kind, item.name) not in read]


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_bytes(undisturbed, tmp_path):
    folder, chance = tmp_path / "run", stream(0, "kills")
    pace = sum(line["seconds/step"] for line in read_log(undisturbed, TIMINGS)) / SMALL.steps
    code = "import sys; from tests_e2e_entry import main; main(sys.argv[1])"
    (tmp_path / "tests_e2e_entry.py").write_text(
        "import importlib.util, pathlib\n"
        f"spec = importlib.util.spec_from_file_location('e2e', {str(Path(__file__))!r})\n"
        "e2e = importlib.util.module_from_spec(spec); spec.loader.exec_module(e2e)\n"
        "def main(folder):\n"
        "    folder = pathlib.Path(folder)\n"
        "    (e2e.resume(folder, e2e.Silent()) if (folder / 'config.json').exists() else e2e.train(e2e.SMALL, folder, e2e.Silent()))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    kills = 0
    for _ in range(40):
        process = subprocess.Popen([sys.executable, "-c", code, str(folder)], env=environment)
        started = len(read_log(folder)) if folder.exists() else 0
        while process.poll() is None and not _moved(folder, started):
            time.sleep(0.02)
        time.sleep(pace * chance.uniform(0.0, 1.0))  # into any phase of the next step
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            continue
        assert process.returncode == 0
        break
    assert kills >= 1
    assert contents(folder) == contents(undisturbed)


def _moved(folder: Path, started: int) -> bool:
    """Whether the process has logged a step of its own, so that every kill costs something and the test ends."""
    return (folder / "metrics.jsonl").exists() and len(read_log(folder)) > started


def test_an_exported_member_finds_its_base_by_itself(undisturbed, tmp_path):
    assert main(["export", str(undisturbed), "--member", "S1", "-o", str(tmp_path / "s1")]) == 0
    exported = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "s1")
    base = AutoModelForCausalLM.from_pretrained(base_folder(BaseConfig()))
    member, tokens = PeftModel.from_pretrained(base, undisturbed / "adapters" / "S1"), torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        assert torch.equal(exported(tokens).logits, member(tokens).logits)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
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


def test_members_are_evaluated_before_children_replace_them(tmp_path, monkeypatch):
    births, evaluate = {}, selfplay.held_out_accuracy

    def spy(run):
        births[run.step + 1] = {member.lineage.born for member in run.population.members}
        return evaluate(run)

    monkeypatch.setattr(selfplay, "held_out_accuracy", spy)
    train(replace(SMALL, steps=3), tmp_path / "run", Silent())
    assert {child["born"] for child in read_table(tmp_path / "run", "children").to_pylist()} == {2}
    assert births == {1: {0}, 2: {0}, 3: {0, 2}}


def test_rewards_on_record_follow_the_equations(undisturbed):
    proposals = read_table(undisturbed, "proposals").to_pylist()
    attempts = read_table(undisturbed, "attempts").to_pylist()
    assert {row["reward"] for row in attempts} <= {1.0, -0.5, -1.0}
    for row in proposals:
        own = [a["correct"] for a in attempts if a["problem_id"] == row["problem_id"] and a["step"] == row["step"] and not a["filled"]]
        if row["rejection"]:
            assert row["reward"] == -1.0
        else:
            rho = sum(own) / len(own)
            assert row["rho"] == pytest.approx(rho) and row["reward"] == pytest.approx(0.0 if rho in (0.0, 1.0) else 1.0 - rho)


def test_the_baseline_is_the_same_step_with_one_agent(tmp_path):
    config = replace(SMALL, steps=2, population=PopulationConfig(single_agent=True), evaluation=EvaluationConfig())
    train(config, tmp_path / "run", Silent())
    proposals, attempts = (read_table(tmp_path / "run", name).to_pylist() for name in ("proposals", "attempts"))
    assert {row["author"] for row in proposals} == {"A0"} == {row["student"] for row in attempts}
    assert not read_table(tmp_path / "run", "children").num_rows
    assert load_adapter(tmp_path / "run" / "adapters" / "A0").rank == 4


@pytest.mark.parametrize("member", ["T0", "S1"])
def test_peft_loads_the_members_and_gives_our_log_probabilities(undisturbed, member):
    folder = base_folder(BaseConfig())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("<solve><code_o>```python\ndef f(x):\n    return x + 1\n```\n```input\n3\n```\n<think></think><answer>")["input_ids"]
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder), undisturbed / "adapters" / member)
    with torch.inference_mode():
        theirs = model(torch.tensor([ids])).logits[0].log_softmax(-1)[:-1].gather(-1, torch.tensor(ids[1:])[:, None])[:, 0]
        adapted = AdaptedModel(AutoModelForCausalLM.from_pretrained(folder), SMALL.lora.targets, 1, 4, 8.0)
        adapted.bank.load(0, load_adapter(undisturbed / "adapters" / member))
        ours, _ = adapted.logprobs(pack([Group(0, tuple(ids[:1]), (tuple(ids[1:]),))], adapted.device))
    assert not adapted.bank.untrained(0)
    assert float((ours - theirs).abs().max()) < 1e-5


def test_settings_are_recorded_with_the_run(undisturbed):
    facts = json.loads((undisturbed / "run.json").read_text())
    assert facts["sandbox"] in ("full", "standard") and len(facts["base_sha256"]) == 64


@pytest.mark.parametrize("fact", ["base_sha256", "held_out_sha256"])
def test_a_resume_on_another_base_or_suite_is_refused(undisturbed, tmp_path, fact):
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder)
    facts = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**facts, fact: "0" * 64}))
    before = contents(folder)
    with pytest.raises(RunDirectoryError, match=fact):
        resume(folder, Silent())
    assert contents(folder) == before


def test_an_update_without_effect_stops_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr("populora.learner.learner.adamw_step", lambda *arguments: None)
    with pytest.raises(AdapterEffectError, match="had no effect"):
        train(replace(SMALL, steps=2), tmp_path / "run", Silent())


def test_a_sampler_that_missed_an_update_stops_the_run(tmp_path, monkeypatch):
    sampled = InProcessSampler.generate

    def stale(sampler, requests, *arguments):
        answers = sampled(sampler, requests, *arguments)
        if requests[0].key[0] != "canary":  # what the canary asks after the update
            return answers
        return [[replace(one, logprobs=tuple(value + 1e-3 for value in one.logprobs)) for one in group] for group in answers]

    monkeypatch.setattr(InProcessSampler, "generate", stale)
    with pytest.raises(AdapterEffectError, match="sampler and learner must agree"):
        train(SMALL, tmp_path / "run", Silent())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"evaluation": EvaluationConfig(every=2, problems_per_type=217)}, "evaluation.problems_per_type is 217"),
        ({"selfplay": replace(SMALL.selfplay, max_prompt_tokens=5)}, "max_prompt_tokens"),
        ({"selfplay": replace(SMALL.selfplay, max_response_tokens=500)}, "context"),
        ({"selfplay": replace(SMALL.selfplay, seeds=500, buffer_size=1000)}, "selfplay.seeds"),
        ({"evolution": EvolutionConfig(operators=("m99",))}, "m99"),
        ({"lora": LoraConfig(targets=("no_proj",))}, "no_proj"),
        ({"base": BaseConfig(path="/nonexistent/base")}, "/nonexistent/base"),
        ({"base": BaseConfig(device="toaster")}, "toaster"),
        ({"base": BaseConfig(device="cuda:99")}, "cuda:99"),
        ({"base": BaseConfig(prompts="azr")}, "max_prompt_tokens"),
    ],
)
def test_what_cannot_work_is_refused_in_one_sentence(change, said, tmp_path):
    with pytest.raises(PopuloraError, match=said):
        train(replace(SMALL, **change), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_without_sandbox_layers_nothing_begins_unless_the_risk_is_accepted_and_recorded(tmp_path, monkeypatch):
    found = {layer: (layer == "limits", "for this test") for layer in ("namespaces", "landlock", "seccomp", "limits")}
    monkeypatch.setattr("populora.sandbox.layers.probe_layers", lambda bubblewrap: found)
    with pytest.raises(SandboxUnavailableError, match=r"at least the 'standard' sandbox.*sandbox\.allow_weak = true"):
        train(SMALL, tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()
    train(replace(SMALL, steps=1, sandbox=SandboxConfig(allow_weak=True)), tmp_path / "run", Silent())
    assert json.loads((tmp_path / "run" / "run.json").read_text())["sandbox"] == "weak"


def test_ids_are_unique_in_the_buffer(tmp_path):
    with prepared(SMALL) as run:
        seeded(run)
        ids = [problem.id for task in TASK_TYPES for problem in run.buffer.problems(task)]
        assert len(set(ids)) == len(ids)
