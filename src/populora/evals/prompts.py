"""Prompts of items, from versioned templates (``templates/*.toml``) with the wording of AZR's evaluation.

Each template lists the kinds of benchmarks that it is for, and the texts that end a response. ``chat`` templates go through the base
model's chat template with the assistant's turn begun, as evalplus does; ``raw`` ones are the whole prompt; ``solve`` takes the solver's
prompts of training. Braces in an item's text stay as they are.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from populora.core.errors import ConfigError
from populora.core.types import Example, Problem, TaskType
from populora.evals.benchmarks import GROUPS, Benchmark, suite
from populora.evals.records import Item
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
    """The solver's prompts, in ``solve`` only."""

    @property
    def label(self) -> str:
        """The name and version, such as ``evalplus_chat 1``, with those of the prompt set."""
        return f"{self.name} {self.version}" + (f" ({self.prompts.name} {self.prompts.version})" if self.prompts else "")


@cache
def template_names() -> tuple[str, ...]:
    """The names of the packaged templates."""
    return tuple(sorted(file.name.removesuffix(".toml") for file in files("populora.evals").joinpath("templates").iterdir()))


def load_template(name: str, benchmark: Benchmark, prompts: PromptSet) -> Template:
    """Read the template for a benchmark; ``solve`` takes ``prompts``. Raises `ConfigError` for an unknown or unsuitable one."""
    if not suits(name, benchmark):
        suitable = [other for other in template_names() if suits(other, benchmark)]
        raise ConfigError(f"the template '{name}' is not for {benchmark.name}: expected {' or '.join(suitable)}")
    template = _read(name)
    if template.kind == "solve":
        return replace(template, prompts=prompts, stop=(prompts.stop,) if prompts.stop else ())
    return template


def suits(name: str, benchmark: Benchmark) -> bool:
    """Whether the template is for the benchmark. Raises `ConfigError` for an unknown one."""
    if name not in template_names():
        raise ConfigError(f"unknown prompt template '{name}': expected one of {', '.join(template_names())}")
    return benchmark.grading in _read(name).gradings


@cache
def _read(name: str) -> Template:
    text = files("populora.evals").joinpath("templates").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    values: dict[str, Any] = tomllib.loads(text)
    values["gradings"], values["stop"] = tuple(values["gradings"]), tuple(values["stop"])
    return Template(**values)


def parse_templates(text: str, benchmarks: Sequence[Benchmark]) -> dict[str, str]:
    """Parse ``--templates`` (``code=plain,math500=azr_math_boxed``) to the template of each benchmark.

    A group's template is for those of its benchmarks that it suits; a benchmark's own takes precedence. Raises `ConfigError`.
    """
    groups: dict[str, str] = {}
    single: dict[str, str] = {}
    for pair in (pair.strip() for pair in text.split(",") if pair.strip()):
        name, _, template = (part.strip() for part in pair.partition("="))
        try:
            named = suite([name] if template else [""])
        except ConfigError as error:
            raise ConfigError(
                f"--templates has '{pair}': expected BENCHMARK=TEMPLATE or GROUP=TEMPLATE, such as code=plain; {error}"
            ) from error
        selected = [one for one in named if one in benchmarks]
        if not selected:
            raise ConfigError(f"--templates has '{pair}', but --suite has no such benchmark: leave it out")
        suitable = [one for one in selected if suits(template, one)]
        if not suitable:
            load_template(template, selected[0], load_prompts("compact"))  # its error lists the suitable ones
        (groups if name in GROUPS else single).update({one.name: template for one in suitable})
    return groups | single


def render(template: Template, benchmark: Benchmark, item: Item, tokenizer: Any) -> str:
    """Render the whole prompt. Raises `ConfigError` for an item that lacks fields, and for a tokenizer without a chat template."""
    question = render_question(template, benchmark, item)
    return _render_chat(template, question, tokenizer) if template.kind == "chat" else question


def render_question(template: Template, benchmark: Benchmark, item: Item) -> str:
    """Render the user's turn in ``chat``, else the whole prompt. Raises `ConfigError` as `render`."""
    if template.prompts is not None:
        return solve_prompt(template.prompts, problem_of(benchmark, item))
    match benchmark.grading:
        case "code":
            return fill(template.text, problem=_text(benchmark, item, "prompt").strip())
        case "mathematics":
            name = "question" if "question" in item.fields else "problem"
            return fill(template.text, question=_text(benchmark, item, name).strip())
        case _:
            starter = _text(benchmark, item, "starter_code")
            form = fill(template.format["with_starter" if starter else "without_starter"], starter=starter)
            return fill(template.text, question=_text(benchmark, item, "question_content"), format=form)


def problem_of(benchmark: Benchmark, item: Item) -> Problem:
    """Convert an item of CRUXEval or the tiny suite to a problem of training. Raises `ConfigError`."""
    if benchmark.grading == "selfplay":
        try:
            return problem_from(dict(item.fields))
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{benchmark.name}, item '{item.id}': expected a problem ({type(error).__name__}: {error})") from error
    task = TaskType.CODE_I if benchmark.name == "cruxeval_input" else TaskType.CODE_O
    code, inputs, output = (_text(benchmark, item, name) for name in ("code", "input", "output"))
    return Problem(item.id, task, code, (Example(inputs, output),))


def _render_chat(template: Template, question: str, tokenizer: Any) -> str:
    if not getattr(tokenizer, "chat_template", None):
        raise ConfigError(
            f"the template '{template.name}' needs a base whose tokenizer has a chat template, and this one's has none: choose 'plain', "
            "which has the same words without it"
        )
    turns = [{"role": "user", "content": question}, {"role": "assistant", "content": f"{template.response}{_MARK}\n```\n"}]
    prompt, mark, _ = str(tokenizer.apply_chat_template(turns, tokenize=False)).rpartition(_MARK)
    if not mark:
        raise ConfigError(
            f"the template '{template.name}' begins the assistant's turn, which this tokenizer's chat template leaves out: choose 'plain'"
        )
    bos = getattr(tokenizer, "bos_token", None)
    if bos and prompt.startswith(bos) and tokenizer("")["input_ids"][:1] == [tokenizer.bos_token_id]:
        return prompt.removeprefix(bos)  # the tokenizer adds it to every text, too
    return prompt


def _text(benchmark: Benchmark, item: Item, name: str) -> str:
    value = item.fields.get(name)
    if not isinstance(value, str):
        raise ConfigError(f"{benchmark.name}, item '{item.id}': expected the text '{name}', got {value!r:.80}")
    return value
