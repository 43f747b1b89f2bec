"""The seven mathematics benchmarks: gold answers, extraction modes, and the comparison. Extraction takes linear time and evaluates nothing.

math-verify compares answers as in AZR's evaluation, in the sandbox (`harness/mathematics_harness.py`):
- ``strict``: the last box, nothing else.
- ``lenient``: AZR's search for an answer. This is the score.

The search (a descendant of Qwen2.5-Math's) takes the last box; else what follows "the answer is"; else the last number.
Deviations, each towards what the model meant:
- Where the completion has an ``<answer>``, which AZR's prompt asks for, that is searched first; short text in it is an answer as it is.
- ``boxed`` without a backslash counts only before a brace: in GSM8K it is an English word. A box that is never closed is no answer.
- After "the answer is" the answer ends with its line or sentence; AZR reads on to the end of the completion.
- The minus of the last number is a sign only where nothing precedes it: ``16-3`` ends in 3.
- Of GSM8K, whose answers are all numbers, its own ending, a line ``#### 18``, is read, and of an ``<answer>`` such as ``18 dollars`` the
  number.
AZR then rewrites answer and gold by some thirty rules (units, ``\\text``, fractions, …). math-verify 0.9 knows most of them by itself, and
some do harm. `tidied` keeps those that help; its result is compared in addition to the answer as it is written.
"""

import re
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from populora.core.errors import ConfigError
from populora.evals.benchmarks import Benchmark
from populora.evals.eval_records import Grade, Item
from populora.evals.graders.harness_call import HarnessError, call_harness, grade_of, harness_limits
from populora.sandbox.pool import Judge

Compare = Callable[[str, str], str]
"""Maps a gold answer and an answer to ``equal``, ``different`` or ``unreadable:…``."""

LIMITS = replace(
    harness_limits("mathematics", ("math_verify", "latex2sympy2_extended", "sympy", "mpmath", "antlr4"), cpu_seconds=5),
    distributions=("antlr4-python3-runtime",),
)
LONGEST_ANSWER = 1000
"""Characters of an answer that is compared. The longest gold answer has 210."""


def grade_mathematics(judge: Judge, benchmark: Benchmark, item: Item, completion: str) -> Grade:
    """Grade a completion in the sandbox. A pair that takes too long is ``unreadable:out_of_resources``. Raises as `grade_answers`."""

    def compare(gold: str, answer: str) -> str:
        try:
            return str(call_harness(judge, {"gold": gold, "answer": answer}))
        except HarnessError as error:
            return f"unreadable:{error}"

    return grade_answers(compare, benchmark, item, completion)


def grade_answers(compare: Compare, benchmark: Benchmark, item: Item, completion: str) -> Grade:
    """Grade a completion: its reason is empty, ``no_answer``, ``wrong`` or ``unreadable:…``. Raises `ConfigError` as `gold_of`."""
    gold = gold_of(benchmark, item)
    answers = {"strict": boxed(completion) or "", "lenient": lenient(completion, gsm8k=benchmark.name == "gsm8k")}
    grade = grade_of(item, benchmark.primary, answers, lambda text: _reason(compare, gold, text))
    return replace(grade, answer=grade.answer[:LONGEST_ANSWER])


def gold_of(benchmark: Benchmark, item: Item) -> str:
    """Read the gold answer of an item. Raises `ConfigError` for an item that has none."""
    try:
        gold = _gold(benchmark.name, item)
    except (KeyError, IndexError, TypeError, AttributeError):
        gold = ""
    if not gold:
        raise ConfigError(f"{benchmark.name}, item '{item.id}': expected its answer as in the benchmark's file")
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
    """Say why the answer is wrong; empty if it is correct as it is written, or tidied."""
    if not answer:
        return "no_answer"
    if len(answer) > LONGEST_ANSWER:
        return "unreadable:too_long"
    reasons: list[str] = []
    for pair in dict.fromkeys(((gold, answer), (tidied(gold), tidied(answer)))):
        verdict = compare(*pair)
        if verdict == "equal":
            return ""
        reasons.append("wrong" if verdict == "different" else verdict)
    return "wrong" if "wrong" in reasons else reasons[0]


