"""The seven mathematics benchmarks: their gold answers, the readings of a completion, and the verdict.

Both readings are compared in the same way, by math-verify as AZR's evaluation calls it (in the sandbox: `harness/mathematics.py`):
- ``strict``: the last box, nothing else.
- ``lenient``: AZR's search for an answer (`populora.evals.answers`). The score counts this one.
- ``fixed`` (Minerva alone): as ``lenient``, but gold answers like ``4.5e33`` are numbers (`populora.evals.numerals`); to AZR they are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from populora.core.errors import ConfigError
from populora.evals.answers import boxed, lenient, tidied
from populora.evals.benchmarks import Benchmark
from populora.evals.jailed import Refused, ask, harness_limits
from populora.evals.numerals import same_number
from populora.evals.records import Grade, Item
from populora.tasks.verifier import Judge

Compare = Callable[[Sequence[tuple[str, str]]], Sequence[str]]
"""Pairs of a gold answer and an answer to ``equal``, ``different`` or ``unreadable:…`` for each."""

LIMITS = harness_limits("mathematics", ("math_verify", "latex2sympy2_extended", "sympy", "mpmath", "antlr4"), cpu_seconds=5)
LONGEST_ANSWER = 1000
"""Characters of an answer that is compared. The longest gold answer has 210."""


def grade_mathematics(compare: Compare, benchmark: Benchmark, item: Item, completion: str) -> Grade:
    """The verdict on a completion: its reason is empty, ``no_answer``, ``wrong`` or ``unreadable:…``. Raises `ConfigError` as `gold_of`."""
    gold = gold_of(benchmark, item)
    texts = {"strict": boxed(completion) or "", "lenient": lenient(completion, gsm8k_ending=benchmark.name == "gsm8k")}
    reasons = {text: _reason(compare, gold, text) for text in dict.fromkeys(texts.values())}
    readings = {name: reasons[text] == "" for name, text in texts.items()}
    if benchmark.name == "minerva_math":
        same = same_number(gold, texts["lenient"][:LONGEST_ANSWER])
        readings["fixed"] = readings["lenient"] if same is None else same
    correct, answer = readings[benchmark.headline], texts.get(benchmark.headline, texts["lenient"])
    return Grade(item.id, correct, "" if correct else reasons[answer] or "wrong", answer[:LONGEST_ANSWER], readings)


def comparing(judge: Judge) -> Compare:
    """Comparison in the sandbox. What takes too long is ``unreadable:out_of_resources``."""

    def compare(pairs: Sequence[tuple[str, str]]) -> Sequence[str]:
        try:
            return [str(one) for one in ask(judge, {"pairs": list(pairs)})]
        except Refused as refusal:
            return [f"unreadable:{refusal}"] * len(pairs)

    return compare


def gold_of(benchmark: Benchmark, item: Item) -> str:
    """The gold answer of an item. Raises `ConfigError` for an item that has none."""
    try:
        gold = _gold(benchmark.name, item)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ConfigError(f"{benchmark.name}, item '{item.id}': expected its answer as in the benchmark's file, got {error!r}") from error
    if not gold:
        raise ConfigError(f"{benchmark.name}, item '{item.id}': expected its answer as in the benchmark's file, got none")
    return gold


def _gold(name: str, item: Item) -> str:
    """From where AZR takes it: of MATH-500 the solution's box and not the field ``answer``."""
    match name:
        case "math500" | "minerva_math":
            return boxed(item.fields["solution"]) or ""
        case "gsm8k":
            return item.fields["answer"].partition("####")[2].strip()
        case "olympiadbench":
            return item.fields["final_answer"][0].replace("$", "").strip().rstrip(".")
    answer = item.fields["answer"]
    return str(int(answer)) if isinstance(answer, float) and answer.is_integer() else str(answer).strip()  # AMC writes 27.0


def _reason(compare: Compare, gold: str, answer: str) -> str:
    """Empty if the answer is right as it is written, or tidied."""
    if not answer:
        return "no_answer"
    if len(answer) > LONGEST_ANSWER:
        return "unreadable:too_long"
    reasons: list[str] = []
    for pair in dict.fromkeys(((gold, answer), (tidied(gold), tidied(answer)))):
        (verdict,) = compare([pair])
        if verdict == "equal":
            return ""
        reasons.append("wrong" if verdict == "different" else verdict)
    return "wrong" if "wrong" in reasons else reasons[0]
