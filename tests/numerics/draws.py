"""Ask samplers, and compare responses that were drawn in batches of other shapes, where rounding may decide between two tokens."""

from collections.abc import Sequence

import torch

from populora.core.types import Generation, Request
from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.model.packing import PromptGroup, pack
from populora.engine.sampling.token_sampling import BLOCK, UniformStream

PROMPTS = (
    "<solve><code_o>```python\ndef f(x):\n    return x + 1\n```\n```input\n3\n```\n<think>",
    "<propose><code_f>",
    "def g(a, b):\n    return a * b",
)
STOP = "</answer>"
NEAR = 1e-6
"""Ten times the rounding of a cumulative probability: a draw closer to the boundary between two tokens may give either."""


def requests_of(slots: Sequence[int], samples: int = 3) -> list[Request]:
    """Make a request of each slot (-1: the bare base) for each prompt, the slots in turns."""
    return [Request(prompt, slot, samples, ("test", slot, index)) for index, prompt in enumerate(PROMPTS) for slot in slots]


def difference(left: Sequence[Sequence[Generation]], right: Sequence[Sequence[Generation]]) -> float:
    """Return the largest difference of two samplers' answers in log-probability; infinity where tokens differ."""
    pairs = [pair for answers in zip(left, right, strict=True) for pair in zip(*answers, strict=True)]
    if any(response.tokens != other.tokens for response, other in pairs):
        return float("inf")
    return max(abs(a - b) for response, other in pairs for a, b in zip(response.logprobs, other.logprobs, strict=True))


def same_draws(adapted: AdaptedModel, seed: int, request: Request, left: Sequence[Generation], right: Sequence[Generation]) -> bool:
    """Whether two answers to a request, drawn at temperature 1, are the same.

    Tokens are equal and log-probabilities within 1e-5, in each response up to the first draw that rounding decided, if there is one.
    """
    uniforms = UniformStream(seed, request.key, request.samples)
    for sample, (ours, theirs) in enumerate(zip(left, right, strict=True)):
        pairs = zip(ours.tokens, theirs.tokens, strict=False)
        shared = next((place for place, (token, other) in enumerate(pairs) if token != other), min(len(ours.tokens), len(theirs.tokens)))
        if not torch.allclose(torch.tensor(ours.logprobs[:shared]), torch.tensor(theirs.logprobs[:shared]), atol=1e-5):
            return False
        if ours.tokens != theirs.tokens:
            number = float(uniforms.block(sample, shared // BLOCK)[shared % BLOCK])
            if distance_to_boundary(adapted, request.slot, ours.prompt_tokens, ours.tokens[:shared], number) > NEAR:
                return False
    return True


def distance_to_boundary(adapted: AdaptedModel, slot: int, prompt: Sequence[int], response: Sequence[int], number: float) -> float:
    """How far a number in [0, 1) is from the nearest boundary between two tokens, by the learner's forward."""
    tokens = range(adapted.model.config.vocab_size)
    with torch.no_grad():
        logprobs = adapted.logprobs(pack([PromptGroup(slot, prompt, tuple((*response, token) for token in tokens))]))[0]
    cumulative = logprobs.view(len(tokens), -1)[:, -1].double().exp().cumsum(0)
    return float((cumulative / cumulative[-1] - number).abs().min())
