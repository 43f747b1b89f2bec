"""`populora replay`: children of folders and of runs are bred again to the byte, and what differs is told."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

from populora.cli.main import main
from populora.core.config import Config, EvolutionConfig, LoraConfig, PopulationConfig
from populora.engine.model.bank import LoraBank
from populora.runs.directory import new_run
from populora.runs.metrics_log import write_step
from populora.runs.step_record import Evolution
from populora.training.culling import Interval
from populora.training.evolution import evolve
from populora.training.population import initial_population

WEIGHTS, SETTINGS, RECORD = "adapter_model.safetensors", "adapter_config.json", "lineage.json"


@pytest.fixture
def child(make_folder, tmp_path) -> Path:
    """A child of the folders a and b."""
    for seed, name in enumerate("ab"):
        make_folder(name, seed)
    assert main(["breed", "a", "b", "--operator", "x1", "--strength", "drop=0.4", "--seed", "5", "-o", "child"]) == 0
    return tmp_path / "child"


def replayed(capsys, *arguments: str) -> tuple[int, str]:
    """Exit code and what was printed, on one line."""
    capsys.readouterr()
    code = main(["replay", *arguments])
    return code, " ".join("".join(capsys.readouterr()).split())


def test_a_bred_folder_is_equal_to_the_byte_from_anywhere(child, tmp_path, monkeypatch, capsys):
    before = {path.name: path.read_bytes() for path in child.iterdir()}
    code, output = replayed(capsys, "child")
    assert code == 0 and "child = x1(../a, ../b) bit-identical" in output and output.endswith("1 of 1 bit-identical")
    monkeypatch.chdir("/")
    assert replayed(capsys, str(child))[0] == 0
    shutil.copytree(tmp_path, tmp_path.with_name("together"))  # parents and child move together
    assert replayed(capsys, str(tmp_path.with_name("together") / "child"))[0] == 0
    assert {path.name: path.read_bytes() for path in child.iterdir()} == before


@pytest.mark.slow
def test_another_process_with_another_number_of_threads_breeds_the_same_bytes(child):
    again = [sys.executable, "-m", "populora.cli.main", "replay", "child"]
    done = subprocess.run(again, check=False, env={**os.environ, "OMP_NUM_THREADS": "3"}, capture_output=True, text=True)
    assert (done.returncode, "bit-identical" in done.stdout) == (0, True), done.stderr


def test_parents_that_were_moved_can_be_given(child, tmp_path, capsys):
    (tmp_path / "a").rename(tmp_path / "old")
    code, output = replayed(capsys, "child")
    assert code == 2 and "the parent 'child/../a' of 'child' is not there: say where it is now (`--parents A [B]`)" in output
    assert replayed(capsys, "child", "--parents", "old", "b")[0] == 0
    code, output = replayed(capsys, "child", "--parents", "old")
    assert code == 2 and "'child' has 2 parent(s), got 1" in output


def test_a_parent_that_was_changed_is_named(child, tmp_path, capsys):
    tensors = load_file(tmp_path / "b" / WEIGHTS)
    save_file({key: tensor + 1 for key, tensor in tensors.items()}, tmp_path / "b" / WEIGHTS)
    code, said = replayed(capsys, "child")
    assert code == 2 and "'child/../b' is not the parent of 'child'" in said and "It was changed since" in said


def test_changed_weights_settings_and_records_are_reported(child, capsys):
    whole = {name: (child / name).read_bytes() for name in (WEIGHTS, SETTINGS, RECORD)}
    tensors = load_file(child / WEIGHTS)
    key = sorted(tensors)[0]
    save_file({**tensors, key: tensors[key] + 0.5}, child / WEIGHTS, metadata={"format": "pt"})
    code, output = replayed(capsys, "child")
    assert code == 1 and f"differs; {WEIGHTS}: other bytes" in output
    (child / WEIGHTS).write_bytes(whole[WEIGHTS])
    (child / SETTINGS).write_text(json.dumps(json.loads(whole[SETTINGS]) | {"lora_dropout": 0.1}))
    code, output = replayed(capsys, "child")
    assert code == 1 and f"{SETTINGS}: not the" in output and WEIGHTS not in output
    record = json.loads(whole[RECORD])
    (child / RECORD).write_text(json.dumps(record | {"seed": 6, "versions": record["versions"] | {"torch": "1.0"}}))
    code, output = replayed(capsys, "child")
    assert code == 1 and "norm_ratio: " in output and f"{WEIGHTS}: other bytes" in output
    assert "torch 1.0, now 2." in output and "other versions may breed other bytes" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a"], "'a' has no lineage.json: only what `populora breed` wrote"),
        (["nowhere"], "'nowhere' is not a PEFT adapter"),
        (["run", "--parents", "a"], "--parents are of a bred folder"),
        (["child", "--member", "T0"], "--member selects from a run, but 'child' is none"),
        ([], "PATH"),
    ],
)
def test_what_cannot_be_replayed_is_one_message(child, arguments, message, assert_refused):
    with new_run(Path("run"), CONFIG, {}):
        pass
    assert_refused(["replay", *arguments], message)


CONFIG = Config(
    steps=40, seed=3, population=PopulationConfig(4, 4), lora=LoraConfig(rank=4, alpha=8.0),
    evolution=EvolutionConfig(cull_fraction=0.5, operators=("m1", "m2", "m3", "m4", "x1", "x2", "x3", "x4")),
)  # fmt: skip


def write_run(folder: Path, make_record, config: Config = CONFIG) -> None:
    """A run of three steps whose members are trained by noise; children are born at steps 10 and 30, and one step has none."""
    bank = LoraBank([{"model.layers.0.self_attn.q_proj": (8, 8), "model.layers.0.self_attn.v_proj": (8, 6)}], 8, 4, 8.0)
    bank.initialise(config.seed)
    population, generator = initial_population(config), torch.Generator().manual_seed(0)
    with new_run(folder, config, {}):
        for step in (10, 20, 30):
            bank.master += 0.1 * torch.randn(bank.master.shape, generator=generator)
            children, parents = [], {}
            if step != 20:
                population, children, parents, _ = evolve(population, bank, config, step, Interval({}, {}))
            evolution = Evolution(tuple(child.lineage for child in children), parents)
            write = partial(bank.write_adapters, slots=parents, base="tiny", targets=("q_proj", "v_proj"))
            write_step(folder, make_record(step, evolution=evolution), write)


def test_every_child_of_a_run_is_equal_to_the_byte(tmp_path, make_record, capsys):
    write_run(tmp_path / "run", make_record)
    code, said = replayed(capsys, str(tmp_path / "run"))
    assert code == 0 and said.endswith("8 of 8 bit-identical") and "differs" not in said
    for step in ("step_00010", "step_00030"):
        assert any((tmp_path / "run" / "steps" / step / "parents").iterdir())
    assert not (tmp_path / "run" / "steps" / "step_00020" / "parents").exists()


def test_one_place_of_a_run(tmp_path, make_record, capsys):
    write_run(tmp_path / "run", make_record)
    children = pq.read_table(tmp_path / "run" / "steps" / "step_00010" / "children.parquet").to_pylist()
    member = children[0]["member"]
    code, said = replayed(capsys, str(tmp_path / "run"), "--member", member)
    assert code == 0 and f"{member}#1" in said and not any(f" {child['member']}#" in said for child in children[1:])
    code, said = replayed(capsys, str(tmp_path / "run"), "--member", "T9")
    assert code == 2 and "--member is 'T9': expected one of" in said and member in said


def test_a_child_that_differs_is_told_with_the_versions_that_changed(tmp_path, make_record, capsys, monkeypatch):
    write_run(tmp_path / "run", make_record)
    path = tmp_path / "run" / "steps" / "step_00030" / "children.parquet"
    table = pq.read_table(path)
    changed = table.set_column(table.column_names.index("fingerprint"), "fingerprint", [["0" * 64] * table.num_rows])
    pq.write_table(changed, path)
    monkeypatch.setattr("populora.core.installed.version", lambda package: "99.0")
    code, said = replayed(capsys, str(tmp_path / "run"))
    assert code == 1 and "4 of 8 bit-identical" in said and "fingerprint:" in said and "now 99.0: other versions" in said


def test_parents_that_were_not_kept_or_are_damaged_are_named(tmp_path, make_record, capsys):
    write_run(tmp_path / "without", make_record, replace(CONFIG, evolution=replace(CONFIG.evolution, keep_parents=False)))
    code, said = replayed(capsys, str(tmp_path / "without"))
    assert code == 2 and "step_00010' has no folder 'parents'" in said and "evolution.keep_parents = true" in said
    write_run(tmp_path / "run", make_record)
    path = min((tmp_path / "run" / "steps" / "step_00010" / "parents").iterdir()) / "adapter_model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-8])
    code, output = replayed(capsys, str(tmp_path / "run"))
    assert code == 2 and "adapter_model.safetensors'" in output and "damaged or cut off" in output
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    code, output = replayed(capsys, str(tmp_path / "run"))
    assert code == 2 and "is not the parent of" in output
