"""Select the items of a benchmark whose prompt and longest response fit the model's context. The others are reported as left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from populora.core.config import SelfplayConfig
from populora.core.errors import ConfigError
from populora.evals.benchmarks import Benchmark
from populora.evals.prompts import Template, load_template, render, render_question
from populora.evals.records import Item
from populora.tasks.render import PromptSet


@dataclass(frozen=True)
class EvalTask:
    """A benchmark with its items and options. ``template`` and ``max_tokens`` replace the benchmark's own; ``limit`` 0 takes all items."""

    benchmark: Benchmark
    items: Sequence[Item]
    data_sha256: str = ""
    template: str = ""
    max_tokens: int = 0
    limit: int = 0


@dataclass(frozen=True)
class EvalPrompts:
    """The prompts of a task by item, in the order of the items, for every model."""

    task: EvalTask
    template: Template
    max_tokens: int
    prompts: Mapping[str, str]
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Why an item has no prompt, by item."""
    longest_prompt: int = 0
    """Tokens."""
    lowered_from: int = 0
    """The benchmark's own longest response, where the context has no room for it."""

    @property
    def benchmark(self) -> Benchmark:
        """The benchmark of the task."""
        return self.task.benchmark

    def settings(self) -> dict[str, Any]:
        """Everything that completions depend on, in addition to the model."""
        values = {"sha256": self.task.data_sha256, "items": len(self.task.items), "template": self.template.label}
        values |= {"max_tokens": self.max_tokens, "stop": list(self.template.stop), "left_out": dict(self.left_out)}
        return values | ({"lowered_from": self.lowered_from} if self.lowered_from else {})


def render_prompts(task: EvalTask, tokenizer: Any, context: int, limits: SelfplayConfig, prompts: PromptSet) -> EvalPrompts:
    """Render the prompts for a base model with this tokenizer and context; ``limits`` and ``prompts`` are those of its run.

    The longest response depends on all items, also where only some are used. Raises `ConfigError` for a template that does not suit the
    benchmark, and for a limit that leaves no room for any prompt.
    """
    template = load_template(task.template or task.benchmark.template, task.benchmark, prompts)
    texts = {item.id: render(template, task.benchmark, item, tokenizer) for item in task.items}
    lengths = {name: len(tokenizer(text)["input_ids"]) for name, text in texts.items()}
    limit = response_limit(task, limits, context, max(lengths.values(), default=0))
    rendered: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name in list(texts)[: task.limit or None]:
        if lengths[name] + limit > context:
            left_out[name] = f"too_long: {lengths[name]} tokens and {limit} for the response exceed the context of {context}"
        elif _has_unknown(texts[name], tokenizer):
            left_out[name] = "unknown_characters"
        else:
            rendered[name] = texts[name]
    lowered_from = task.benchmark.max_tokens if limit < task.benchmark.max_tokens and not task.max_tokens else 0
    return EvalPrompts(task, template, limit, rendered, left_out, max((lengths[name] for name in rendered), default=0), lowered_from)


def render_prompts_for_api(task: EvalTask, max_tokens: int, prompts: PromptSet) -> EvalPrompts:
    """Render the prompts for a model of unknown tokenizer and context. ``max_tokens`` is for benchmarks without a limit of their own."""
    template = load_template(task.template or task.benchmark.template, task.benchmark, prompts)
    rendered = {item.id: render_question(template, task.benchmark, item) for item in task.items[: task.limit or None]}
    return EvalPrompts(task, template, task.max_tokens or task.benchmark.max_tokens or max_tokens, rendered)


def response_limit(task: EvalTask, limits: SelfplayConfig, context: int, longest_prompt: int) -> int:
    """The longest response in tokens: the task's, else the benchmark's own (AZR's), else the run's.

    A benchmark's own limit that fills the context of a small base model is replaced by the run's, if that is less. A limit that leaves no
    room for ``longest_prompt`` is lowered, but not below half of the context. Raises `ConfigError` where the task's fills the context.
    """
    if task.max_tokens >= context:
        raise ConfigError(
            f"{task.benchmark.name}: max_tokens is {task.max_tokens}, and the base's context of {context} tokens is for the prompt, too: "
            "lower it"
        )
    if task.max_tokens:
        return task.max_tokens
    limit = task.benchmark.max_tokens or limits.max_response_tokens
    if limit >= context:
        limit = min(limit, limits.max_response_tokens)
    return min(limit, max(context - longest_prompt, context // 2))


def _has_unknown(text: str, tokenizer: Any) -> bool:
    """Whether the tokenizer does not know some characters. A chat template may write the unknown token itself, which does not count."""
    unknown = getattr(tokenizer, "unk_token_id", None)
    if unknown is None:
        return False
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids.count(unknown) > text.count(tokenizer.unk_token)
