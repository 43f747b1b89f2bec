"""CRUXEval: extract the answer, apply the two official guards, and compare the answer's value (`harness/cruxeval_harness.py`).

An input has to call ``f``; an output must not be the call of ``f`` on the given input itself. Answers to our prompts are in a fence
(``strict``) or where AZR looks in addition (``lenient``). A completion without markup is an answer as it is, as in CRUXEval's own.
"""

import json
import re

from populora.core.types import TaskType
from populora.evals.benchmarks import Benchmark
from populora.evals.eval_records import Grade, Item
from populora.evals.graders.harness_call import grade_of, harness_limits, run_jobs
from populora.sandbox.pool import Judge
from populora.sandbox.protocol import Job
from populora.tasks.jobs import reason_of
from populora.tasks.parsing import answer_text, parse_solution, search_solution, unfenced

LIMITS = harness_limits("cruxeval", ("numpy",), cpu_seconds=3)
"""Three seconds, as in the official grader, but of CPU time, so that no verdict depends on the machine's load."""

_TAGS = ("[ANSWER]", "[/ANSWER]")
"""Tags around the answer in CRUXEval's own prompts."""


def extract_answers(task: TaskType, completion: str) -> dict[str, str]:
    """Extract the answer in each mode; empty where there is none."""
    if _TAGS[0] in completion:
        return dict.fromkeys(("strict", "lenient"), completion.rpartition(_TAGS[0])[2].partition(_TAGS[1])[0].strip())
    if "<answer>" in completion or "```" in completion:
        content = answer_text(completion) if "<answer>" in completion else completion
        strict = parse_solution(task, content)
        lenient = (unfenced(search_solution(task, content)) or None) if strict is None else strict
        return {"strict": _expression(task, strict), "lenient": _expression(task, lenient)}
    return dict.fromkeys(("strict", "lenient"), completion.strip())


def _expression(task: TaskType, answer: str | None) -> str:
    """Convert an answer to our prompts, an argument list or a value, to CRUXEval's form: a call, or an expression."""
    if answer is None or (task is TaskType.CODE_I and re.match(r"f\(|assert\b", answer)):
        return answer or ""
    return f"f({answer}\n)" if task is TaskType.CODE_I else f"({answer}\n)"


def grade_cruxeval(pool: Judge, benchmark: Benchmark, item: Item, completion: str) -> Grade:
    """Grade a completion. Raises `SandboxFault`."""
    task = TaskType.CODE_I if benchmark.name == "cruxeval_input" else TaskType.CODE_O
    return grade_of(item, benchmark.primary, extract_answers(task, completion), lambda text: _reason(pool, task, item, text))


def _reason(pool: Judge, task: TaskType, item: Item, answer: str) -> str:
    code, inputs, output = (item.fields[name] for name in ("code", "input", "output"))
    if not answer:
        return "no_answer"
    if task is TaskType.CODE_I and "f(" not in answer:
        return "no_call"
    if task is TaskType.CODE_O and f"f({inputs})" in answer:
        return "calls_program"
    question = json.dumps({"code": code, "answer": answer, "call": task is TaskType.CODE_I})
    value, gold = run_jobs(pool, [Job("run", "from harness import f", (repr(question),)), Job("parse", texts=(output,))])
    if not gold.ok:
        return f"gold_unreadable:{reason_of(gold)}"
    if not value.ok:
        return reason_of(value)
    return "" if value.values[0].comparable == gold.values[0].comparable else "wrong"
