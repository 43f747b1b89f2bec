"""Analyse the claims campaign, draw its picture, and fill in the tables of docs/results.md.

    python -m benchmarks.claims.page

What stands between ``<!-- begin NAME -->`` and ``<!-- end -->`` on the page is written here, from results.json, means.csv,
selection.json, ideas.json and confirmation.json; the rest of the page is prose.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.claims import analyse, confirm, draw, ideas, selection
from benchmarks.claims.measures import LAST, MeasuredRun, read_runs, read_suites
from benchmarks.claims.protocol import PROTOCOL
from benchmarks.claims.suites import FOLDER, LEVELS
from benchmarks.measuring import options

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "results.md"
SOLVED = {
    **{f"test/{level}": level for level in LEVELS}, "transfer": "transfer", "weakest": "weakest", "chosen": "chosen", "union": "any",
}  # fmt: skip
"""Measures of the arms' table beside the whole test suite, with the titles of their columns."""
SIGNS = {"+": "+", "-": "−"}
PEAK = 125
"""Of the snapshots, the one after which the mean of most arms is highest. Chosen with the results known, so it exaggerates a fall."""
LOST = 0.1
"""A teacher of whose proposals of a type a smaller share is valid has lost this type (`evolution.broken_valid_rate`)."""


def main() -> None:
    folder = options(__doc__, HERE).parse_args().out
    analyse.main()
    ideas.main()
    selection.main()
    draw.main()
    if not confirm.lacking(read_runs(folder / "measured/confirmation")):
        confirm.main()
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), parts_of(folder)), encoding="utf-8")


def parts_of(folder: Path) -> dict[str, str]:
    """Return the Markdown of each part of the page by its name, from a folder's result files."""
    results, tried, confirmed, selected = (
        json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
        for file in (folder / name for name in ("results.json", "ideas.json", "confirmation.json", "selection.json"))
    )
    base = json.loads((FOLDER / "levels.json").read_text(encoding="utf-8"))["base"]
    return {
        "picture": PICTURE if (folder / "results.png").exists() else "The picture is drawn when all runs of two of its arms are there.\n",
        "claims": claims_table(results["claims"]),
        "measures": "".join(f"- `{name}`: {meaning}.\n" for name, meaning in PROTOCOL["measures"].items()),
        "arms": arms_table(results["runs"], analyse.read_means(folder / "means.csv"), base),
        "progress": progress_table(read_runs(folder / "measured")),
        "selection": selection_table(selected["arms"]),
        "ideas": ideas_table(tried["medians"], tried["runs"]),
        "confirmation": confirmed_tables(confirmed) if confirmed else NONE if tried["chosen"] == [] else WAITS,
    }


NONE = f"No idea was ahead of 4T+4S by {PROTOCOL['ideas']['better']:g}, so none is confirmed.\n"
WAITS = "Not all runs of the confirmation are there.\n"
PICTURE = (
    "![Accuracy on the test suite by steps, by sampled tokens and by CPU minutes, a line an arm, and after the last step by level]"
    "(../benchmarks/claims/results.png)\n"
)


def claims_table(claims: Iterable[Mapping[str, Any]]) -> str:
    """Return a row for each comparison, the verdict at the first of a claim."""
    return table(["", "claim", "verdict", "comparison", "effect [95 %]", "p, corrected"], (row for claim in claims for row in _rows(claim)))


