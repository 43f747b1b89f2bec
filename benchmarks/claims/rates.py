"""Choose the learning rates of the claims campaign, from the runs of the pilot and those of the confirmation's agent."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.claims.measures import proposed, read_run, validation_accuracies
from benchmarks.claims.protocol import PROTOCOL, Planned, control_runs, pilot_runs
from benchmarks.measuring import write_results


def chosen_rates(out: Path) -> dict[str, float]:
    """Choose each family's learning rate by the protocol's rule, and write ``pilot.json``. The confirmation's agent is the family
    ``control``, once its runs are there."""
    pilot, control = pilot_runs(), control_runs(ideas_table(out).get("chosen") or ())
    families = {arm: [run for run in pilot if run.arm.startswith(f"pilot/{arm}-")] for arm in PROTOCOL["pilot"]["rates"]}
    if not missing(control, out):
        families["control"] = control
    accuracies = {arm: accuracy_by_rate(runs, out) for arm, runs in families.items()}
    rates = {arm: float(max(by_rate, key=by_rate.__getitem__)) for arm, by_rate in accuracies.items()}
    write_results(out / "pilot.json", {"rule": PROTOCOL["pilot"]["rule"], "accuracy": accuracies, "chosen": rates})
    return rates


def accuracy_by_rate(runs: Iterable[Planned], out: Path) -> dict[str, float]:
    """Compute the mean validation accuracy of the runs of each rate, without what a teacher of any of them proposed."""
    measured = [(f"{run.settings['learner.learning_rate']:g}", read_run(out / "measured" / f"{run.name}.parquet")) for run in runs]
    left_out, by_rate = proposed((run for _, run in measured), "validation"), defaultdict[str, list[float]](list)
    for rate, run in measured:
        by_rate[rate].append(validation_accuracies([run], left_out).mean())
    return {rate: round(float(np.mean(values)), 4) for rate, values in by_rate.items()}


def missing(runs: Sequence[Planned], out: Path) -> list[Planned]:
    return [run for run in runs if not (out / "measured" / f"{run.name}.parquet").exists()]


def ideas_table(out: Path) -> dict[str, Any]:
    """Read what `benchmarks.claims.ideas` wrote; empty before it did."""
    return json.loads((out / "ideas.json").read_text()) if (out / "ideas.json").exists() else {}
