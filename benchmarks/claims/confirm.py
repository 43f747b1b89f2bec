"""Compare the cured population with the agent and with the uncured one, on the held-back suite, from `measured/confirmation/`.

python -m benchmarks.claims.confirm       writes confirmation.json and confirmation.md; `run.py confirmation` trains the runs
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.claims.analyse import compare, shares, summary, table, verdict
from benchmarks.claims.measures import MeasuredRun, Suite, mean_known, read_runs
from benchmarks.claims.protocol import PROTOCOL
from benchmarks.claims.suites import read_suite
from benchmarks.measuring import options, write_results

from populora.evals.comparison import holm

PLAN = PROTOCOL["confirmation"]


def main() -> None:
    args = options(__doc__, Path(__file__).parent).parse_args()
    runs = read_runs(args.out / "measured/confirmation")
    results = confirm(runs, Suite(read_suite("held_back")))
    write_results(args.out / "confirmation.json", results)
    (args.out / "confirmation.md").write_text(table(results["claims"]), encoding="utf-8")


def confirm(runs: Mapping[str, Sequence[MeasuredRun]], suite: Suite) -> dict[str, Any]:
    """Return each comparison with its verdict. Raises `SystemExit` while runs are missing: nobody looks before the last one."""
    missing = {
        each[side] for each in PLAN["comparisons"] for side in ("arm", "against") if len(runs.get(each[side], ())) < len(PLAN["seeds"])
    }
    if missing:
        raise SystemExit(f"the confirmation lacks runs of {', '.join(sorted(missing))}: call benchmarks.claims.run confirmation")
    arms = {
        arm: {"held_back": shares(np.array([mean_known(run.greedy("held_back")) for run in of_arm]), suite.groups)}
        for arm, of_arm in runs.items()
    }
    compared = [compare(arms, each) for each in PLAN["comparisons"]]
    corrected = holm([each["p"] for each in compared])
    titles = ("The cured population is ahead of an agent with the same cure and four times the samples.", "The cure helps.")
    claims = [
        {"id": f"K{number}", "text": text, "p_corrected": p, "verdict": verdict([each], p), "comparisons": [each]}
        for number, (text, p, each) in enumerate(zip(titles, corrected, compared, strict=True), start=1)
    ]
    return {"claims": claims, "means": {arm: summary(measures["held_back"]) for arm, measures in arms.items()}}


if __name__ == "__main__":
    main()
