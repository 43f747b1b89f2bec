"""Measure what mixing factors costs where the parents share no basis: held-out accuracy of children of x1, x2 and x4 on the tiny base.

    python -m benchmarks.readings.basis [--seeds 2]      writes basis.json here

The students of a run of 4T+4S without evolution (40 steps) are the parents, two pairs a seed, in both orders. ``shared`` are children of
the students as they are. For ``foreign`` the second parent is written in the basis of its own singular vectors, as each child of m1, m3 and
x3 is: its delta is the same. Accuracy is greedy, over the 648 problems of the suite, without training. ``basis_cosine`` is between the A of
two parents. x2 does not mix factors and is there for comparison.
"""

import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.measuring import machine, options, write_results

from populora import Adapter, Config, breed, load_adapter, load_config, train
from populora.core.types import Role
from populora.training.evaluation import evaluate_if_due
from populora.training.loop import build_run

OPERATORS, PAIRS = ("x1", "x2", "x4"), ((0, 1), (1, 0), (2, 3), (3, 2))

Row = dict[str, Any]


def main() -> None:
    parser = options(__doc__, Path(__file__).with_name("basis.json"))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=40)
    args = parser.parse_args()
    about = {"machine": machine("populora", "torch"), "steps": args.steps}
    rows = [row for seed in range(args.seeds) for row in measure(seed, args.steps)]
    table: dict[str, Any] = {}
    for group in dict.fromkeys(row["group"] for row in rows):
        accuracies = [row["accuracy"] for row in rows if row["group"] == group]
        table[group] = {"mean": round(fmean(accuracies), 4), "standard_error": round(stdev(accuracies) / len(accuracies) ** 0.5, 4)}
    write_results(args.out, {**about, "accuracy": table, "rows": rows})


def measure(seed: int, steps: int) -> list[Row]:
    """Return a row for the base, for each parent and for each child."""
    preset = load_config("tiny_4t4s")
    config = replace(preset, seed=seed, steps=steps, evolution=replace(preset.evolution, every=0))
    with tempfile.TemporaryDirectory() as folder:
        train(config, Path(folder, "run"), verbose=False)
        students = [load_adapter(Path(folder, "run", "adapters", f"S{index}")) for index in range(4)]
    rows: list[tuple[Row, Adapter]] = [({"group": "parents"}, student) for student in students]
    for first, second in PAIRS:
        foreign, _ = breed([students[second]], "m1", seed=seed, refactor="balanced", epsilon=1e-4)
        for basis, mate in (("shared", students[second]), ("foreign", foreign)):
            for operator in OPERATORS:
                child, lineage = breed([students[first], mate], operator, seed=seed)
                about = {"basis_cosine": round(lineage.basis_cosine or 0.0, 3), "norm_ratio": round(lineage.norm_ratio, 3)}
                rows.append(({"group": f"{operator}, {basis} basis", "parents": [first, second], **about}, child))
    accuracies = evaluate(config, [adapter for _, adapter in rows])
    return [{"seed": seed, **about, "accuracy": round(accuracy, 4)} for (about, _), accuracy in zip(rows, accuracies, strict=True)]


def evaluate(config: Config, adapters: list[Adapter]) -> list[float]:
    """Return the held-out accuracy of each adapter."""
    population = replace(config.population, teachers=1, students=len(adapters))
    with build_run(replace(config, population=population)) as run:
        students = run.population.role(Role.STUDENT)
        for student, adapter in zip(students, adapters, strict=True):
            run.bank.load(student.slot, adapter)
        run.sync_weights()
        accuracies = evaluate_if_due(run, config.steps)
        return [accuracies[f"{student.id}/all"] for student in students]


if __name__ == "__main__":
    main()
