"""Tabulate the ideas of `protocol.toml` from `measured/ideas/`, and name those that its rule takes once all runs are there.

    python -m benchmarks.claims.ideas       writes ideas.json; `run.py ideas` trains the runs

Before all runs of the finalists are there, ``taken`` is null; before those of the taken ideas together are, so is ``chosen``: what is to
be confirmed. Runs that come later than the choice do not change it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from benchmarks.claims.measures import LAST, MeasuredRun, proposed, read_runs, validation_accuracies, weakest_validity
from benchmarks.claims.protocol import PROTOCOL
from benchmarks.measuring import options, write_results

COLUMNS = {
    "accuracy": "validation accuracy: mean over solvers, of the problems that no teacher of any run proposed (later runs do not count)",
    "least valid": "validity of proposals in the last steps, of the teacher and type that has the lowest",
    "difficulty": "1 - solve rate of valid problems in the last steps",
    "lines": "lines of code of programs proposed in the last steps",
    "sampled": "millions of sampled tokens",
}
"""Column titles and their definitions."""
IDEAS = PROTOCOL["ideas"]
Medians = Mapping[str, Mapping[str, float]]


def main() -> None:
    args = options(__doc__, Path(__file__).parent).parse_args()
    tried, known = read_runs(args.out / "measured/ideas"), read_runs(args.out / "measured")
    references = {name: known.get(name, []) for name in IDEAS["references"]}
    arms = {name: runs for name, runs in references.items() if len(runs) == needed_runs()[name]} | tried  # nobody looks before the last one
    first = [*references, *IDEAS["finalists"]]
    left_out, deciding, everything = (
        proposed((run for arm in names for run in arms.get(arm, ())), "validation") for names in (first, [*first, "together"], arms)
    )
    places = dict.fromkeys(arms, everything) | dict.fromkeys(first, left_out) | {"together": deciding}
    values = {arm: [values_of(run, places[arm]) for run in runs] for arm, runs in arms.items()}
    medians = {
        arm: {name: round(float(np.median([each[name] for each in of_arm])), 4) for name in COLUMNS} for arm, of_arm in values.items()
    }
    counts = {arm: len(runs) for arm, runs in (references | tried).items()}
    names = taken(medians, counts)
    fair = {arm: float(np.median([validation_accuracies([run], deciding).mean() for run in runs])) for arm, runs in arms.items()}
    results = {"columns": COLUMNS, "runs": counts, "left_out": len(left_out), "medians": medians}
    results |= {"taken": names, "chosen": chosen(names, fair, counts)}
    write_results(args.out / "ideas.json", results)


def values_of(run: MeasuredRun, left_out: Sequence[int]) -> dict[str, float]:
    """Compute the columns of a run. ``left_out`` are the places of problems that are not counted."""
    return {
        "accuracy": float(np.mean(validation_accuracies([run], left_out))),
        "least valid": weakest_validity(run),
        "difficulty": float(np.nanmean(run.curves["teacher/difficulty"][-LAST:])),
        "lines": float(np.nanmean(run.curves["teacher/loc"][-LAST:])),
        "sampled": float(np.sum(run.sampled)) / 1e6,
    }


def taken(medians: Medians, counts: Mapping[str, int]) -> list[str] | None:
    """List the finalists that the rule puts together, the best first. None before all their runs are there."""
    needed = needed_runs()
    if any(counts.get(arm, 0) < needed[arm] for arm in [*IDEAS["references"], *IDEAS["finalists"]]):
        return None
    gains = {name: medians[name]["accuracy"] - medians["4t4s"]["accuracy"] for name in IDEAS["finalists"]}
    return [name for name in sorted(gains, key=lambda name: -gains[name]) if gains[name] >= IDEAS["better"]][:3]


def needed_runs() -> dict[str, int]:
    """Count the runs of the references, which are arms of the verdicts, and of each idea."""
    return {name: PROTOCOL["arms"][name]["seeds"] for name in IDEAS["references"]} | dict.fromkeys(IDEAS["arms"], len(IDEAS["seeds"]))


def chosen(names: list[str] | None, accuracy: Mapping[str, float], counts: Mapping[str, int]) -> list[str] | None:
    """Return the ideas to confirm: those taken, all together or the best alone. None before that is known.

    ``accuracy`` is by arm, without what the teachers of the references, of the finalists and of all together proposed.
    """
    if names is None or len(names) < 2:
        return names
    if counts.get("together", 0) < len(IDEAS["seeds"]):
        return None
    return names if accuracy["together"] > accuracy[names[0]] else names[:1]


if __name__ == "__main__":
    main()
