"""The benchmark on the tiny base at its smallest size: the files of a grid, its resume, and refusals."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from populora.adapters.operators import OPERATORS
from populora.adapters.operators.breeding import breed_again
from populora.adapters.peft_format import load_adapter
from populora.cli.main import main
from populora.core.config import EngineConfig, EvolutionConfig, LearnerConfig, LoraConfig, SandboxConfig
from populora.core.errors import ConfigError, RunDirectoryError
from populora.core.presets import FOLDER
from populora.core.types import Lineage, TaskType
from populora.evals.retention import grid
from populora.evals.retention.grid import cell_file, parents_file, read_cells, run_grid
from populora.evals.retention.settings import RetentionConfig, check_settings, load_settings, read_variant
from populora.evals.retention.trainer import Trainer
from populora.training.loop import build_run

SMALL = RetentionConfig(
    parents=("code_i", "code_o"),
    seeds=(0,), snapshots=(1, 2), repeated=1, retrain_steps=2, operators=("m4", "x2", "x4 swapped"), parent_prompts=4,
    prompts=4, samples=4, pool=8, initial_problems=6, window=1, checkpoint_every=1,
    max_prompt_tokens=256, max_response_tokens=96, lora=LoraConfig(rank=2, alpha=4.0), engine=EngineConfig(rows=64),
    learner=LearnerConfig(learning_rate=3e-3, micro_batch_tokens=2048), sandbox=SandboxConfig(cpu_seconds=2.0, workers=1),
)  # fmt: skip


def quiet(title, done, steps):
    pass


@pytest.fixture(scope="module")
def tiny_run():
    with build_run(SMALL.run(0, 2)) as run:
        yield run


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("grid")
    run_grid(SMALL, out, quiet)
    return out


@pytest.mark.thorough
def test_a_copy_begins_with_its_parents_answers_and_a_fresh_adapter_with_the_bases(finished):
    cell, later = read_cells(SMALL, finished)
    assert (cell["snapshot"], later["snapshot"]) == (1, 2)
    for first in (cell["initial"], cell["curve"][0]):
        assert first["copy_parent"] == first["parent_1"]
        assert set(first["x2"]) == {"code_i", "code_o"} and set(first["parent_2"]) == {"code_o"}
    assert cell["initial"]["fresh_2"] == cell["initial"]["base"]
    shares = {name: {task: len(counts) for task, counts in tasks.items()} for name, tasks in cell["curve"][0].items()}
    assert shares["m4"] == shares["parent_1"] == {"code_i": 4}
    assert shares["x2"] == shares["fresh_2"] == {"code_i": 2, "code_o": 2}
    assert set(cell["initial"]) == {*shares, "base"}  # the base is attempted once
    assert all(len(counts) == 6 for tasks in cell["initial"].values() for counts in tasks.values())
    assert len(cell["curve"]) == 2 and cell["seconds"] > 0


@pytest.mark.thorough
def test_children_are_bred_by_their_record_from_the_trained_parents_of_the_snapshot(finished):
    cell, _ = read_cells(SMALL, finished)
    assert list(cell["children"]) == ["m4", "copy_parent", "x2", "x4 swapped", "linear_0_5"]
    parents = [(task, load_adapter(finished / "parents" / "seed_0" / "step_00001" / task)) for task in SMALL.parents]
    assert all(any(bool(b.count_nonzero()) for _, b in parent.modules.values()) for _, parent in parents)
    for name, plain in cell["children"].items():
        lineage = Lineage.from_plain(plain)
        chosen = parents[: len(lineage.parents)]
        _, differing = breed_again(lineage, chosen[::-1] if "swapped" in name else chosen)
        assert differing == []
    assert cell["children"]["copy_parent"]["cosines"] == [pytest.approx(1.0)]
    assert cell["children"]["x4 swapped"]["parents"][0].startswith("code_o:")


@pytest.mark.thorough
def test_finished_work_is_not_repeated_and_no_checkpoint_is_left(finished, monkeypatch):
    monkeypatch.setattr(grid, "build_run", lambda config: pytest.fail("there is nothing to do"))
    run_grid(SMALL, finished, quiet)
    assert list(finished.rglob("checkpoints")) == [] and sorted(path.suffix for path in (finished / "cells").iterdir()) == [".json"] * 2


@pytest.mark.thorough
@pytest.mark.parametrize("part", ["children", "parents"])
def test_a_grid_that_is_stopped_resumes_bit_identically(finished, tmp_path, part):
    def stop(title, done, steps):
        if title.startswith(part) and done == 2:
            raise KeyboardInterrupt

    config = replace(SMALL, snapshots=(1, 2))
    with pytest.raises(KeyboardInterrupt):
        run_grid(config, tmp_path, stop)
    assert not cell_file(tmp_path, 0, 1).exists()
    run_grid(config, tmp_path, quiet)
    for file in (parents_file(finished, 0), cell_file(finished, 0, 1), cell_file(finished, 0, 2)):
        again, whole = (json.loads(path.read_text()) for path in (tmp_path / file.relative_to(finished), file))
        assert {**again, "seconds": 0} == {**whole, "seconds": 0}


@pytest.mark.thorough
def test_a_grid_resumes_with_its_own_base_only(finished, tmp_path):
    out = tmp_path / "moved"
    shutil.copytree(finished, out)
    cell_file(out, 0, 2).unlink()
    facts = json.loads((out / "run.json").read_text())
    (out / "run.json").write_text(json.dumps({**facts, "base_sha256": "0" * 64}))
    with pytest.raises(RunDirectoryError, match="expected base_sha256 '000"):
        run_grid(SMALL, out, quiet)


def settings(path: Path, **changed) -> Path:
    lines = (FOLDER / "retention.toml").read_text().splitlines()
    for name, value in changed.items():
        lines = [f"{name} = {value}", *(line for line in lines if not line.startswith(f"{name} = "))]
    path.write_text("\n".join(lines))
    return path


@pytest.mark.slow
def test_the_command_writes_results_table_and_figures_and_resumes_in_its_folder(tmp_path, capsys):
    numbers = {"repeated": 1, "retrain_steps": 1, "parent_prompts": 2, "prompts": 2, "samples": 2, "initial_problems": 2, "window": 1}
    small = {"seeds": "[0]", "snapshots": "[1]", "operators": '["m1", "m1 epsilon=0"]', **numbers, "max_response_tokens": 48}
    file, out = settings(tmp_path / "small.toml", **small), tmp_path / "out"
    assert main(["retention", str(file), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "| m1 svd structured | code_o |" in printed and "| m1 svd structured epsilon=0 | code_o |" in printed
    assert (out / "table.md").read_text() in printed
    results = json.loads((out / "results.json").read_text())
    assert {row["child"] for row in results["summary"]} == {"m1", "m1 epsilon=0", "copy_parent", "linear_0_5"}
    assert results["began_with"]["base_sha256"] and len(results["seconds"]["parents"]) == len(results["seconds"]["cells"]) == 1
    assert results["summary"][0]["initial"][1:] == [None, None]  # one seed has no interval
    figures = {f"{name}.{kind}" for name in ("mutations", "crossovers", "live") for kind in ("svg", "png")}
    assert {path.name for path in (out / "figures").iterdir()} == figures
    recorded = json.loads((out / "config.json").read_text())
    del recorded["engine"]["rows"]  # as if this setting had not existed yet
    (out / "config.json").write_text(json.dumps(recorded))
    assert main(["retention", str(file), "--out", str(out)]) == 0
    other = settings(tmp_path / "other.toml", **{**small, "margin": 0.1})
    assert main(["retention", str(other), "--out", str(out)]) == 2
    assert "holds another experiment" in capsys.readouterr().err


def test_every_step_draws_from_the_pool_of_its_seed(tiny_run):
    source = Trainer(SMALL, tiny_run).draw
    steps = [source(TaskType.CODE_O, 4, (step,)) for step in range(30)]
    assert steps[1] == source(TaskType.CODE_O, 4, (1,)) != steps[2]
    assert {len({problem.id for problem in step}) for step in steps} == {4}
    assert len({problem.id for step in steps for problem in step}) == 8
    assert not {problem.program for problem in steps[0]} & {problem.program for problem in source(TaskType.CODE_I, 8, (0,))}


def test_seeds_have_different_pools_while_the_shipped_problems_last(tiny_run):
    def pool(seed):
        run = replace(tiny_run, config=replace(tiny_run.config, seed=seed))
        return {problem.id for problem in Trainer(SMALL, run).draw(TaskType.CODE_O, SMALL.pool, ("all",))}

    pools = [pool(seed) for seed in range(13)]
    assert len(set().union(*pools[:12])) == 12 * SMALL.pool == 96 and pools[12] == pools[0]


def test_too_few_problems_are_refused_before_any_training(tmp_path):
    (tmp_path / "few.jsonl").write_text("")
    with pytest.raises(ConfigError, match=r"6 problems of code_i are needed at a time, but .*few.jsonl' has 0 that fit"):
        run_grid(replace(SMALL, problems=str(tmp_path / "few.jsonl")), tmp_path, quiet)


def test_the_small_grid_has_the_live_operators_and_the_full_one_all_of_them_as_the_paper():
    small, full = (load_settings(FOLDER / name) for name in ("retention.toml", "retention_full.toml"))
    for config in (small, full):
        assert len(config.seeds) >= 3 and len(config.cells()) == len(config.snapshots) + len(config.seeds) - 1
    assert {child.name for child in small.children()} == {*EvolutionConfig().operators, "copy_parent", "linear_0_5"}
    assert {child.name for child in full.children()} >= {name for name, operator in OPERATORS.items() if operator.in_paper}
    assert (full.snapshots, full.retrain_steps) == ((5, 10, 25, 50, 100), 50)


def test_the_repeated_snapshot_is_the_papers_by_default_and_later_on_the_tiny_base():
    assert RetentionConfig().repeated == 25
    assert [load_settings(FOLDER / name).repeated for name in ("retention.toml", "retention_full.toml")] == [50, 50]


def test_a_variant_is_read_from_its_words():
    mutation, crossover = read_variant("svd_structured epsilon=0.2 refactor=balanced", "revive"), read_variant("x4 swapped", "balanced")
    assert (mutation.name, mutation.strength, mutation.refactor) == ("m1 epsilon=0.2 refactor=balanced", {"epsilon": 0.2}, "balanced")
    assert (crossover.name, crossover.strength, crossover.refactor, crossover.swapped) == ("x4 swapped", {}, "balanced", True)


def test_the_name_of_an_operator_is_no_refactor(monkeypatch):
    operator = replace(OPERATORS["m2"], name="my_refactor")
    monkeypatch.setattr("populora.evals.retention.settings.get_operator", {operator.name: operator}.get)
    assert read_variant("my_refactor", "balanced").operator is operator


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"operators": ("m7",)}, "unknown operator 'm7'"),
        ({"operators": ("",)}, "unknown operator ''"),
        ({"operators": ("m1 epsilom=1",)}, "no strength 'epsilom'. Did you mean 'epsilon'?"),
        ({"operators": ("m1 epsilon",)}, "expected a strength as NAME=VALUE"),
        ({"operators": ("m1 epsilon=-5",)}, "retention: operator 'm1 epsilon=-5'"),
        ({"operators": ("m1 epsilon=1 epsilon=2",)}, "a strength is given twice"),
        ({"operators": ("m1 rotation=cayly",)}, "cayly"),
        ({"operators": ("m6 sigma=0.2",)}, "retention: operator 'm6 sigma=0.2'"),
        ({"operators": ("m1 swapped",)}, "has one parent, so nothing can be swapped"),
        ({"operators": ("m3 refactor=even",)}, "expected one of revive, balanced, got 'even'"),
        ({"operators": ("m2 refactor=balanced",)}, "operator 'm2' splits no singular values"),
        ({"operators": ("m6",)}, "operator 'm6' needs lora.rank 3 or more, got 2"),
        ({"seeds": ()}, "seeds is (): expected distinct"),
        ({"seeds": (1, 1)}, "expected distinct"),
        ({"repeated": 7}, "repeated is 7: expected one of the snapshots"),
        ({"snapshots": (0, 1)}, "expected steps from 1 on"),
        ({"snapshots": (1, 1)}, "expected distinct steps"),
        ({"parents": ("code_i", "code_i")}, "expected different tasks"),
        ({"parents": ("sql_i", "sql_o")}, "expected two of code_f, code_i, code_o, since this benchmark knows Python alone"),
        ({"prompts": 3}, "expected an even number"),
        ({"samples": 1}, "expected 2 or more"),
        ({"margin": 0.0}, "margin is 0.0"),
        ({"recovered_share": 1.5}, "recovered_share is 1.5"),
        ({"window": 3}, "window is 3: expected at most retrain_steps, 2"),
        ({"initial_problems": 0}, "initial_problems is 0: expected 1 or more"),
        ({"pool": 5}, "pool is 5: expected at least prompts, parent_prompts and initial_problems"),
        ({"lora": LoraConfig(rank=2, alpha=4.0, ranks=(1, 2))}, "lora.ranks is set"),
        ({"learner": LearnerConfig(micro_batch_tokens=100)}, "smaller than one row"),
        ({"learner": LearnerConfig(decay_steps=400)}, "learner.decay_steps is set"),
        ({"learner": LearnerConfig(teacher_learning_rate=1e-3)}, "learner.teacher_learning_rate is set"),
    ],
)
def test_an_impossible_grid_is_refused(changed, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        check_settings(replace(SMALL, **changed))


@pytest.mark.parametrize(
    ("text", "message"),
    [("seed = 3", "unknown setting 'seed'. Did you mean 'seeds'"), ("[lora]\nrnk = 3", "'lora.rnk'"), ("seeds = [", "is not valid TOML")],
)
def test_settings_that_cannot_be_read_are_refused(tmp_path, capsys, text, message):
    file = tmp_path / "s.toml"
    file.write_text(text)
    assert main(["retention", str(file), "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "out").exists()
