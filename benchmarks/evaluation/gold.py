"""Grade answers whose verdict is known: the benchmarks' own solutions, and answers that cannot be right.

    python -m benchmarks.evaluation.gold --data FOLDER [--only BENCHMARK …] [--workers 2]      writes gold.json and gold.md; ten minutes

Failures are graded twice, as by `populora evaluate grade`. An item's *neighbour* is the next one, and the first one's for the last.
CRUXEval's own answers are graded a second time, and the two files of verdicts have to be bit-identical. Expected numbers
other than 0 or all:
- CRUXEval: a neighbour's input may lead to the right output (18 do); of the neighbours' outputs 3 are the same literal, and 5 are True or
  False against 1 or 0.
- MATH-500: the neighbour of one item has the same answer, ``x=5`` after ``5``.
- Minerva: 58 of its answers are written like ``4.5e33``, which AZR's comparison (``lenient``) takes for a product with Euler's number.
"""

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.evaluation.grader import HERE, LIBRARIES, Parts, canonical, items_of, keep, nothing
from benchmarks.measuring import bar, machine, options

from populora.core.files import digest
from populora.evals.benchmarks import BENCHMARKS
from populora.evals.eval_records import Item
from populora.evals.graders.mathematics import gold_of
from populora.evals.grading import GraderPool, GradingJob, grade, open_grader

ALL = -1
FORMS = ("its own answer in a box", "its own answer in a sentence", "one more, of integers", "the neighbour's answer, if another")
SENTENCE = "We see 3 of them.\n\nThe final answer is $\\boxed{%s}$."
_SCIENTIFIC = re.compile(r"([0-9.]+)e(-?[0-9]+)")
Answer = Callable[[Item, Item], str | None]


@dataclass(frozen=True)
class Check:
    """A completion, or None, for each item of a benchmark, made of the item and its neighbour; and the expected number of right ones."""

    what: str
    answer: Answer
    right: int = ALL
    reading: str = "lenient"
    times: int = 1


def checks_of(benchmark: str) -> list[Check]:
    """Return the checks of a benchmark."""
    which = BENCHMARKS[benchmark]
    match which.grading:
        case "code":
            return [
                Check("its own solutions", lambda item, _: canonical(item)),
                Check("`return None`", lambda item, _: nothing(item), 0),
            ]
        case "cruxeval" if benchmark == "cruxeval_input":
            return [
                Check("its own inputs", lambda item, _: f"f({item.fields['input']})", times=2),
                Check("the neighbour's input", lambda _, other: f"f({other.fields['input']})", 18),
            ]
        case "cruxeval":
            return [
                Check("its own outputs", lambda item, _: item.fields["output"], times=2),
                Check("the neighbour's output", lambda _, other: other.fields["output"], 8),
            ]
    return mathematics(benchmark)


def mathematics(benchmark: str) -> list[Check]:
    """Return checks of gold answers in two forms, of integers plus one, and of the neighbour's answers."""
    which = BENCHMARKS[benchmark]

    def gold(item: Item) -> str:
        return gold_of(which, item)

    def one_more(item: Item) -> str | None:
        whole = re.fullmatch(r"(-?[0-9]+)(?:\.0)?", gold(item).replace(",", "") if benchmark == "gsm8k" else gold(item))
        return f"\\boxed{{{int(whole[1]) + 1}}}" if whole else None

    def power(item: Item) -> str | None:
        parts = _SCIENTIFIC.fullmatch(gold(item))
        return f"\\boxed{{{parts[1]} \\times 10^{{{int(parts[2])}}}}}" if parts else None

    checks = [
        Check(FORMS[0], lambda item, _: f"\\boxed{{{gold(item)}}}"),
        Check(FORMS[1], lambda item, _: SENTENCE % gold(item)),
        Check(FORMS[2], lambda item, _: one_more(item), 0),
        Check(
            FORMS[3],
            lambda item, other: f"\\boxed{{{gold(other)}}}" if gold(item) != gold(other) else None,
            1 if benchmark == "math500" else 0,
        ),
    ]
    if benchmark == "minerva_math":
        checks.append(Check("4.5e33 as 4.5 × 10^33, read as AZR does", lambda item, _: power(item), 0))
    return checks


NAMES = [benchmark.name for benchmark in BENCHMARKS.values() if benchmark.grading in ("code", "mathematics", "cruxeval")]


def main() -> None:
    parser = options(__doc__, HERE)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=NAMES, choices=NAMES, metavar="BENCHMARK", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    about = machine(*LIBRARIES)
    for name in args.only:
        path, items = items_of(name, args.data)
        with open_grader(BENCHMARKS[name], args.workers) as grader:
            rows = [row(name, items, check, grader) for check in checks_of(name)]
        part = {"data_sha256": digest(path.read_bytes()), "rows": rows}
        results = keep(args.out / "gold.json", about, {name: part}, bars)
        (args.out / "gold.md").write_text(table(results), encoding="utf-8")


def row(benchmark: str, items: Sequence[Item], check: Check, grader: GraderPool) -> dict[str, Any]:
    """Grade the answers of a check ``check.times`` times."""
    neighbours = [*items[1:], items[0]]
    texts = {item.id: text for item, other in zip(items, neighbours, strict=True) if (text := check.answer(item, other)) is not None}
    answered = [item for item in items if item.id in texts]
    job = GradingJob(BENCHMARKS[benchmark], answered, texts, "", BENCHMARKS[benchmark].grading == "code")
    with tempfile.TemporaryDirectory() as folder:
        outs = [Path(folder) / f"{number}.jsonl" for number in range(check.times)]
        counts = [grade(job, out, grader) for out in outs]
        same = len({out.read_bytes() for out in outs}) == 1
    right, expected = counts[0]["modes"][check.reading], len(answered) if check.right == ALL else check.right
    repeated = {"same_bytes": same} if check.times > 1 else {}
    return {"answers": check.what, "reading": check.reading, "items": len(answered), "right": right, "expected": expected, **repeated}


def bars(parts: Parts) -> dict[str, dict[str, Any]]:
    """Count the rows of each benchmark that are not as expected."""
    return {
        f"{name}: rows that are not as expected": bar(0, sum(not as_expected(row) for row in part["rows"])) for name, part in parts.items()
    }


def as_expected(entry: Mapping[str, Any]) -> bool:
    return entry["right"] == entry["expected"] and entry.get("same_bytes", True)


def table(results: Mapping[str, Any]) -> str:
    """Return counts in Markdown: a line a check, and a line a benchmark of mathematics. Unexpected ones are bold."""
    rows = [(name, entry) for name in NAMES if name in results["parts"] for entry in results["parts"][name]["rows"]]
    lines = ["| benchmark | graded answers | right | expected |", "|---|---|---|---|"]
    for name, entry in rows:
        if entry["answers"] not in FORMS:
            twice = ", twice with the same bytes" if entry.get("same_bytes") else ""
            lines.append(f"| {BENCHMARKS[name].title} | {entry['answers']}{twice} | {cell(entry)} | {entry['expected']} |")
    lines += ["", f"| mathematics | {' | '.join(FORMS)} |", f"|---|{'---|' * len(FORMS)}"]
    for name in dict.fromkeys(name for name, entry in rows if entry["answers"] in FORMS):
        cells = [cell(entry) for of, entry in rows if of == name and entry["answers"] in FORMS]
        lines.append(f"| {BENCHMARKS[name].title} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def cell(entry: Mapping[str, Any]) -> str:
    count = f"{entry['right']:,} of {entry['items']:,}"
    return count if as_expected(entry) else f"**{count}**"


if __name__ == "__main__":
    main()
