"""Compare the cured population with the agent and with the uncured one, on the held-back suite, from `measured/confirmation/`.

    python -m benchmarks.claims.confirm       writes confirmation.json; `run.py confirmation` trains the runs

Verdicts follow the rule of all claims, and p is corrected over these claims.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.claims.measures import MeasuredRun, Suite, mean_known, read_runs, read_soups
from benchmarks.claims.protocol import PROTOCOL
from benchmarks.claims.suites import read_suite
from benchmarks.claims.verdicts import judge, shares, summary
from benchmarks.measuring import options, write_results

PLAN = PROTOCOL["confirmation"]


def main() -> None:
    args = options(__doc__, Path(__file__).parent).parse_args()
    runs = read_runs(args.out / "measured/confirmation")
    soups = read_soups(args.out / "measured", chain.from_iterable(runs.values()), "confirmation/")
    runs |= {arm.rpartition("/")[2]: [soup.solver for soup in of_arm] for arm, of_arm in soups.items()}
    write_results(args.out / "confirmation.json", confirm(runs, Suite(read_suite("held_back"))))


def confirm(runs: Mapping[str, Sequence[MeasuredRun]], suite: Suite) -> dict[str, Any]:
    """Return each claim with its verdict. Raises `SystemExit` while runs are missing: nobody looks before the last one.

    A claim about soups is incomplete without all of them.
    """
    if missing := lacking(runs):
        raise SystemExit(f"the confirmation lacks runs of {', '.join(missing)}: call benchmarks.claims.run confirmation")
    arms = {
        arm: {"held_back": shares(np.array([mean_known(run.greedy("held_back")) for run in of_arm]), suite.groups)}
        for arm, of_arm in runs.items()
    }
    means = {arm: summary(measures["held_back"]) for arm, measures in arms.items()}
    return {"claims": judge(arms, dict.fromkeys(needed_arms(), len(PLAN["seeds"])), PLAN["claims"]), "means": means}


def lacking(runs: Mapping[str, Sequence[MeasuredRun]]) -> list[str]:
    """Name the arms without all their runs. Soups are made of runs."""
    return [arm for arm in needed_arms() if len(runs.get(arm, ())) < len(PLAN["seeds"]) and not arm.endswith("_soup")]


def needed_arms() -> list[str]:
    return sorted({each[side] for claim in PLAN["claims"] for each in claim["comparisons"] for side in ("arm", "against")})


if __name__ == "__main__":
    main()
