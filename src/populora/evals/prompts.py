"""What a model is asked: prompts of items, from versioned templates (``templates/*.toml``), as AZR's evaluation words them.

Each template names the benchmarks that it is for by how they are graded, and the texts that end a response. ``chat`` templates go
through the base's own chat template with the assistant's turn begun, as evalplus does; ``raw`` ones are the whole prompt; ``solve`` takes
the solver's prompts of training. Braces in an item's text stay as they are. The token that begins a text is not in a
prompt where the tokenizer adds it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from populora.core.errors import ConfigError
from populora.core.types import Example, Problem, TaskType
from populora.evals.benchmarks import Benchmark
from populora.evals.records import Item
from populora.tasks.render import PromptSet, fill, solve_prompt
from populora.training.buffer import problem_from

_MARK = "(the response begins here)"
"""Stands for the response while a chat template is filled. It has a text after it: templates may strip the end of a turn."""


@dataclass(frozen=True)
class Template:
    """One template file. ``response`` is the beginning of the assistant's turn, in ``chat`` only."""

    name: str
    version: int
    kind: Literal["chat", "raw", "solve"]
    gradings: tuple[str, ...]
    stop: tuple[str, ...]
    """Texts before which a completion ends. In ``solve`` the completion ends with it: the answer's closing tag belongs to the answer."""
    text: str
    response: str = ""
    format: Mapping[str, str] = field(default_factory=dict)
    prompts: PromptSet | None = None
    """Of ``solve``."""

    @property
    def label(self) -> str:
        """Name and version, such as ``evalplus_chat 1``, with those of the prompt set."""
        return f"{self.name} {self.version}" + (f" ({self.prompts.name} {self.prompts.version})" if self.prompts else "")


@cache
def template_names() -> tuple[str, ...]:
    """The templates that ship."""
    return tuple(sorted(file.name.removesuffix(".toml") for file in files("populora.evals").joinpath("templates").iterdir()))


def load_template(name: str, benchmark: Benchmark, prompts: PromptSet) -> Template:
    """The template ``name`` for a benchmark; ``prompts`` are what ``solve`` asks with. Raises `ConfigError` for an unknown or unfit one."""
    if not fits(name, benchmark):
        fitting = [other for other in template_names() if fits(other, benchmark)]
        raise ConfigError(f"the template '{name}' is not for {benchmark.name}: expected {' or '.join(fitting)}")
    found = _read(name)
    if found.kind == "solve":
        return replace(found, prompts=prompts, stop=(prompts.stop,) if prompts.stop else ())
    return found


def fits(name: str, benchmark: Benchmark) -> bool:
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


def render(template: Template, benchmark: Benchmark, item: Item, tokenizer: Any) -> str:
    """The whole prompt. Raises `ConfigError` for an item without the fields it needs and a tokenizer without a chat template."""
    asked = question(template, benchmark, item)
    return _in_chat(template, asked, tokenizer) if template.kind == "chat" else asked


def question(template: Template, benchmark: Benchmark, item: Item) -> str:
    """What is asked: the user's turn in ``chat``, else the whole prompt. Raises `ConfigError` as `render`."""
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
    """The problem of training that an item of CRUXEval or the tiny suite is. Raises `ConfigError` for an item that is none."""
    if benchmark.grading == "selfplay":
        try:
            return problem_from(dict(item.fields))
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{benchmark.name}, item '{item.id}': expected a problem ({type(error).__name__}: {error})") from error
    task = TaskType.CODE_I if benchmark.name == "cruxeval_input" else TaskType.CODE_O
    code, inputs, output = (_text(benchmark, item, name) for name in ("code", "input", "output"))
    return Problem(item.id, task, code, (Example(inputs, output),))


def _in_chat(template: Template, asked: str, tokenizer: Any) -> str:
    if not getattr(tokenizer, "chat_template", None):
        raise ConfigError(
            f"the template '{template.name}' needs a base whose tokenizer has a chat template, and this one's has none: choose 'plain', "
            "which has the same words without it"
        )
    turns = [{"role": "user", "content": asked}, {"role": "assistant", "content": f"{template.response}{_MARK}\n```\n"}]
    prompt, found, _ = str(tokenizer.apply_chat_template(turns, tokenize=False)).rpartition(_MARK)
    if not found:
        raise ConfigError(
            f"the template '{template.name}' begins the assistant's turn, which this tokenizer's chat template leaves out: choose 'plain'"
        )
    return _begun_once(prompt, tokenizer)


def _begun_once(prompt: str, tokenizer: Any) -> str:
    """A chat template may write the token that begins a text, and so do tokenizers whenever a text becomes tokens: leave it to them."""
    begin = getattr(tokenizer, "bos_token", None)
    if begin and prompt.startswith(begin) and tokenizer("")["input_ids"][:1] == [tokenizer.bos_token_id]:
        return prompt.removeprefix(begin)
    return prompt


def _text(benchmark: Benchmark, item: Item, name: str) -> str:
    value = item.fields.get(name)
    if not isinstance(value, str):
        raise ConfigError(f"{benchmark.name}, item '{item.id}': expected the text '{name}', got {value!r:.80}")
    return value
