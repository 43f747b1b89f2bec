"""Go on after the loss of members, whose learner's machine is gone: back to the newest checkpoint, and on from there."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from populora.core.errors import MembersLost
from populora.runs.checkpoint import checkpoint_steps, load_checkpoint, missing_checkpoint
from populora.runs.metrics_log import truncate_logs
from populora.training.run import Run, restore

MAX_LOSSES = 3
"""How often a run goes back to the same checkpoint."""
Result = TypeVar("Result")


def in_spite_of_losses(run: Run, folder: Path, remark: Callable[[str], None], losses: Counter[int], action: Callable[[], Result]) -> Result:
    """Return what ``action`` returns. Where members are lost in it, go back to the newest checkpoint and repeat it.

    ``losses`` counts them by the checkpoint's step. Raises `MembersLost` after more than `MAX_LOSSES` at one.
    """
    lost = False
    while True:
        try:
            if lost:
                _go_back(run, folder)
            return action()
        except MembersLost as loss:
            lost, step = True, checkpoint_steps(folder)[-1]
            losses[step] += 1
            if losses[step] > MAX_LOSSES:
                raise MembersLost(
                    f"{loss}. It has happened {losses[step]} times since step {step}: Ray's logs may tell why. "
                    "`populora resume` goes on from that step"
                ) from loss
            remark(f"{loss}: the run goes back to its checkpoint of step {step}")


def _go_back(run: Run, folder: Path) -> None:
    """Put the run, and its logs, where its newest checkpoint is."""
    checkpoint = load_checkpoint(folder)
    if checkpoint is None:
        raise missing_checkpoint(folder, None)
    restore(run, checkpoint)
    run.sync_weights()
    truncate_logs(folder, run.step, run.config)
