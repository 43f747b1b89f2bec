"""Answers as a model of the Qwen family would write them, token by token, for either sampler.

A base with random weights writes nothing that parses. So the samplers are told which token comes next, and all else is theirs: the model
decodes, ends at its own end of text or at the limit, and the log-probabilities are those that it gives to these tokens.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import torch
from benchmarks.given_answers import answer, given_tokens

from populora.core.types import Request
from populora.engine.sampling import vllm as backend
from populora.tasks.attempts import SolveRequest
from populora.tasks.proposals import ProposalRequest

Scripted = ProposalRequest | SolveRequest
INPUTS = 3
"""Of a proposal of code_f."""
ENDS = ("<|im_end|>", "<|endoftext|>")
MESSAGE = "把数字加起来 🙂 naïve"
"""Its characters take several tokens each, or share one."""


def text_of(request: Scripted, sample: int) -> str:
    """A response without its end. The last proposal of the first teacher never ends."""
    if isinstance(request, ProposalRequest) and request.author == "T0" and sample == 2:
        return "</think> <answer>\n" + "x = 1\n" * 200
    text = answer(request, sample, INPUTS).replace("hint", MESSAGE)
    return f"Let me see.\n</think> <answer>\n{text}\n</answer>" + "\n\n" * (sample % 2)


def tokens_of(tokenizer, request: Scripted, sample: int, limit: int) -> list[int]:
    """The tokens of a response. Where tags meet line breaks, one token holds the end of one and the beginning of the other."""
    return tokenizer(text_of(request, sample) + ENDS[sample % 2])["input_ids"][:limit]


def in_process(limit: int):
    """Let the in-process sampler write scripted answers."""
    return given_tokens(lambda tokenizer, request, sample: tokens_of(tokenizer, request, sample, limit))


@contextmanager
def in_vllm(limit: int) -> Iterator[None]:
    """Let vLLM write scripted answers. Log-probabilities are the model's, before the next token is forced."""
    scripts: dict[int, list[int]] = {}
    settings, start = backend.engine_settings, backend.VllmSampler._start

    from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

    class Force(AdapterLogitsProcessor):
        """Leaves of the logits of a scripted request only its next token's."""

        def is_argmax_invariant(self) -> bool:
            return False

        @classmethod
        def validate_params(cls, params) -> None:
            pass

        def new_req_logits_processor(self, params):
            script = scripts.get(params.seed)
            if script is None:
                return None

            def force(output: list[int], logits: torch.Tensor) -> torch.Tensor:
                forced = torch.full_like(logits, -torch.inf)
                forced[script[len(output)]] = 0.0
                return forced

            return force

    def started(sampler, request: Request, *arguments):
        if isinstance(request, Scripted):
            seed = backend.seed_of_first_sample(request, sampler.seed)
            scripts.update({seed + sample: tokens_of(sampler.tokenizer, request, sample, limit) for sample in range(request.samples)})
        return start(sampler, request, *arguments)

    def forcing(*arguments):
        return settings(*arguments) | {"logits_processors": [Force], "logprobs_mode": "raw_logprobs"}

    with mock.patch.object(backend, "engine_settings", forcing), mock.patch.object(backend.VllmSampler, "_start", started):
        yield
