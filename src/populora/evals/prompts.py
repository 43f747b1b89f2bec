"""Prompts of items, from versioned templates (``templates/*.toml``) with the wording of AZR's evaluation where it has one.

Each template lists the kinds of benchmarks that it is for, and the texts that end a response. ``chat`` templates go through the base
model's chat template with the assistant's turn begun, as evalplus does; ``raw`` ones are the whole prompt; ``solve`` takes the solver's
prompts of training. Braces in an item's text stay as they are. Items that exceed the model's context are left out and reported.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from populora.core.config import SelfplayConfig
from populora.core.errors import ConfigError
from populora.core.types import Example, Problem, TaskType
from populora.evals.benchmarks import Benchmark, suite
from populora.evals.eval_records import Item
from populora.evals.sql_suite import schema_of
from populora.runs.style import plural
from populora.sandbox.runner import PYTHON
from populora.tasks.render import PromptSet, fill, load_prompts, solve_prompt
from populora.training.buffer import problem_from

_MARK = "(the response begins here)"
"""Placeholder of the response while a chat template is filled. Text follows it, because templates may strip the end of a turn."""


@dataclass(frozen=True)
class Template:
    """One template file. ``response`` begins the assistant's turn, in ``chat`` only."""

    name: str
    version: int
    kind: Literal["chat", "raw", "solve"]
    gradings: tuple[str, ...]
    stop: tuple[str, ...]
    """Texts before which a completion ends. In ``solve`` it ends with them, since the closing tag belongs to the answer."""
    text: str
    response: str = ""
    format: Mapping[str, str] = field(default_factory=dict)
    prompts: PromptSet | None = None
    """The solver's prompts, in ``solve`` only: those of Python. Other domains take the set of the same name."""


@cache
def templates() -> dict[str, Template]:
    """Read the packaged templates by name."""
    texts = [file.read_text("utf-8") for file in (files("populora.evals") / "templates").iterdir()]
    tables = sorted(map(tomllib.loads, texts), key=lambda table: table["name"])
    return {table["name"]: Template(**{**table, "gradings": tuple(table["gradings"]), "stop": tuple(table["stop"])}) for table in tables}


def find_template(name: str) -> Template:
    """Find a packaged template. Raises `ConfigError`."""
    if name not in templates():
        raise ConfigError(f"unknown prompt template '{name}': expected one of {', '.join(templates())}")
    return templates()[name]


def load_template(name: str, benchmark: Benchmark, prompts: PromptSet) -> Template:
    """Find the template for a benchmark; ``solve`` takes ``prompts``. Raises `ConfigError` for an unknown or unsuitable one."""
    template = find_template(name)
    if benchmark.grading not in template.gradings:
        suitable = [other.name for other in templates().values() if benchmark.grading in other.gradings]
        raise ConfigError(f"the template '{name}' is not for {benchmark.name}: expected {' or '.join(suitable)}")
    if template.kind == "solve":
        return replace(template, prompts=prompts, stop=(prompts.stop,) if prompts.stop else ())
    return template


def parse_templates(text: str, benchmarks: Sequence[Benchmark]) -> dict[str, str]:
    """Parse ``--templates`` (``code=plain,math500=azr_math_boxed``) to the template of each benchmark that it suits; the last counts."""
    chosen: dict[str, str] = {}
    for pair in (pair.strip() for pair in text.split(",") if pair.strip()):
        name, _, template = (part.strip() for part in pair.partition("="))
        try:
            selected = [benchmark for benchmark in suite([name] if template else [""]) if benchmark in benchmarks]
        except ConfigError as error:
            raise ConfigError(f"--templates has '{pair}': expected BENCHMARK=TEMPLATE or GROUP=TEMPLATE; {error}") from error
        if not selected:
            raise ConfigError(f"--templates has '{pair}', but --suite has no such benchmark: leave it out")
        suitable = [benchmark for benchmark in selected if benchmark.grading in find_template(template).gradings]
        if not suitable:
            load_template(template, selected[0], load_prompts("compact"))  # its error lists the suitable ones
        chosen |= {benchmark.name: template for benchmark in suitable}
    return chosen


def render(template: Template, benchmark: Benchmark, item: Item, tokenizer: Any) -> str:
    """Render the whole prompt; without a tokenizer the user's turn alone. Raises `ConfigError` for one without a chat template."""
    question = _render_question(template, benchmark, item)
    return _render_chat(template, question, tokenizer) if template.kind == "chat" and tokenizer else question


def _render_question(template: Template, benchmark: Benchmark, item: Item) -> str:
    if template.prompts is not None:
        problem = problem_of(benchmark, item)
        of_python, domain = template.prompts, problem.task.domain
        return solve_prompt(of_python if domain == PYTHON else load_prompts(of_python.name, domain=domain), problem)
    fields = item.fields
    match benchmark.grading:
        case "code":
            return fill(template.text, problem=fields["prompt"].strip())
        case "mathematics":
            return fill(template.text, question=fields["question" if "question" in fields else "problem"].strip())
        case "execution":
            hint = fill(template.format["with_evidence"], evidence=fields["evidence"].strip()) if fields["evidence"].strip() else ""
            return fill(template.text, schema=schema_of(fields["path"]), evidence=hint, question=fields["question"].strip())
        case _:
            starter = fields["starter_code"]
            form = fill(template.format["with_starter" if starter else "without_starter"], starter=starter)
            return fill(template.text, question=fields["question_content"], format=form)


