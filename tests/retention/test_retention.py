"""The benchmark itself, on the tiny base at its smallest: what is compared, what is kept, what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from populora import cli
from populora.config import EngineConfig, LearnerConfig, LoraConfig, SandboxConfig
from populora.errors import ConfigError
from populora.lora.peft_format import load_adapter
from populora.retention import grid
from populora.retention.grid import cell_file, parents_file, read_cells, run_grid
from populora.retention.settings import RetentionConfig, check_settings, load_settings

CONFIGS = Path(__file__).parents[2] / "configs"
SMALL = RetentionConfig(
    seeds=(0,), snapshots=(1,), repeated=1, retrain_steps=2, operators=("m4", "x2"), parent_prompts=4,
    prompts=4, samples=4, window=1, checkpoint_every=1,
    threads=1, max_prompt_tokens=256, max_response_tokens=96, lora=LoraConfig(rank=2, alpha=4.0), engine=EngineConfig(rows=64),
    learner=LearnerConfig(learning_rate=3e-3, micro_batch_tokens=2048), sandbox=SandboxConfig(cpu_seconds=2.0, workers=1),
)  # fmt: skip


def quiet(title, done, steps, curve):
    pass


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("grid")
    run_grid(SMALL, out, quiet)
    return out


def test_a_copy_begins_with_its_parents_very_answers_and_only_learners_change(finished):
    (cell,) = read_cells(SMALL, finished)
    first = cell["curve"][0]
    assert first["copy_parent"] == first["parent_1"]
    assert set(first["base"]) == {"code_i", "code_o"} and set(first["parent_2"]) == {"code_o"}
    asked = {name: {task: len(counts) for task, counts in own.items()} for name, own in first.items()}
    assert asked["m4"] == asked["parent_1"] == {"code_i": 4}
    assert asked["x2"] == asked["fresh_2"] == {"code_i": 2, "code_o": 2}
    assert asked["base"] == {"code_i": 4, "code_o": 4}
    assert len(cell["curve"]) == 2 and set(cell["children"]) == {"m4", "copy_parent", "x2", "linear_0_5"}
    assert cell["children"]["copy_parent"]["cosines"] == [pytest.approx(1.0)]
    assert len(cell["children"]["x2"]["parents"]) == 2


def test_the_parents_are_kept_as_adapters_that_were_trained(finished):
    kept = [load_adapter(finished / "parents" / "seed_0" / "step_00001" / task) for task in SMALL.parents]
    assert kept[0].fingerprint() != kept[1].fingerprint()
    assert all(any(bool(b.count_nonzero()) for _, b in one.modules.values()) for one in kept)
    assert len(json.loads(parents_file(finished, 0).read_text())["curve"]) == 1


def test_nothing_finished_is_done_again_and_no_checkpoint_is_left(finished, monkeypatch):
    monkeypatch.setattr(grid, "prepared", lambda config: pytest.fail("there is nothing to do"))
    run_grid(SMALL, finished, quiet)
    assert list(finished.rglob("checkpoints")) == []


@pytest.mark.slow
def test_a_grid_that_is_stopped_goes_on_to_the_same_bytes(finished, tmp_path):
    class Stopped(Exception):
        pass

    def stop(title, done, steps, curve):
        if title.startswith("children") and done == 1:
            raise Stopped

    with pytest.raises(Stopped):
        run_grid(SMALL, tmp_path, stop)
    assert not cell_file(tmp_path, 0, 1).exists()
    run_grid(SMALL, tmp_path, quiet)
    again, whole = (json.loads(cell_file(out, 0, 1).read_text()) for out in (tmp_path, finished))
    assert {**again, "seconds": 0} == {**whole, "seconds": 0}


def settings(path: Path, **changed) -> Path:
    lines = (CONFIGS / "retention.toml").read_text().splitlines()
    for name, value in changed.items():
        lines = [line for line in lines if not line.startswith(f"{name} = ")]
        lines.insert(0, f"{name} = {value}")
    path.write_text("\n".join(lines))
    return path


@pytest.mark.slow
def test_the_command_writes_results_table_and_figures_and_goes_on_in_its_folder(tmp_path, capsys):
    numbers = {"repeated": 1, "retrain_steps": 1, "parent_prompts": 2, "prompts": 2, "samples": 2, "threads": 1, "max_response_tokens": 48}
    small = {"seeds": "[0]", "snapshots": "[1]", "operators": '["m1"]', **numbers}
    file, out = settings(tmp_path / "small.toml", **small), tmp_path / "out"
    assert cli.main(["retention", str(file), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "| m1 svd structured | code_i |" in printed and "children of seed 0, step 1: step 1 of 1" in printed
    assert (out / "table.md").read_text() in printed
    results = json.loads((out / "results.json").read_text())
    assert {row["operator"] for row in results["summary"]} == {"m1", "copy_parent", "linear_0_5"}
    assert results["summary"][0]["birth"][1:] == [None, None]  # one seed has no interval
    drawn = {f"{name}.{kind}" for name in ("mutations", "crossovers", "live") for kind in ("svg", "png")}
    assert {path.name for path in (out / "figures").iterdir()} == drawn
    assert cli.main(["retention", str(file), "--out", str(out)]) == 0
    assert "step 1 of 1" not in capsys.readouterr().out
    other = settings(tmp_path / "other.toml", **small, window=2)
    assert cli.main(["retention", str(other), "--out", str(out)]) == 2
    assert "holds another experiment" in capsys.readouterr().err


@pytest.mark.parametrize("file", ["retention.toml", "retention_full.toml"])
def test_the_settings_that_ship_are_possible_and_cover_all_operators(file):
    config = load_settings(CONFIGS / file)
    check_settings(config)
    assert len(config.children()) == 17 and len(config.seeds) >= 3
    assert len(config.cells()) == len(config.snapshots) + len(config.seeds) - 1


def test_the_full_grid_is_the_papers():
    config = load_settings(CONFIGS / "retention_full.toml")
    assert (config.snapshots, config.retrain_steps) == ((5, 10, 25, 50, 100), 50)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seeds": ()}, "seeds is (): expected distinct"),
        ({"seeds": (1, 1)}, "expected distinct"),
        ({"repeated": 7}, "repeated is 7: expected one of the snapshots"),
        ({"snapshots": (0, 1)}, "expected steps from 1 on"),
        ({"parents": ("code_i", "code_i")}, "they need different tasks"),
        ({"prompts": 3}, "expected an even number"),
        ({"samples": 1}, "expected 2 or more"),
        ({"window": 0}, "window is 0"),
        ({"margin": 0.0}, "margin is 0.0"),
        ({"recovered_share": 1.5}, "recovered_share is 1.5"),
        ({"lora": LoraConfig(rank=2, alpha=4.0, ranks=(1, 2))}, "lora.ranks is set"),
        ({"operators": ("m7",)}, "unknown operator 'm7'"),
        ({"learner": LearnerConfig(micro_batch_tokens=100)}, "smaller than one row"),
    ],
)
def test_an_impossible_grid_is_refused(changed, message):
    with pytest.raises(ConfigError, match=message.replace("(", "\\(").replace(")", "\\)")):
        check_settings(replace(SMALL, **changed))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed = 3", "unknown setting 'seed'. Did you mean 'seeds'"),
        ("[lora]\nrnk = 3", "unknown setting 'lora.rnk'"),
        ("seeds = [", "is not valid TOML"),
    ],
)
def test_settings_that_cannot_be_read_are_refused(tmp_path, capsys, text, message):
    file = tmp_path / "s.toml"
    file.write_text(text)
    assert cli.main(["retention", str(file), "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_too_few_problems_are_refused_before_any_training(tmp_path):
    problems = tmp_path / "few.jsonl"
    problems.write_text("")
    with pytest.raises(ConfigError, match="a step needs 4 problems of code_i"):
        run_grid(replace(SMALL, problems=str(problems)), tmp_path / "out", quiet)


def test_an_adapter_that_begins_anew_begins_as_the_bare_base(finished):
    (cell,) = read_cells(SMALL, finished)
    assert cell["curve"][0]["fresh_1"]["code_i"] == cell["curve"][0]["base"]["code_i"]
