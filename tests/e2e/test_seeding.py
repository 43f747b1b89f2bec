"""A base without a file of seeds fills the buffer by its own proposals, which its runs share, or says that it cannot."""

import fcntl
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from queue import Queue

import pytest

from populora.core.config import BaseConfig, Config, LoraConfig, PopulationConfig, SandboxConfig, SelfplayConfig, TasksConfig
from populora.core.errors import BaseModelError, ConfigError, RunDirectoryError
from populora.core.types import CODE_TYPES, TaskType, task_types
from populora.domains import Domain
from populora.engine.model.loading import base_folder
from populora.tasks.render import load_prompts
from populora.training.buffer import read_problems
from populora.training.loop import build_run
from populora.training.run import Run
from populora.training.seed_buffer import fill_buffer, seed_file
from populora.training.seed_proposals import identity_problem


@pytest.fixture
def config(tmp_path):
    folder = tmp_path / "base"
    shutil.copytree(base_folder(BaseConfig()), folder, ignore=shutil.ignore_patterns("seeds.jsonl", "held_out.jsonl"))
    return Config(
        base=BaseConfig(path=str(folder)), lora=LoraConfig(rank=2, alpha=4.0), population=PopulationConfig(1, 1),
        selfplay=SelfplayConfig(seeds=8, buffer_size=32, max_prompt_tokens=256, max_response_tokens=160),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def seeds(tmp_path, monkeypatch) -> Path:
    """The folder in which this test keeps seeds, of small rounds."""
    monkeypatch.setattr("populora.training.seed_proposals.PROMPTS_PER_ROUND", 12)
    return tmp_path / "seeds"


def refuse_to_sample(run: Run, monkeypatch) -> None:
    monkeypatch.setattr(run.sampler, "generate", lambda *_: pytest.fail("the base proposed again"))


def test_the_base_writes_its_own_seeds(config):
    with build_run(config) as run:
        fill_buffer(run)
        for task in CODE_TYPES:
            problems = run.buffer.problems(task)
            assert len(problems) == 8 and {problem.author for problem in problems} == {"seed"}
            assert all(problem.task is task for problem in problems)
        ids = [problem.id for task in CODE_TYPES for problem in run.buffer.problems(task)]
        assert len(set(ids)) == len(ids)


def test_seeds_of_languages_that_the_run_does_not_have_are_left_alone(config):
    seeds = (base_folder(BaseConfig()) / "seeds.jsonl").read_text().splitlines()
    other = '{"id": "s", "task": "sql_o", "program": "SELECT a FROM t", "shown": [{"inputs": "t(a)\\n1", "output": "1"}], "hidden": []}'
    (Path(config.base.path) / "seeds.jsonl").write_text("\n".join([other, *seeds]))
    with build_run(config) as run:
        fill_buffer(run)
        assert [len(run.buffer.problems(task)) for task in CODE_TYPES] == [8, 8, 8]


def test_a_base_that_cannot_propose_is_named(config, monkeypatch):
    monkeypatch.setattr("populora.training.seed_proposals.MAX_ROUNDS", 2)
    hopeless = replace(config, selfplay=replace(config.selfplay, max_response_tokens=2))
    with build_run(hopeless) as run, pytest.raises(BaseModelError, match="expected 8 valid problems"):
        fill_buffer(run)


def test_a_run_of_another_seed_and_population_begins_with_the_seeds_of_the_first(config, monkeypatch):
    other = replace(config, seed=7, population=PopulationConfig(single_agent=True), sandbox=SandboxConfig(workers=1))
    remarks: list[str] = []
    with build_run(config) as run, build_run(other) as arm:
        first = fill_buffer(run, remarks.append)
        refuse_to_sample(arm, monkeypatch)
        assert fill_buffer(arm, remarks.append) == first and arm.buffer.state() == run.buffer.state()
        file = seed_file(run)
    assert remarks == [
        f"the base proposes its seed problems, once for all its runs: {file}",
        f"seed problems as in earlier runs of this base: {file}",
    ]


@pytest.mark.slow
def test_seeds_depend_neither_on_the_runs_seed_nor_on_their_number(config, seeds, monkeypatch):
    fewer = replace(config, seed=7, selfplay=replace(config.selfplay, seeds=3))
    for folder, runs in (("many", [config]), ("few", [fewer, config])):
        monkeypatch.setenv("POPULORA_SEEDS", str(seeds / folder))
        for settings in runs:
            with build_run(settings) as run:
                fill_buffer(run)
    (many,), (few,) = ([*(seeds / folder).glob("*.jsonl")] for folder in ("many", "few"))
    assert many.name == few.name and many.read_bytes() == few.read_bytes()


def test_a_stop_ends_seeding_after_its_round(config, monkeypatch):
    with build_run(config) as run:
        with pytest.raises(KeyboardInterrupt):
            fill_buffer(run, stop=lambda: True)
        assert len(read_problems(seed_file(run))) > 2


@pytest.mark.slow
def test_seeding_that_was_stopped_goes_on_to_the_same_seeds(config, seeds, monkeypatch):
    many = replace(config, selfplay=replace(config.selfplay, seeds=16, buffer_size=16))  # three rounds
    with build_run(many) as run:
        undisturbed = fill_buffer(run)
        file, rounds = seed_file(run), []
    kept = file.read_bytes()
    file.unlink()
    with build_run(many) as run:
        generate = run.sampler.generate

        def generate_one_round(requests, *arguments):
            if rounds:
                raise KeyboardInterrupt
            rounds.append(len(requests))
            return generate(requests, *arguments)

        monkeypatch.setattr(run.sampler, "generate", generate_one_round)
        with pytest.raises(KeyboardInterrupt):
            fill_buffer(run)
    assert kept.startswith(file.read_bytes()) and 2 < len(read_problems(file)) < kept.count(b"\n")
    with build_run(many) as run:
        assert fill_buffer(run) == undisturbed
    assert file.read_bytes() == kept and [path.name for path in seeds.iterdir()].count(file.name) == 1


def test_other_tasks_prompts_or_limits_have_other_seeds_but_the_way_answers_are_read_does_not(config):
    others = (
        {"tasks": TasksConfig(banned_imports=("os",))},
        {"sandbox": SandboxConfig(cpu_seconds=1.0)},
        {"selfplay": replace(config.selfplay, max_response_tokens=150)},
    )
    with build_run(config) as run, build_run(replace(config, base=replace(config.base, dtype="bfloat16"))) as rounded:
        runs = [
            run,
            rounded,
            replace(run, prompts={"python": load_prompts("azr")}),
            *(replace(run, config=replace(config, **other)) for other in others),
        ]
        files = [seed_file(run) for run in runs]
        assert seed_file(replace(run, config=replace(config, tasks=TasksConfig(extraction="lenient")))) == files[0]
    assert len(set(files)) == len(files)


def test_a_run_that_begins_during_seeding_waits_for_it(config, monkeypatch):
    with build_run(config) as run, build_run(replace(config, seed=7)) as arm, ThreadPoolExecutor(1) as thread:
        remarks: Queue[str] = Queue()
        first = fill_buffer(run)
        file = seed_file(run)
        hidden = file.rename(file.with_suffix(".hidden"))
        refuse_to_sample(arm, monkeypatch)
        with file.with_suffix(".lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            waiting = thread.submit(fill_buffer, arm, remarks.put)
            assert remarks.get(timeout=300) == f"waiting for another run, which makes the seed problems of this base: {file}"
            hidden.rename(file)
        assert waiting.result(timeout=300) == first


def test_a_damaged_file_of_kept_seeds_and_a_folder_that_cannot_be_written_are_named(config, seeds):
    with build_run(config) as run:
        seeds.touch()
        with pytest.raises(RunDirectoryError, match=rf"seed problems cannot be kept in '{seeds}': .*POPULORA_SEEDS"):
            fill_buffer(run)
        seeds.unlink()
        seeds.mkdir()
        seed_file(run).write_text('{"id": "identity')
        with pytest.raises(BaseModelError, match=rf"'{seed_file(run)}', line 1: expected a problem as JSON.*remove it, and the base"):
            fill_buffer(run)


def test_prompts_that_do_not_fit_are_named_before_the_base_writes_anything(config):
    narrow = replace(config, base=replace(config.base, prompts="azr"))
    with build_run(narrow) as run, pytest.raises(ConfigError, match=r"no prompt of code_i .* fits selfplay\.max_prompt_tokens, 256"):
        fill_buffer(run)


def test_the_identity_program_is_stored_once(config):
    roomy = replace(config, selfplay=replace(config.selfplay, buffer_size=512))  # nothing is dropped
    with build_run(roomy) as run:
        fill_buffer(run)
        again = replace(identity_problem(CODE_TYPES[1]), id="again")
        assert not run.buffer.add(again, run.verifier.measures([again])[0].fingerprint)


@pytest.mark.parametrize("bad", ['{"id":', '{"id": "s1", "task": "code_x", "program": "", "shown": [], "hidden": []}'])
def test_a_damaged_file_beside_the_base_is_named_with_its_line(tmp_path, bad):
    good = '{"id": "s0", "task": "code_o", "program": "def f(x): return x", "shown": [], "hidden": []}'
    (tmp_path / "seeds.jsonl").write_text(f"{good}\n{bad}\n")
    with pytest.raises(BaseModelError, match=r"seeds\.jsonl', line 2: expected a problem as JSON"):
        read_problems(tmp_path / "seeds.jsonl")


@pytest.fixture
def sql_seeds(tmp_path, monkeypatch) -> None:
    """Problems in the package of SQL, and none in that of Python."""
    file = tmp_path / "seeds.jsonl"
    shown = {"shown": [{"inputs": "t(a)\n1", "output": "1"}], "hidden": [{"inputs": "t(a)\n2", "output": "2"}]}
    values = [
        {"id": f"{task}-{number}", "task": task, "program": f"SELECT a + {number} FROM t", **shown}  # noqa: S608 - data
        for task in task_types(["sql"]) for number in range(8)
    ]  # fmt: skip
    file.write_text("".join(f"{json.dumps(line)}\n" for line in values))
    monkeypatch.setattr(Domain, "seeds", property(lambda domain: file if domain.name == "sql" else tmp_path / "none"))


@pytest.mark.usefixtures("sql_seeds")
def test_a_domain_that_the_base_does_not_know_brings_its_own_seeds(config, monkeypatch):
    """The base has a file of Python problems alone."""
    shutil.copy(base_folder(BaseConfig()) / "seeds.jsonl", Path(config.base.path))
    with build_run(replace(config, domains=("python", "sql"))) as run:
        refuse_to_sample(run, monkeypatch)
        fill_buffer(run)
        assert {task: len(run.buffer.problems(task)) for task in run.config.task_types} == dict.fromkeys(run.config.task_types, 8)
        assert run.buffer.problems(TaskType("sql_o"))[0].program == "SELECT a + 0 FROM t"


@pytest.mark.usefixtures("sql_seeds")
def test_a_base_proposes_the_seeds_of_those_domains_alone_that_bring_none(config, monkeypatch):
    monkeypatch.setattr("populora.training.seed_proposals.MAX_ROUNDS", 4)
    with build_run(replace(config, domains=("python", "sql"))) as run:
        fill_buffer(run)
        assert {problem.task.domain for problem in read_problems(seed_file(run))} == {"python"}
        assert {task: len(run.buffer.problems(task)) for task in run.config.task_types} == dict.fromkeys(run.config.task_types, 8)
        assert run.buffer.problems(TaskType("sql_o"))[0].program == "SELECT a + 0 FROM t"
        refuse_to_sample(run, monkeypatch)
        fill_buffer(run)


def test_a_base_with_a_file_that_lacks_a_domain_is_named_with_the_domain(config):
    shutil.copy(base_folder(BaseConfig()) / "seeds.jsonl", Path(config.base.path))
    with (
        build_run(replace(config, domains=("python", "sql"))) as run,
        pytest.raises(ConfigError, match="no problem of sql_i: choose"),
    ):
        fill_buffer(run)
