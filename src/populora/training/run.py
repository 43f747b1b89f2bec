"""What a run carries from step to step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from populora.core.config import Config
from populora.core.types import Generation, Problem, Request
from populora.engine.learning.protocol import Updater
from populora.engine.model.bank import LoraBank
from populora.engine.sampling.protocol import Feed, Sampler
from populora.tasks.coverage import Archive
from populora.tasks.render import PromptSet
from populora.tasks.verifier import Verifier
from populora.training.buffer import ProblemBuffer
from populora.training.population import Population


@dataclass
class Run:
    """What a run carries from step to step. ``step`` counts the finished ones."""

    config: Config
    prompts: PromptSet
    sampler: Sampler
    learner: Updater
    bank: LoraBank
    """The adapters, one slot a member: in one process the very tensors that sampler and learner use, else what they have copies of."""
    verifier: Verifier
    facts: dict[str, str]
    """What a resume must find unchanged: fingerprint of the base, prompt set, sandbox tier."""
    population: Population
    buffer: ProblemBuffer
    archive: Archive
    held_out: list[Problem]
    """What every solver is evaluated on; empty where evaluation is off."""
    step: int = 0
    valid_counts: dict[str, list[int]] = field(default_factory=dict)
    """Per proposer, valid and all proposals since the last evolution."""

    def publish(self, slots: Iterable[int] | None = None) -> None:
        """Tell the sampler that the adapters of these slots (default: all) have changed."""
        self.sampler.publish(self.bank, range(self.bank.slots) if slots is None else slots)

    def generate(self, requests: Sequence[Request]) -> list[list[Generation]]:
        """Sample with the run's length limit and stop text, at temperature 1: the policy that the learner differentiates."""
        return self.sampler.generate(requests, self.config.selfplay.max_response_tokens, 1.0, self.prompts.stop)

    def stream(self, feed: Feed) -> Iterator[tuple[Request, list[Generation]]]:
        """As `generate`, for requests that come while others are sampled."""
        return self.sampler.stream(feed, self.config.selfplay.max_response_tokens, 1.0, self.prompts.stop)

    def fits(self, prompt: str) -> bool:
        """Whether a prompt is within ``max_prompt_tokens``."""
        return self.sampler.count_tokens(prompt) <= self.config.selfplay.max_prompt_tokens
