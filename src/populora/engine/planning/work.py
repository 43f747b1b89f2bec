"""Responses, tokens and FLOPs of one step, counted from the settings (the step is `populora.training.step`).

FLOPs are those that the result needs, once. The base is frozen: a weight costs a token 2 forward and 2 backward (the gradient of its
input), an adapter's 2 and 4, attention 4 forward and 8 backward for each pair of tokens that see each other, per head and dimension.
"""

from __future__ import annotations

from dataclasses import dataclass

from populora.core.config import Config
from populora.engine.planning.assumptions import Assumptions
from populora.engine.planning.shapes import Shapes

Checkpointing = str
"""As `learner.activation_checkpointing`."""


@dataclass(frozen=True)
class Texts:
    """``rows`` responses to ``prompts`` prompts, each computed once for all its responses; lengths are means, in tokens."""

    prompts: float
    rows: float
    prompt_tokens: float
    response_tokens: float

    @property
    def read(self) -> float:
        """Tokens of the prompts."""
        return self.prompts * self.prompt_tokens

    @property
    def written(self) -> float:
        """Tokens of the responses."""
        return self.rows * self.response_tokens

    @property
    def prompt_pairs(self) -> float:
        """Pairs of tokens that see each other within prompts."""
        return self.prompts * self.prompt_tokens**2 / 2

    @property
    def response_pairs(self) -> float:
        """Pairs of which the later one is in a response."""
        return self.written * (self.prompt_tokens + self.response_tokens / 2)

    def unshared(self) -> Texts:
        """The same rows with a prompt computed for each: what it costs where prompts are not shared."""
        return Texts(self.rows, self.rows, self.prompt_tokens, self.response_tokens)


@dataclass(frozen=True)
class Work:
    """What a step samples from proposers and solvers, and what it learns from."""

    proposals: Texts
    attempts: Texts
    trained: Texts

    @property
    def sampled(self) -> Texts:
        """Proposals and attempts together; all have the same mean lengths."""
        first, second = self.proposals, self.attempts
        return Texts(first.prompts + second.prompts, first.rows + second.rows, first.prompt_tokens, first.response_tokens)


def step_work(config: Config, assumed: Assumptions) -> Work:
    """A proposer answers ``3 prompts_per_type`` prompts; a solver attempts all valid problems of its teachers and, where these are too few,
    as many from the buffer; it trains on those of ``3 prompts_per_type`` (readings 3 to 5)."""
    play, lengths = config.selfplay, (assumed.prompt_tokens, assumed.response_tokens)
    alone = config.population.single_agent
    proposers, solvers = (1, 1) if alone else (config.population.teachers, config.population.students)
    wanted = 3 * play.prompts_per_type
    asked, chosen = proposers * wanted, solvers * wanted
    proposed = asked * play.samples_per_prompt
    problems = solvers * max(assumed.valid * proposed / solvers, wanted)
    return Work(
        Texts(asked, proposed, *lengths),
        Texts(problems, problems * play.rho_samples, *lengths),
        Texts(asked + chosen, proposed + chosen * play.rho_samples, *lengths),
    )


def prompt_flops(shapes: Shapes, adapter: int, texts: Texts) -> float:
    """Prompts alone, before the first token of a response."""
    return 2 * texts.read * (shapes.linear + adapter) + 4 * _attention(shapes) * texts.prompt_pairs


def decode_flops(shapes: Shapes, adapter: int, texts: Texts) -> float:
    """Responses token by token, head included."""
    return 2 * texts.written * (shapes.linear + shapes.head + adapter) + 4 * _attention(shapes) * texts.response_pairs


def forward_flops(shapes: Shapes, adapter: int, texts: Texts) -> float:
    """Log-probabilities of the responses' tokens."""
    pairs = texts.prompt_pairs + texts.response_pairs
    tokens = texts.read + texts.written
    return 2 * tokens * (shapes.linear + adapter) + 2 * texts.written * shapes.head + 4 * _attention(shapes) * pairs


def train_flops(shapes: Shapes, adapter: int, texts: Texts, checkpointing: Checkpointing) -> float:
    """Forward, backward and what checkpointing computes again."""
    pairs = texts.prompt_pairs + texts.response_pairs
    tokens = texts.read + texts.written
    once = tokens * (4 * shapes.linear + 6 * adapter) + 4 * texts.written * shapes.head + 12 * _attention(shapes) * pairs
    again = {
        "none": 0.0,
        "mlp": 2 * tokens * 3 * shapes.layers * shapes.hidden * shapes.inner,
        "layer": 2 * tokens * (shapes.linear + adapter) + 4 * _attention(shapes) * pairs,
    }
    return once + again[checkpointing]


def _attention(shapes: Shapes) -> int:
    """Heads times their dimensions, in all layers."""
    return shapes.layers * shapes.heads * shapes.head_size
