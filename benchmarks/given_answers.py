"""Let the in-process sampler write given answers instead of its own, for benchmarks of bases with random weights.

The model decodes as ever, and the log-probabilities are those that it gives to the tokens of the answers. Most proposals are valid,
a half or a third of the attempts are right. Filler before an answer brings it to a given number of tokens.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any
from unittest import mock
from zlib import crc32

import numpy as np
import torch

from populora.core.types import Kind, Problem
from populora.engine.sampling import decoders
from populora.engine.sampling.inprocess import InProcessSampler
from populora.engine.sampling.token_sampling import BLOCK, sample_tokens
from populora.tasks.attempts import SolveRequest
from populora.tasks.proposals import ProposalRequest


def given_answers(tokens: int) -> AbstractContextManager[None]:
    """Give every sampler in the block its answers, of about ``tokens`` tokens each."""
    return given_tokens(lambda tokenizer, request, sample: filled(tokenizer, answer(request, sample), tokens))


@contextmanager
def given_tokens(tokens_of: Callable[[Any, ProposalRequest | SolveRequest, int], list[int]]) -> Iterator[None]:
    """Give every sampler in the block the tokens of its responses: ``tokens_of(tokenizer, request, sample)``."""
    prepare = InProcessSampler._prepare

    def prepared(sampler, request, max_tokens, keys):
        active = prepare(sampler, request, max_tokens, keys)
        if isinstance(request, ProposalRequest | SolveRequest):
            active.uniforms = GivenTokens([tokens_of(sampler.tokenizer, request, sample) for sample in range(request.samples)])
        return active

    with mock.patch.object(InProcessSampler, "_prepare", prepared), mock.patch.object(decoders, "sample_tokens", take_given):
        yield


class GivenTokens:
    """Stands in for `UniformStream`: its number for a token is 1 more than the token's id."""

    def __init__(self, responses: Sequence[Sequence[int]]):
        self._responses = responses

    def block(self, sample: int, number: int) -> np.ndarray:
        """See `UniformStream.block`."""
        tokens = self._responses[sample][number * BLOCK : (number + 1) * BLOCK]
        return np.pad(np.array(tokens, dtype=np.float64) + 1, (0, BLOCK - len(tokens)))


def take_given(logits: torch.Tensor, temperature: float, uniforms: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sample as `sample_tokens` does, except where a number is 1 or more and names the token. It normalises the logits once more."""
    tokens, _, entropies = sample_tokens(logits, temperature, torch.where(uniforms < 1, uniforms, 0.0))
    wanted = uniforms.to(tokens.device).long() - 1
    tokens = torch.where(wanted >= 0, wanted, tokens)
    return tokens, logits.log_softmax(-1).gather(1, tokens[:, None])[:, 0], entropies


def filled(tokenizer, text: str, tokens: int) -> list[int]:
    """Tokens of a response that thinks until it has about ``tokens`` tokens."""
    ending = tokenizer(f"</think><answer>{text}</answer>")["input_ids"]
    return [*thought(tokenizer, tokens)[: max(0, tokens - len(ending))], *ending]


@cache
def thought(tokenizer, tokens: int) -> list[int]:
    """At least so many tokens of filler, computed once: what a benchmark measures is not this."""
    return tokenizer("x = 1\n" * tokens)["input_ids"]


def answer(request: ProposalRequest | SolveRequest, sample: int, inputs: int = 6) -> str:
    """The answer of one sample."""
    right = is_right(request.slot, sample)
    return "\n".join(solution(request.problem, right) if isinstance(request, SolveRequest) else proposal(request, sample, inputs))


def proposal(request: ProposalRequest, sample: int, wanted: int) -> list[str]:
    """A new program, every third one invalid; of kind ``f`` so many inputs with other numbers than the one shown."""
    if request.task.kind is Kind.PROGRAM:
        shown = request.source.shown[0].inputs
        inputs = [re.sub(r"\d+", lambda match, by=by: str(int(match[0]) + by), shown) for by in range(wanted)]
        return [*(fence("input", text) for text in inputs), fence("message", f"hint {sample}")]
    number = crc32(repr(request.key).encode()) % 1000 + sample
    wrong = "  return q" if sample % 3 == 2 else f"    return x * {number} % 7"
    return [fence("python", f"def f(x, y):\n    x = x + y\n{wrong}"), fence("input", f"{number % 10}, {sample}")]


def is_right(slot: int, sample: int) -> bool:
    """Whether this answer is right: every other one of a slot, of the next slot every third one, so that members differ."""
    return (sample + slot) % (2 + slot % 2) == 0


def solution(problem: Problem, right: bool) -> list[str]:
    tags = {Kind.INPUT: "input", Kind.OUTPUT: "output", Kind.PROGRAM: "python"}
    contents = {Kind.INPUT: problem.shown[0].inputs, Kind.OUTPUT: problem.shown[0].output, Kind.PROGRAM: problem.program}
    wrong = {Kind.INPUT: "-1", Kind.OUTPUT: "-123456", Kind.PROGRAM: "def f(x):\n    return -123456"}
    return [fence(tags[problem.task.kind], (contents if right else wrong)[problem.task.kind])]


def fence(tag: str, content: str) -> str:
    return f"```{tag}\n{content}\n```"
