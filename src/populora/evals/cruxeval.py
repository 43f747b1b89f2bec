"""CRUXEval: what is taken for an answer, the two official guards, and the verdict by the value of the answer (`harness/cruxeval.py`).

An input has to call ``f``; an output must not be the call of ``f`` on the given input itself. Answers to our own prompts stand in a
fence (``strict``) or where AZR looks beyond it (``lenient``); a completion without any markup is an answer as it stands, which is
how CRUXEval's own completions look.
"""

from __future__ import annotations

import json
import re

from populora.core.types import TaskType
from populora.evals.benchmarks import Benchmark
from populora.evals.jailed import harness_limits
from populora.evals.records import Grade, Item
from populora.sandbox.protocol import Job
from populora.tasks.jobs import reason_of
from populora.tasks.parsing import answer_text, parse_solution, search_solution
from populora.tasks.verifier import Judge

LIMITS = harness_limits("cruxeval", ("numpy",), cpu_seconds=3)
"""Three seconds, as the official grader allows; of CPU time, so that a busy machine fails nobody."""

_TAGS = ("[ANSWER]", "[/ANSWER]")
"""Around the answer in CRUXEval's own prompts."""


def task_of(benchmark: Benchmark) -> TaskType:
    """What is asked for: an input or an output."""
    return TaskType.CODE_I if benchmark.name == "cruxeval_input" else TaskType.CODE_O


def readings(task: TaskType, completion: str) -> dict[str, str]:
    """The answer in each reading; empty where there is none."""
    if _TAGS[0] in completion:
        return dict.fromkeys(("strict", "lenient"), completion.rpartition(_TAGS[0])[2].partition(_TAGS[1])[0].strip())
    if "<answer>" in completion or "```" in completion:
        content = answer_text(completion) if "<answer>" in completion else completion
        strict = parse_solution(task, content)
        lenient = (search_solution(task, content) or None) if strict is None else strict
        return {"strict": _expression(task, strict), "lenient": _expression(task, lenient)}
    return dict.fromkeys(("strict", "lenient"), completion.strip())


def _expression(task: TaskType, answer: str | None) -> str:
    """An answer to our prompts, which ask for an argument list or a value, as CRUXEval's: a call, or an expression by itself."""
    if answer is None or (task is TaskType.CODE_I and re.match(r"f\(|assert\b", answer)):
        return answer or ""
    return f"f({answer})" if task is TaskType.CODE_I else f"({answer}\n)"


def grade_cruxeval(pool: Judge, benchmark: Benchmark, item: Item, completion: str) -> Grade:
    """The verdict on a completion. Raises `SandboxFault`."""
    task = task_of(benchmark)
    texts = readings(task, completion)
    reasons = {text: _reason(pool, task, item, text) for text in dict.fromkeys(texts.values())}
    answer = texts[benchmark.headline]
    return Grade(item.id, reasons[answer] == "", reasons[answer], answer, {name: reasons[text] == "" for name, text in texts.items()})


def _reason(pool: Judge, task: TaskType, item: Item, answer: str) -> str:
    code, inputs, output = (item.fields[name] for name in ("code", "input", "output"))
    if not answer:
        return "no_answer"
    if task is TaskType.CODE_I and "f(" not in answer:
        return "no_call"
    if task is TaskType.CODE_O and f"f({inputs})" in answer:
        return "calls_program"
    question = json.dumps({"code": code, "answer": answer, "call": task is TaskType.CODE_I})
    found, gold = pool.run([Job("run", "from harness import f", (repr(question),)), Job("parse", texts=(output,))])
    if not gold.ok:
        return f"gold_unreadable:{reason_of(gold)}"
    if not found.ok:
        return reason_of(found)
    return "" if found.values[0].comparable == gold.values[0].comparable else "wrong"