def problem_of(benchmark: Benchmark, item: Item) -> Problem:
    """Convert an item of CRUXEval or the tiny suite to a problem of training."""
    if benchmark.grading == "selfplay":
        return problem_from(dict(item.fields))
    task = TaskType.CODE_I if benchmark.name == "cruxeval_input" else TaskType.CODE_O
    return Problem(item.id, task, item.fields["code"], (Example(item.fields["input"], item.fields["output"]),))


def _render_chat(template: Template, question: str, tokenizer: Any) -> str:
    if not getattr(tokenizer, "chat_template", None):
        raise ConfigError(
            f"'{template.name}' needs a base whose tokenizer has a chat template: choose 'plain', which has the same words "
            "(`--templates code=plain`)"
        )
    turns = [{"role": "user", "content": question}, {"role": "assistant", "content": f"{template.response}{_MARK}\n```\n"}]
    prompt, mark, _ = str(tokenizer.apply_chat_template(turns, tokenize=False)).rpartition(_MARK)
    if not mark:
        raise ConfigError(f"'{template.name}' begins the assistant's turn, which this tokenizer's chat template drops: choose 'plain'")
    bos = getattr(tokenizer, "bos_token", None)
    if bos and prompt.startswith(bos) and tokenizer("")["input_ids"][:1] == [tokenizer.bos_token_id]:
        return prompt.removeprefix(bos)  # the tokenizer adds it to every text, too
    return prompt


@dataclass(frozen=True)
class EvalTask:
    """A benchmark with its items and options. ``template`` and ``max_tokens`` replace the benchmark's own; ``limit`` 0 takes all items."""

    benchmark: Benchmark
    items: Sequence[Item]
    data_sha256: str = ""
    template: str = ""
    max_tokens: int = 0
    limit: int = 0

    @property
    def asked(self) -> str:
        """How many items are asked for, in words: ``1319 items``, or ``the first 2 items``."""
        return f"the first {plural(self.limit, 'item')}" if 0 < self.limit < len(self.items) else plural(len(self.items), "item")


@dataclass(frozen=True)
class EvalPrompts:
    """The prompts of a task by item, in the order of the items, for every model; lengths are in tokens."""

    task: EvalTask
    template: Template
    max_tokens: int
    prompts: Mapping[str, str]
    left_out: Mapping[str, str] = field(default_factory=dict)
    """The reason why an item has no prompt, by item."""
    longest_prompt: int = 0
    lowered_from: int = 0
    """The benchmark's own longest response, where the context has no space for it."""

    @property
    def benchmark(self) -> Benchmark:
        """The benchmark of the task."""
        return self.task.benchmark

    def settings(self) -> dict[str, Any]:
        """Collect everything that completions depend on, in addition to the model."""
        template, prompts = f"{self.template.name} {self.template.version}", self.template.prompts
        label = f"{template} ({prompts.name} {prompts.version})" if prompts else template
        values = {"sha256": self.task.data_sha256, "items": len(self.task.items), "template": label}
        values |= {"max_tokens": self.max_tokens, "stop": list(self.template.stop), "left_out": dict(self.left_out)}
        return values | ({"lowered_from": self.lowered_from} if self.lowered_from else {})


def render_prompts(task: EvalTask, tokenizer: Any, context: int, limits: SelfplayConfig, prompts: PromptSet) -> EvalPrompts:
    """Render the prompts for a base model with this tokenizer (None: a served model's) and context. Raises `ConfigError`."""
    template = load_template(task.template or task.benchmark.template, task.benchmark, prompts)
    texts = {item.id: render(template, task.benchmark, item, tokenizer) for item in task.items}
    lengths = {name: len(tokenizer(text)["input_ids"]) if tokenizer else 0 for name, text in texts.items()}
    limit = response_limit(task, limits, context, max(lengths.values(), default=0))  # of all items, also where only some are used
    used = list(texts)[: task.limit or None]
    rendered = {name: texts[name] for name in used if lengths[name] + limit <= context}
    reason = f"tokens and {limit} for the response exceed the context of {context}"
    left_out = {name: f"too_long: {lengths[name]} {reason}" for name in used if name not in rendered}
    lowered_from = task.benchmark.max_tokens if limit < task.benchmark.max_tokens and not task.max_tokens else 0
    return EvalPrompts(task, template, limit, rendered, left_out, max((lengths[name] for name in rendered), default=0), lowered_from)


def response_limit(task: EvalTask, limits: SelfplayConfig, context: int, longest_prompt: int) -> int:
    """Choose the longest response in tokens: the task's, else the benchmark's own (AZR's), else the run's.

    A benchmark's own limit that fills the context of a small base model is replaced by the run's, if that is less. A limit that leaves no
    space for ``longest_prompt`` is lowered, but not below half of the context. Raises `ConfigError` where the task's fills the context.
    """
    if task.max_tokens >= context:
        fault = f"{task.benchmark.name}: max_tokens is {task.max_tokens}"
        raise ConfigError(f"{fault}, and the base's context of {context} tokens is for the prompt, too: lower it")
    if task.max_tokens:
        return task.max_tokens
    limit = task.benchmark.max_tokens or limits.max_response_tokens
    if limit >= context:
        limit = min(limit, limits.max_response_tokens)
    return min(limit, max(context - longest_prompt, context // 2))
