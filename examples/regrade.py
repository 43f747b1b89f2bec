"""Run a run's problems again and grade its answers again, from their recorded texts, and compare outputs and verdicts.

    python examples/regrade.py RUN

The other half of examples/recompute.py, which takes the verdicts as they are. Answers are extracted anew by the rules of Absolute Zero
(docs/verifier.md). Nothing is imported from populora, and no text of a model is run here: programs and answers go to the sandbox of the
command `populora verify`, once for each domain, which allows all imports, also those of `tasks.banned_imports`. It prints a line for each
column, and exits with 1 if a value differs.
"""

import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pyarrow.parquet as pq

FENCES = {"python": ("python", ""), "sql": ("sql", "sqlite")}  # of a program; other domains: their own name


def domain_of(task):
    """Return the domain of a task type, whose last letter is its kind: the answer is an input, an output or a program."""
    return "python" if task.startswith("code_") else task.partition("_")[0]


def outside_fences(name, text):
    """Search for an answer as Absolute Zero does: after `# Input:`, in `input(…)` or `<input>`, after "the input is"; else it is all."""
    marks = {rf"#\s?{name}:": "(.*)", rf"\b{name}\(": r"(.*)\)", f"<{name}>": r"(?s:(.*?)(?:</|\Z))", rf"\bthe {name} is:?": "(.*)"}
    for mark, rest in marks.items():
        places = [place.end() for place in re.finditer(mark, text, re.IGNORECASE)]
        found = re.compile(rest).match(text, places[-1]) if places else None
        if answer := found[1].strip().rstrip(".") if found else "":
            return answer
    return text.strip()


def answer_of(task, text):
    """Return whether the response has the format, its answer, and the answer outside fences if there is no such answer.

    An answer is the last fence of the task in the last answer tag, or None.
    """
    turn = text.partition("Assistant:")[0]
    formatted = re.search(r"</think>\s*<answer>.*</answer>", turn, re.DOTALL) is not None
    content = turn.rpartition("<answer>")[2].partition("</answer>")[0] if formatted else ""
    fences = re.findall(r"```([^\n`]*)\n(.*?)```", content, re.DOTALL)
    tags = {"i": ("input",), "o": ("output",), "f": FENCES.get(domain_of(task), (domain_of(task),))}[task[-1]]
    answers = [content.strip() for tag, content in fences if tag.strip().lower() in tags]
    if answers and (answers[-1] or task[-1] == "i"):
        return formatted, answers[-1], ""
    return formatted, None, outside_fences(tags[0], content) if task[-1] != "f" else ""


def checks_of(folder, lenient):
    """Yield domain, column, recorded value and, if the sandbox has to tell the value, the request, for problems and attempts of a step."""
    problems, attempts = (pq.read_table(folder / f"{table}.parquet").to_pylist() for table in ("problems", "attempts"))
    void = {row["problem_id"] for row in attempts if row["void"]}
    problems = {row["problem_id"]: row for row in problems if row["problem_id"] not in void}
    for problem in problems.values():
        for pair in problem["shown"] + problem["hidden"]:
            request = {"role": "program", "program": problem["program"], "inputs": pair["inputs"]}
            yield domain_of(problem["task"]), "problems.output", pair["output"], request, None
    for row in attempts:
        (formatted, answer, outside), domain = answer_of(row["task"], row["text"]), domain_of(row["task"])
        answer = outside or None if lenient and answer is None else answer
        yield domain, "attempts.formatted", row["formatted"], None, formatted
        yield domain, "attempts.lenient", row["lenient"], None, outside != ""
        if row["problem_id"] in problems:
            problem = problems[row["problem_id"]]
            pairs = [[pair["inputs"], pair["output"]] for pair in problem["hidden"] or problem["shown"]]
            role = {"i": "input", "o": "answer", "f": "solution"}[row["task"][-1]]
            request = {"role": role, "program": problem["program"], "answer": answer, "pairs": pairs}
            request |= dict(zip(("inputs", "output"), pairs[0], strict=True))
            yield domain, "attempts.correct", row["correct"], None if answer is None else request, False


def verify(requests, domain, config):
    """Return the results of the requests, which are JSON texts, from the sandbox with the limits of the run."""
    limits, tasks = config["sandbox"], config["tasks"]
    options = [text for name in ("cpu_seconds", "wall_seconds", "memory_mb") for text in (f"--{name.replace('_', '-')}", str(limits[name]))]
    options += ["--allow-weak"] if limits["allow_weak"] else []
    options += ["--domain", domain, "--workers", "2", "--equality", tasks["equality"]]
    command = [sys.executable, "-m", "populora.cli.main", "verify", *options]  # `populora verify` of this environment
    answered = subprocess.run(command, input="\n".join(requests), stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in answered.stdout.splitlines()]


def main(run):
    config = json.loads((run / "config.json").read_text("utf-8"))
    lenient = config["tasks"]["extraction"] == "lenient"
    checks = [check for folder in sorted(run.glob("steps/step_*[0-9]")) for check in checks_of(folder, lenient)]
    requests = defaultdict(dict)  # by domain; a dict, because equal requests are asked once
    for domain, _, _, request, _ in checks:
        requests[domain] |= {json.dumps(request): None} if request else {}
    results = {domain: dict(zip(asked, verify(asked, domain, config), strict=True)) for domain, asked in requests.items()}
    compared, different = Counter(), defaultdict(list)
    for domain, column, recorded, request, computed in checks:
        result = results[domain][json.dumps(request)] if request else {}
        value = result.get("value", result.get("correct", computed))
        compared[column] += 1
        if value != recorded:
            different[column].append(f"{recorded!r} on record, {value!r} computed for {request}")
    for column, count in compared.items():
        print(f"{column}: {count} values, {len(different[column])} differ" + "".join(f"\n  {text}" for text in different[column][:3]))
    return int(any(different.values()))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