_BOX = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])|boxed(?= ?\{)")
_BRACE = re.compile(r"[{}]")
_PHRASE = re.compile(r"(?:he|final) answer is|答案是")
_OPENING = re.compile(r"\A(?:[\s:*$]|\\[\[(])+")
_SENTENCE_END = re.compile(r"[.。](?:\s|$)")
_PROSE = re.compile(r"[A-Za-z]{2,} [A-Za-z]{2,}")
_NUMBER = r"(?:(?<![\w)\]}])[-−])?(?:(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)"
_ANY_NUMBER = re.compile(_NUMBER)
_QUANTITY = re.compile(rf"[^0-9\\√^!]*?({_NUMBER})[^0-9\\√^!]*")
"""One number among words and units."""
_GSM8K_ENDING = re.compile(rf"####[ \t$]*({_NUMBER})[ \t\r.]*$", re.MULTILINE)


def boxed(text: str) -> str | None:
    """Extract the last box (``\\boxed{5}``, ``\\fbox{5}``, ``\\boxed 5``): empty if it is never closed, None if there is none."""
    last = _last(_BOX, text)
    if last is None:
        return None
    start = last.end()
    while text[start : start + 1].isspace():
        start += 1
    if text[start : start + 1] != "{":
        return _sentence(text[start:].partition("$")[0])
    depth = 0
    for brace in _BRACE.finditer(text, start):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return text[start + 1 : brace.start()].strip()
    return ""


def lenient(text: str, gsm8k: bool = False) -> str:
    """Extract the answer in the first of the ways above that finds one; empty where none does."""
    tagged = text.rpartition("<answer>")[2].partition("</answer>")[0].strip() if "<answer>" in text else ""
    return (tagged and _search(tagged, gsm8k, tagged)) or _search(text, gsm8k)


def _search(scope: str, gsm8k: bool, tagged: str = "") -> str:
    box = boxed(scope)
    if box is not None:
        return box
    ending = _last(_GSM8K_ENDING, scope) if gsm8k else None
    if ending is not None:
        return _plain(ending[1])
    phrase = _last(_PHRASE, scope)
    if phrase is not None:
        return _sentence(scope[phrase.end() :])
    if tagged and not _PROSE.search(tagged):
        quantity = _QUANTITY.fullmatch(tagged) if gsm8k else None
        return _plain(quantity[1]) if quantity else tagged
    number = _last(_ANY_NUMBER, scope)
    return "" if number is None else _plain(number[0])


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    matches = deque(pattern.finditer(text), maxlen=1)
    return matches[0] if matches else None


def _sentence(text: str) -> str:
    """Extract the first line that is not empty, up to the end of a sentence."""
    line = _OPENING.sub("", text, count=1).partition("\n")[0]
    end = _SENTENCE_END.search(line)
    return (line[: end.start()] if end else line).strip()


def _plain(number: str) -> str:
    return number.replace(",", "").replace("−", "-")


_MARKUP = re.compile(r"</?(?:answer|think)>|\\?\$|\\?%|(?<!\\)\\[()\[\]]|\\(?:mathbf|boldsymbol|displaystyle)(?![a-zA-Z])")
_THOUSANDS = re.compile(r"(?<=[0-9])(?: |\\[,; ])(?=[0-9]{3}(?![0-9]))")
_BARE_POINT = re.compile(r"(?<=[0-9])\.0*(?![0-9.])")
_LABEL = re.compile(r"\A(?:[A-Za-z]+ ?:|\([A-E]\)|[Ss]o,?) +")
_WRAPPED = re.compile(r"\\(?:text|textbf|mathrm|mbox)\{((?:[^{}]|\{[^{}]*\})*)\}")
_IMAGINARY_J = re.compile(r"(?<![a-zA-Z\\])j(?![a-zA-Z])")
_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_WORDS = {word: str(value) for value, word in enumerate(_SMALL)}
_WORDS |= {ten: f"{value}0" for value, ten in enumerate(_TENS, 2)}
_WORDS |= {f"{ten} {word}": f"{value}{unit}" for value, ten in enumerate(_TENS, 2) for unit, word in enumerate(_SMALL[1:10], 1)}


def tidied(answer: str) -> str:
    """Remove signs of percent and dollar, Markdown, a label (``Total:``, ``(C)``, ``So``) and a full stop. Write ``two`` as ``2``, and
    ``-1./3`` and ``np.`` as in mathematics."""
    text = _MARKUP.sub(" ", answer).replace("°", "^{\\circ}").strip(" \t\r\n*_`").lstrip(":= ")
    text = _LABEL.sub("", " ".join(text.split())).rstrip(" .,;/")
    whole = _WRAPPED.fullmatch(text)
    text = whole[1].strip() if whole else text
    text = _BARE_POINT.sub("", _THOUSANDS.sub("", text)).replace("np.", "\\")
    if "i" not in text:
        text = _IMAGINARY_J.sub("i", text)
    return _WORDS.get(text.lower().replace("-", " "), text)
