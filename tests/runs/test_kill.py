"""SIGKILL at random instants while a run writes: what is left can always be resumed, without a step lost or half written."""

import multiprocessing
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from forked import start_method
from written_members import adapters_only

from populora.adapters.adapter import Adapter
from populora.adapters.peft_format import load_adapter
from populora.core.config import Config
from populora.core.rng import stream
from populora.core.types import Matchup
from populora.runs.checkpoint import Checkpoint, checkpoint_steps, link_adapters, load_checkpoint, save_checkpoint
from populora.runs.metrics_log import read_log, truncate_logs, write_step
from populora.runs.step_record import Evolution, StepRecord
from populora.runs.tables import read_table

CONFIG = replace(Config(), checkpoint_every=2, keep_checkpoints=2)


def write_for_ever(folder: Path) -> None:
    """Write steps without a problem, and checkpoints."""
    per_row = "proposals teacher_rewards teacher_advantages rhos attempts student_rewards student_advantages trained"
    empty = dict.fromkeys(f"{per_row} members".split(), ())
    none = {name: {} for name in "updates seconds overlapped tokens coverage held_out".split()}
    plain = {"evolution": Evolution(), "repeats": frozenset(), "domains": ("python",), **none}
    for step in range(1, 10**6):
        matchups = (Matchup("T0", "S0", 0.5, 1 / step, "teacher"),)
        write_step(folder, StepRecord(step=step, matchups=matchups, **empty, **plain))
        if step % 2 == 0:
            tensors = {"x": torch.full((20_000,), float(step))}
            adapters = {"T0": Adapter({"q_proj": (torch.full((2, 4000), float(step)), torch.full((3, 2), float(step)))}, 2, 4.0)}
            state = {"step": step, "pad": "y" * 50_000}
            save_checkpoint(folder, Checkpoint(step, tensors, state), 2, adapters_only(adapters, "base", ("q_proj",)))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_kill_at_any_instant_leaves_a_run_to_resume(tmp_path, seed):
    writer = multiprocessing.get_context(start_method()).Process(target=write_for_ever, args=(tmp_path,))
    writer.start()
    while not checkpoint_steps(tmp_path):
        assert writer.is_alive(), "the writer ended by itself"
        time.sleep(0.01)
    time.sleep(stream(seed, "kill").uniform(0.0, 0.1))
    writer.kill()
    writer.join()
    check_resumable(tmp_path)


def check_resumable(folder: Path) -> None:
    checkpoint = load_checkpoint(folder)
    assert checkpoint and checkpoint.state["step"] == checkpoint.step
    assert torch.equal(checkpoint.tensors["x"], torch.full((20_000,), float(checkpoint.step)))
    linked = load_adapter(folder / "adapters" / "T0").modules["q_proj"][1][0, 0]  # never dangling: of this checkpoint or the one before
    assert float(linked) in (checkpoint.step - 2, checkpoint.step)
    link_adapters(folder)
    assert load_adapter(folder / "adapters" / "T0").fingerprint() == load_adapter(checkpoint.folder / "adapters" / "T0").fingerprint()
    truncate_logs(folder, checkpoint.step, CONFIG)
    expected = list(range(1, checkpoint.step + 1))
    assert [line["step"] for line in read_log(folder)] == expected
    assert [line["matchup/mean_rho"] for line in read_log(folder)] == [1 / step for step in expected]
    assert read_table(folder, "matchups").column("step").to_pylist() == expected
    assert not list((folder / "steps").glob("*.part"))
