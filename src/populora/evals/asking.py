"""Which items of a benchmark a model is asked, and how: those whose prompt and longest response its context holds. The others are named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from populora.config import SelfplayConfig
from populora.errors import ConfigError
from populora.evals.benchmarks import Benchmark
from populora.evals.prompts import Template, load_template, question, render
from populora.evals.records import Item
from populora.tasks.render import PromptSet


@dataclass(frozen=True)
class Paper:
    """A benchmark as it is set: its items, and where they differ from the benchmark's own, template and longest response (0: its own)."""

    benchmark: Benchmark
    items: Sequence[Item]
    template: str = ""
    max_tokens: int = 0


@dataclass(frozen=True)
class Asked:
    """What is asked of every source. ``prompts`` are by item, in the order of the items."""

    benchmark: Benchmark
    template: Template
    max_tokens: int
    prompts: Mapping[str, str]
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Why an item is not asked, by item."""
    longest: int = 0
    """Tokens of the longest prompt."""

    def described(self) -> dict[str, Any]:
        """What completions depend on beside the item and the model, and what has none."""
        settings = {"template": self.template.label, "max_tokens": self.max_tokens, "stop": list(self.template.stop)}
        return settings | {"left_out": dict(self.left_out)}


def ask(paper: Paper, tokenizer: Any, context: int, limits: SelfplayConfig, prompts: PromptSet) -> Asked:
    """The prompts of a benchmark for a base with this tokenizer and context; ``limits`` and ``prompts`` are those of its run.

    Raises `ConfigError` for a template that does not fit the benchmark, and for a limit that leaves no room for any prompt.
    """
    template = load_template(paper.template or paper.benchmark.template, paper.benchmark, prompts)
    limit = response_limit(paper, limits, context)
    asked: dict[str, str] = {}
    left_out: dict[str, str] = {}
    longest = 0
    for item in _distinct(paper):
        prompt = render(template, paper.benchmark, item, tokenizer)
        ids = tokenizer(prompt)["input_ids"]
        if reason := _unfit(ids, tokenizer, context, limit):
            left_out[item.id] = reason
        else:
            asked[item.id], longest = prompt, max(longest, len(ids))
    return Asked(paper.benchmark, template, limit, asked, left_out, longest)


def ask_elsewhere(paper: Paper, max_tokens: int, prompts: PromptSet) -> Asked:
    """The questions of a benchmark for a model of unknown tokenizer and context; ``max_tokens`` where the benchmark has no limit."""
    template = load_template(paper.template or paper.benchmark.template, paper.benchmark, prompts)
    asked = {item.id: question(template, paper.benchmark, item) for item in _distinct(paper)}
    return Asked(paper.benchmark, template, paper.max_tokens or paper.benchmark.max_tokens or max_tokens, asked)


def response_limit(paper: Paper, limits: SelfplayConfig, context: int) -> int:
    """Longest response in tokens: what was asked for, else the benchmark's own, which is AZR's, else the run's.

    A benchmark's own that fills a small base's context alone gives way to the run's, or to half of the context. Raises `ConfigError`
    where the limit that was asked for fills it.
    """
    if paper.max_tokens >= context:
        raise ConfigError(
            f"{paper.benchmark.name}: max_tokens is {paper.max_tokens}, and the base's context of {context} tokens is for the prompt, too: "
            "lower it"
        )
    wanted = paper.max_tokens or paper.benchmark.max_tokens or limits.max_response_tokens
    return wanted if wanted < context else min(limits.max_response_tokens, context // 2)


def _unfit(ids: Sequence[int], tokenizer: Any, context: int, limit: int) -> str:
    if len(ids) + limit > context:
        return f"too_long: {len(ids)} tokens and {limit} for the response exceed the context of {context}"
    unknown = getattr(tokenizer, "unk_token_id", None)
    return "unknown_characters" if unknown is not None and unknown in ids else ""


def _distinct(paper: Paper) -> Sequence[Item]:
    names: set[str] = set()
    for item in paper.items:
        if item.id in names:
            raise ConfigError(f"{paper.benchmark.name} has two items '{item.id}': their completions could not be told apart")
        names.add(item.id)
    return paper.items