def _rows(claim: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for index, each in enumerate(claim["comparisons"]):
        first = (claim["id"], claim["text"], f"**{claim['verdict']}**") if index == 0 else ("", "", "")
        against = f"− {_named(each['against'])}" if isinstance(each["against"], str) else f"against {each['against']:g}"
        digits = "+.3f" if each.get("accuracy") else "+.2g"
        effect = (
            "{} [{}, {}]".format(*(f"{value:{digits}}" for value in (each["effect"], *each["interval_95"]))) if "effect" in each else "–"
        )
        corrected = f"{claim['p_corrected']:.2g}" if index == 0 and "p_corrected" in claim else ""
        yield *first, f"`{each['measure']}`: {_named(each['arm'])} {against} ({SIGNS[each['sign']]})", effect, corrected


def _named(arm: str) -> str:
    return f"soup of {arm}" if arm in PROTOCOL["soups"] else arm


def arms_table(runs: Mapping[str, Sequence[int]], of_arms: Mapping[str, Any], base: Mapping[str, Any]) -> str:
    """Return a row an arm: its runs, and, where all are there, sampled tokens, what its solvers answer right in per cent, and in how many
    runs a teacher lost a type. The first row is the untrained base."""
    titles = {arm: part["title"] for kind in ("arms", "derived", "soups") for arm, part in PROTOCOL[kind].items()}
    greedy = [100 * np.mean([group["greedy"] for group in base[suite].values()]) for suite in ("test", "transfer")]
    levels = [f"{100 * base['test'][level]['greedy']:.1f}" for level in LEVELS]
    rows = [("", "the untrained base", "", "0", f"{greedy[0]:.1f}", *levels, f"{greedy[1]:.1f}", "", "", "", "")]
    for arm, (made, planned) in runs.items():
        means = of_arms.get(arm, {})
        tokens = f"{means['sampled']['mean']:.1f}" if means else ""
        test = f"{100 * means['test']['mean']:.1f} ± {100 * means['test']['sd']:.1f}" if means else ""
        solved = (f"{100 * means[measure]['mean']:.1f}" if measure in means else "" for measure in SOLVED)
        lost = f"{sum(value < LOST for value in means['least_valid']['values'])}" if "least_valid" in means else ""
        rows.append((f"`{arm}`", titles[arm], f"{made} of {planned}", tokens, test, *solved, lost))
    return table(["arm", "what it is", "runs", "million tokens", "all levels", *SOLVED.values(), "lost a type"], rows)


def progress_table(runs: Mapping[str, Sequence[MeasuredRun]]) -> str:
    """Return rows for each arm that has all its runs, of all problems and of each type: accuracy on the test suite at each snapshot, mean
    and deviation in per cent; the median change from snapshot `PEAK` to the last, and how many runs fall; and the share of answers in
    training that were right, in the first steps and in the last."""
    suites, rows = read_suites(), []
    of_problems = np.array([problem.task for problem in suites["test"].problems])
    for arm in (arm for arm in PROTOCOL["arms"] if draw.is_complete(arm, runs)):
        solved = np.array(draw.progress(runs[arm], suites)[1])  # [runs, snapshots, problems]
        for task in ("", *sorted(set(of_problems))):
            values = 100 * draw.over_levels(np.where(of_problems == task, solved, np.nan) if task else solved, suites)
            cells = [f"{mean:.1f} ± {deviation:.1f}" for mean, deviation in zip(values.mean(0), values.std(0, ddof=1), strict=True)]
            curves = np.array([run.curves[f"student/solve_rate/{task}".rstrip("/")] for run in runs[arm]])
            rates = [f"{100 * np.nanmean(part):.0f}" for part in (curves[:, :LAST], curves[:, -LAST:])]
            fall = values[:, -1] - values[:, PROTOCOL["snapshots"].index(PEAK)]
            cells += [f"{np.median(fall):+.1f} ({sum(fall < 0)} of {len(fall)})", *rates]
            rows.append(("", f"`{task}`", *cells) if task else (f"`{arm}`", "all", *cells))
    steps = [f"step {step}" for step in PROTOCOL["snapshots"]]
    return table(["arm", "problems", *steps, "change", "training, first", "last"], rows)


def selection_table(arms: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """Return a row for each metric of an arm's members."""
    rows = (
        (f"`{arm}`", f"`{metric}`", *(f"{value:.2f}" for value in values.values()))
        for arm, of_arm in arms.items()
        for metric, values in of_arm.items()
    )
    return table(["arm", "metric", *selection.COLUMNS], rows)


def ideas_table(medians: ideas.Medians, counts: Mapping[str, int]) -> str:
    """Return a row an arm, the arms that ideas are compared with first, and what each changes."""
    rows, control = [], PROTOCOL["confirmation"]["control"]
    added = {"together": len(ideas.IDEAS["seeds"])} | {f"agent_x4-{rate:g}": len(control["seeds"]) for rate in control["rates"]}
    for name, needed in (ideas.needed_runs() | added).items():
        changes = ideas.IDEAS["arms"].get(name, {}).get("settings", {}).items()
        values = [f"{medians[name][column]:.3g}" if name in medians else "" for column in ideas.COLUMNS]
        settings = ", ".join(f"`{setting} = {json.dumps(value)}`" for setting, value in changes)
        rows.append((f"`{name}`", settings, f"{counts.get(name, 0)} of {needed}", *values))
    return table(["arm", "settings", "runs", *ideas.COLUMNS], rows)


def confirmed_tables(confirmed: Mapping[str, Any]) -> str:
    """Return the claims, then a row an arm: accuracy on the held-back suite in per cent, mean and deviation, median and lowest run."""
    rows = (
        (f"`{arm}`", f"{len(of['values'])}", f"{100 * of['mean']:.1f} ± {100 * of['sd']:.1f}",
         f"{100 * np.median(of['values']):.1f}", f"{100 * min(of['values']):.1f}")
        for arm, of in confirmed["means"].items()
    )  # fmt: skip
    return f"{claims_table(confirmed['claims'])}\n{table(['arm', 'runs', 'all levels', 'median', 'lowest'], rows)}"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (titles, ["---"] * len(titles), *rows)) + "\n"


def filled(page: str, parts: Mapping[str, str]) -> str:
    """Return the page with each part between its marks. Raises `SystemExit` for a part that has no place, or several."""
    for name, text in parts.items():
        begin, end = f"<!-- begin {name} -->", "<!-- end -->"
        page, places = re.subn(f"{begin}.*?{end}", lambda _, text=f"{begin}\n\n{text}\n{end}": text, page, flags=re.DOTALL)
        if places != 1:
            raise SystemExit(f"docs/results.md has {places} places for {name}, expected <!-- begin {name} --> and <!-- end --> once")
    return page


if __name__ == "__main__":
    main()
