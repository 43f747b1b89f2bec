"""Which items of a benchmark a model is asked, and how: those whose prompt and longest response its context holds. The others are named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from populora.core.config import SelfplayConfig
from populora.core.errors import ConfigError
from populora.evals.benchmarks import Benchmark
from populora.evals.prompts import Template, load_template, question, render
from populora.evals.records import Item
from populora.tasks.render import PromptSet


@dataclass(frozen=True)
class Paper:
    """A benchmark as it is set: its items, of which the first ``only`` are asked (0: all), and where they differ from the benchmark's own,
    template and longest response (0: its own)."""

    benchmark: Benchmark
    items: Sequence[Item]
    template: str = ""
    max_tokens: int = 0
    only: int = 0


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
    lowered_from: int = 0
    """The benchmark's own longest response, where the context has no room for it."""

    def described(self) -> dict[str, Any]:
        """What completions depend on beside the item and the model, and what has none."""
        settings = {"template": self.template.label, "max_tokens": self.max_tokens, "stop": list(self.template.stop)}
        lowered = {"lowered_from": self.lowered_from} if self.lowered_from else {}
        return settings | lowered | {"left_out": dict(self.left_out)}


def ask(paper: Paper, tokenizer: Any, context: int, limits: SelfplayConfig, prompts: PromptSet) -> Asked:
    """The prompts of a benchmark for a base with this tokenizer and context; ``limits`` and ``prompts`` are those of its run.

    The longest response depends on all items of the paper, also where only some are asked. Raises `ConfigError` for a template that does
    not fit the benchmark, and for a limit that leaves no room for any prompt.
    """
    template = load_template(paper.template or paper.benchmark.template, paper.benchmark, prompts)
    texts = {item.id: render(template, paper.benchmark, item, tokenizer) for item in _distinct(paper)}
    lengths = {name: len(tokenizer(text)["input_ids"]) for name, text in texts.items()}
    limit, own = response_limit(paper, limits, context, max(lengths.values(), default=0)), paper.benchmark.max_tokens
    asked: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name in list(texts)[: paper.only or None]:
        if lengths[name] + limit > context:
            left_out[name] = f"too_long: {lengths[name]} tokens and {limit} for the response exceed the context of {context}"
        elif _has_unknown(texts[name], tokenizer):
            left_out[name] = "unknown_characters"
        else:
            asked[name] = texts[name]
    longest = max((lengths[name] for name in asked), default=0)
    return Asked(paper.benchmark, template, limit, asked, left_out, longest, own if limit < own and not paper.max_tokens else 0)


def ask_elsewhere(paper: Paper, max_tokens: int, prompts: PromptSet) -> Asked:
    """The questions of a benchmark for a model of unknown tokenizer and context; ``max_tokens`` where the benchmark has no limit."""
    template = load_template(paper.template or paper.benchmark.template, paper.benchmark, prompts)
    asked = {item.id: question(template, paper.benchmark, item) for item in _distinct(paper)[: paper.only or None]}
    return Asked(paper.benchmark, template, paper.max_tokens or paper.benchmark.max_tokens or max_tokens, asked)


def response_limit(paper: Paper, limits: SelfplayConfig, context: int, longest: int) -> int:
    """Longest response in tokens: what was asked for, else the benchmark's own, which is AZR's, else the run's.

    A benchmark's own that alone fills the context of a small base gives way to the run's, if that is less. What then leaves no room for
    the ``longest`` prompt is lowered to what does, but not below half of the context: longer prompts are not asked. Raises `ConfigError`
    where the limit that was asked for fills the context.
    """
    if paper.max_tokens >= context:
        raise ConfigError(
            f"{paper.benchmark.name}: max_tokens is {paper.max_tokens}, and the base's context of {context} tokens is for the prompt, too: "
            "lower it"
        )
    if paper.max_tokens:
        return paper.max_tokens
    wanted = paper.benchmark.max_tokens or limits.max_response_tokens
    if wanted >= context:
        wanted = min(wanted, limits.max_response_tokens)
    return min(wanted, max(context - longest, context // 2))


def _has_unknown(text: str, tokenizer: Any) -> bool:
    """Whether there are characters that the tokenizer does not know. Its token for them may be one that stands in the text by itself, such
    as that of a chat template's beginning: then it has to be there more often."""
    unknown = getattr(tokenizer, "unk_token_id", None)
    if unknown is None:
        return False
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids.count(unknown) > text.count(tokenizer.unk_token)


def _distinct(paper: Paper) -> Sequence[Item]:
    names: set[str] = set()
    for item in paper.items:
        if item.id in names:
            raise ConfigError(f"{paper.benchmark.name} has two items '{item.id}': their completions could not be told apart")
        names.add(item.id)
    return paper.items
