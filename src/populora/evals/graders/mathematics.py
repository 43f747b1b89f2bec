"""The seven mathematics benchmarks: gold answers, extraction modes, and the comparison.

math-verify compares answers as in AZR's evaluation, in the sandbox (`harness/mathematics.py`):
- ``strict``: the last box, nothing else.
- ``lenient``: AZR's search for an answer (`populora.evals.graders.math_answers`). This is the score.
- ``fixed`` (Minerva only): as ``lenient``, but gold answers like ``4.5e33`` are numbers, which they are not to AZR.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal

from populora.core.errors import ConfigError
from populora.evals.benchmarks import Benchmark
from populora.evals.graders.harness_call import HarnessError, call_harness, harness_limits
from populora.evals.graders.math_answers import boxed, lenient, tidied
from populora.evals.records import Grade, Item
from populora.tasks.verifier import Judge

Compare = Callable[[Sequence[tuple[str, str]]], Sequence[str]]
"""Maps pairs of a gold answer and an answer to ``equal``, ``different`` or ``unreadable:…``."""

LIMITS = harness_limits("mathematics", ("math_verify", "latex2sympy2_extended", "sympy", "mpmath", "antlr4"), cpu_seconds=5)
LONGEST_ANSWER = 1000
"""Characters of an answer that is compared. The longest gold answer has 210."""


def grade_mathematics(compare: Compare, benchmark: Benchmark, item: Item, completion: str) -> Grade:
    """Grade a completion: its reason is empty, ``no_answer``, ``wrong`` or ``unreadable:…``. Raises `ConfigError` as `gold_of`."""
    gold = gold_of(benchmark, item)
    answers = {"strict": boxed(completion) or "", "lenient": lenient(completion, gsm8k_ending=benchmark.name == "gsm8k")}
    reasons = {text: _reason(compare, gold, text) for text in dict.fromkeys(answers.values())}
    modes = {name: not reasons[text] for name, text in answers.items()}
    if benchmark.name == "minerva_math":
        same = same_number(gold, answers["lenient"][:LONGEST_ANSWER])
        modes["fixed"] = modes["lenient"] if same is None else same
    answer = answers[benchmark.primary]
    return Grade(item.id, modes[benchmark.primary], reasons[answer], answer[:LONGEST_ANSWER], modes)


def compare_with(judge: Judge) -> Compare:
    """Comparison in the sandbox. A pair that takes too long is ``unreadable:out_of_resources``."""

    def compare(pairs: Sequence[tuple[str, str]]) -> Sequence[str]:
        try:
            return [str(verdict) for verdict in call_harness(judge, {"pairs": list(pairs)})]
        except HarnessError as error:
            return [f"unreadable:{error}"] * len(pairs)

    return compare


def gold_of(benchmark: Benchmark, item: Item) -> str:
    """Read the gold answer of an item. Raises `ConfigError` for an item that has none."""
    try:
        gold = _gold(benchmark.name, item)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ConfigError(f"{benchmark.name}, item '{item.id}': expected its answer as in the benchmark's file, got {error!r}") from error
    if not gold:
        raise ConfigError(f"{benchmark.name}, item '{item.id}': expected its answer as in the benchmark's file, got none")
    return gold


def _gold(name: str, item: Item) -> str:
    """Read it from where AZR does: of MATH-500 the solution's box and not the field ``answer``."""
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
    """Empty if the answer is correct as it is written, or tidied."""
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


_E_FORM = re.compile(r"[-+]?[0-9]+(?:\.[0-9]+)?[eE][-+]?[0-9]{1,4}")
_UNIT = (
    r"(?:[\s~]|\\[,;: ])*"
    r"(?:(?:(?![eEi](?![a-zA-Z]))[°μΩa-zA-Z]|\\(?:text|mathrm|mbox|textrm|rm)\b)(?:[^=+*^0-9]|\^\s*\{?\s*[-−]?[0-9]\s*\}?)*)?"
)
_NUMERAL = re.compile(
    r"(?P<sign>[-+−]?)\s*(?P<digits>[0-9]+(?:,[0-9]{3})*(?:\.[0-9]*)?|\.[0-9]+)\s*"
    r"(?:[eE](?P<e>[-+]?[0-9]{1,4})|(?:\\times|\\cdot|[*×·x])\s*10\s*\^\s*\{?\s*(?P<ten>[-+−]?[0-9]{1,4})\s*\}?)?" + _UNIT
)
_POWER = re.compile(r"(?P<sign>[-+−]?)\s*10\s*\^\s*\{?\s*(?P<ten>[-+−]?[0-9]{1,4})\s*\}?" + _UNIT)
_EQUALS = re.compile(r"=|\\approx|\\simeq|≈")


def same_number(gold: str, answer: str) -> bool | None:
    """Compare exactly; None if the gold answer is not written like ``4.5e33``, or the answer is not a number.

    math-verify reads ``4.5e33`` as 4.5 times Euler's e times 33, which is how 58 of Minerva's 272 gold answers are written. Rewritten as
    ``4.5 \\times 10^{33}`` they would be read, but rounded, and 14 of the 58 would equal ten times as much.
    """
    value = parse_number(answer) if _E_FORM.fullmatch(gold) else None
    return None if value is None else value == Decimal(gold)


def parse_number(text: str) -> Decimal | None:
    """Parse ``1,200``, ``4.5e33``, ``4.5 \\times 10^{33}`` or ``10^8``, also after ``=`` or before a unit; None for anything else."""
    text = _EQUALS.split(tidied(text))[-1].strip()
    power, numeral = _POWER.fullmatch(text), _NUMERAL.fullmatch(text)
    if power:
        return Decimal(f"{power['sign']}1e{power['ten']}".replace("−", "-"))
    if numeral:
        digits, exponent = numeral["digits"].replace(",", ""), numeral["e"] or numeral["ten"] or "0"
        return Decimal(f"{numeral['sign']}{digits}e{exponent}".replace("−", "-"))
    return None
