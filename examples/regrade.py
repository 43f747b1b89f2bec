"""Run a run's problems again and grade its answers again, from their recorded texts, and compare outputs and verdicts.

    python examples/regrade.py RUN

The other half of examples/recompute.py, which takes the verdicts as they are. Answers are extracted anew by the rules of Absolute Zero
(docs/verifier.md). Nothing is imported from populora, and no text of a model is run here: programs and answers go to the sandbox of the
command `populora verify`, which allows all imports, also those of `tasks.banned_imports`. It prints a line for each column, and exits with
1 if a value differs.
"""

import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pyarrow.parquet as pq

TAGS = {"code_i": ("input",), "code_o": ("output",), "code_f": ("python", "")}


def answer_of(task, text):
    """Return whether the response has the format, and its answer: the last fence of the task in the last answer tag, or None."""
    turn = text.partition("Assistant:")[0]
    formatted = re.search(r"</think>\s*<answer>.*</answer>", turn, re.DOTALL) is not None
    fences = re.findall(r"```([^\n`]*)\n(.*?)```", turn.rpartition("<answer>")[2].partition("</answer>")[0], re.DOTALL)
    answers = [content.strip() for tag, content in fences if tag.strip().lower() in TAGS[task]]
    return formatted, answers[-1] if formatted and answers and (answers[-1] or task == "code_i") else None


def checks_of(folder):
    """Yield a column, its recorded value and, if the sandbox has to tell the value, the request, for problems and attempts of a step."""
    problems, attempts = (pq.read_table(folder / f"{table}.parquet").to_pylist() for table in ("problems", "attempts"))
    void = {row["problem_id"] for row in attempts if row["void"]}
    problems = {row["problem_id"]: row for row in problems if row["problem_id"] not in void}
    for problem in problems.values():
        for pair in problem["shown"] + problem["hidden"]:
            yield "problems.output", pair["output"], {"role": "program", "program": problem["program"], "inputs": pair["inputs"]}, None
    for row in attempts:
        formatted, answer = answer_of(row["task"], row["text"])
        yield "attempts.formatted", row["formatted"], None, formatted
        if row["problem_id"] in problems:
            problem = problems[row["problem_id"]]
            pairs = [[pair["inputs"], pair["output"]] for pair in problem["hidden"] or problem["shown"]]
            asked = {"program": problem["program"], "inputs": pairs[0][0], "output": pairs[0][1], "pairs": pairs, "answer": answer}
            role = {"code_i": "input", "code_o": "answer", "code_f": "solution"}[row["task"]]
            yield "attempts.correct", row["correct"], None if answer is None else {"role": role, **asked}, False


def verify(requests, config):
    """Return the results of the requests, which are JSON texts, from the sandbox with the limits of the run."""
    limits, tasks = config["sandbox"], config["tasks"]
    options = [text for name in ("cpu_seconds", "wall_seconds", "memory_mb") for text in (f"--{name.replace('_', '-')}", str(limits[name]))]
    command = ["populora", "verify", "--workers", "2", "--equality", tasks["equality"], *options]
    answered = subprocess.run(command, input="\n".join(requests), stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in answered.stdout.splitlines()]


def main(run):
    config = json.loads((run / "config.json").read_text("utf-8"))
    if config["tasks"]["extraction"] != "strict":
        sys.exit("regrade: answers outside their fences count in this run (tasks.extraction), which is not graded here")
    checks = [check for folder in sorted(run.glob("steps/step_*[0-9]")) for check in checks_of(folder)]
    requests = list(dict.fromkeys(json.dumps(request) for _, _, request, _ in checks if request))
    results = dict(zip(requests, verify(requests, config), strict=True))
    compared, different = Counter(), defaultdict(list)
    for column, recorded, request, computed in checks:
        result = results[json.dumps(request)] if request else {}
        value = result.get("value", result.get("correct", computed))
        compared[column] += 1
        if value != recorded:
            different[column].append(f"{recorded!r} on record, {value!r} computed for {request}")
    for column, count in compared.items():
        print(f"{column}: {count} values, {len(different[column])} differ" + "".join(f"\n  {text}" for text in different[column][:3]))
    return int(any(different.values()))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
