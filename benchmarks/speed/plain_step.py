"""A step as it is written with PEFT, transformers and torch alone, one adapter after the other.

It does the work of a step that populora did: it samples the same tokens, starts as many processes as there were programs, and makes the
same update. Where there was a choice it takes the faster way, and these cost it nothing: old log-probabilities, parsing, complexity of
programs, everything between the phases, diagnostics, and the adapters' way from learner to sampler.
"""

import math
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import torch
from benchmarks.speed.models import in_peft
from torch.nn.utils.rnn import pad_sequence
from transformers import LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList

from populora.core.config import Config, LearnerConfig
from populora.core.types import Generation
from populora.engine.learning.batching import TrainRow
from populora.engine.model.bank import LoraBank
from populora.engine.model.loading import load_base
from populora.sandbox.protocol import Job, Limits

MOMENTS = {"first_moment": "exp_avg", "second_moment": "exp_avg_sq"}
"""AdamW's running means in the bank and in torch."""
Responses = dict[int, list[Generation]]
"""By slot."""
SCRIPT = "import resource as r\nfor kind, most in ((r.RLIMIT_CPU, {cpu}), (r.RLIMIT_AS, {memory}), (r.RLIMIT_FSIZE, 0)):\n"
SCRIPT += (
    "    r.setrlimit(kind, (most, most))\ndef f(x):\n    return sorted(x)[::-1]\nfor _ in range({calls}):\n    print(repr(f([2, 3, 1])))\n"
)
PRINTED = "[3, 2, 1]"


@dataclass(frozen=True)
class PlainModel:
    """PEFT's model with adapters "0", "1", ..., an optimiser for each, and the bank that has the layout of a flat row."""

    model: Any
    optimisers: dict[int, torch.optim.AdamW]
    bank: LoraBank

    def parameters(self, slot: int) -> dict[tuple[str, str], torch.nn.Parameter]:
        """Return the parameters of a slot by module and letter, A or B."""
        modules = {name: self.model.base_model.model.get_submodule(name) for name in self.bank.modules}
        return {(name, letter): getattr(module, f"lora_{letter}")[str(slot)].weight for name, module in modules.items() for letter in "AB"}

    def restore(self, before: Mapping[str, torch.Tensor]) -> None:
        """Load adapters and optimiser states."""
        for slot, optimiser in self.optimisers.items():
            parameters = self.parameters(slot)
            for key, value in _views(self.bank, before["master"], slot):
                parameters[key].data.copy_(value)
                optimiser.state[parameters[key]]["step"] = before["steps"][slot].float()
            for ours, theirs in MOMENTS.items():
                for key, value in _views(self.bank, before[ours], slot):
                    optimiser.state[parameters[key]][theirs] = value.clone(memory_format=torch.contiguous_format)

    def weights(self) -> torch.Tensor:
        """Return the adapters in the layout of the bank's master, [S, P]."""
        flat = torch.zeros_like(self.bank.master)
        for slot in self.optimisers:
            parameters = self.parameters(slot)
            for key, value in _views(self.bank, flat, slot):
                value.copy_(parameters[key].detach())
        return flat


def plain_model(config: Config, bank: LoraBank) -> PlainModel:
    """Return the bank's adapters on a second base, with torch's fused AdamW, the fastest."""
    if config.lora.ranks or config.learner.old_logprobs != "sampler":
        raise SystemExit("the plain step needs adapters of one rank (no lora.ranks) and learner.old_logprobs = 'sampler'")
    plain, settings = PlainModel(in_peft(bank, load_base(config.base)[0], config.lora.targets), {}, bank), config.learner
    for slot in range(bank.slots):
        plain.optimisers[slot] = torch.optim.AdamW(
            plain.parameters(slot).values(), lr=settings.learning_rate, betas=settings.betas, eps=settings.epsilon,
            weight_decay=settings.weight_decay, fused=True,
        )  # fmt: skip
    return plain


def _views(bank: LoraBank, flat: torch.Tensor, slot: int) -> Iterator[tuple[tuple[str, str], torch.Tensor]]:
    for name, (a, b) in bank.by_module(flat).items():
        yield (name, "A"), a[slot]
        yield (name, "B"), b[slot]


def _padded(sequences: Sequence[Sequence[float]], filling: float, side: Literal["left", "right"] = "right") -> torch.Tensor:
    return pad_sequence([torch.tensor(sequence) for sequence in sequences], batch_first=True, padding_value=filling, padding_side=side)


# Sampling: transformers' `generate` runs with all its machinery, but its last processor leaves one token to draw, the one that populora
# drew. A row ends where it ended; the others go on until the longest is done.


def sample(plain: PlainModel, responses: Responses, rows: int, most: int) -> None:
    """Sample each adapter's responses, ``rows`` at a time, of at most ``most`` tokens."""
    for slot, generations in responses.items():
        plain.model.set_adapter(str(slot))
        for start in range(0, len(generations), rows):
            _generate(plain.model, generations[start : start + rows], most)


def _generate(model: Any, responses: Sequence[Generation], most: int) -> None:
    pad, start = model.generation_config.pad_token_id, max(len(response.prompt_tokens) for response in responses)
    ids = _padded([response.prompt_tokens for response in responses], pad, "left")
    mask = _padded([[1] * len(response.prompt_tokens) for response in responses], 0, "left")
    targets = _padded([response.tokens for response in responses], pad)
    lengths = torch.tensor([len(response.tokens) for response in responses])
    written = model.generate(
        input_ids=ids, attention_mask=mask, do_sample=True, temperature=1.0, top_k=0, max_new_tokens=most,
        logits_processor=LogitsProcessorList([_Forced(targets, start)]), stopping_criteria=StoppingCriteriaList([_Ended(lengths, start)]),
    )[:, start:]  # fmt: skip
    if not torch.equal(written, targets):
        raise SystemExit(f"generate wrote other tokens than were drawn, {tuple(written.shape)} instead of {tuple(targets.shape)}")


class _Forced(LogitsProcessor):
    """Leaves one token to draw. ``targets`` [rows, longest] begin at position ``start``."""

    def __init__(self, targets: torch.Tensor, start: int):
        self.targets, self.start = targets, start

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        token = self.targets[:, input_ids.shape[1] - self.start, None]
        return torch.full_like(scores, -torch.inf).scatter_(1, token, 0.0)


class _Ended(StoppingCriteria):
    """Ends a row after its length, ``lengths`` [rows]."""

    def __init__(self, lengths: torch.Tensor, start: int):
        self.lengths, self.start = lengths, start

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **options: Any) -> torch.Tensor:
        return input_ids.shape[1] - self.start >= self.lengths


# Verification: a process for each program. No sandbox holds it, so no model text goes there: each runs the same small program of ours, as
# often as there were arguments, in an interpreter without site-packages, which starts fastest.


def run_all(programs: Sequence[Job], workers: int, limits: Limits) -> None:
    """Start a process for each program, ``workers`` at a time."""
    with ThreadPoolExecutor(workers) as threads:
        for _ in threads.map(lambda job: _run(len(job.texts), limits), programs):
            pass


def _run(calls: int, limits: Limits) -> None:
    script = SCRIPT.format(cpu=math.ceil(limits.cpu_seconds), memory=limits.memory_mb << 20, calls=calls)
    command = [sys.executable, "-I", "-S", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=limits.wall_seconds)
    if done.stdout.split("\n") != [PRINTED] * calls + [""]:
        raise SystemExit(f"a process of {calls} calls printed {done.stdout!r}")


# Training: padded batches, log-softmax over all logits. Advantages, old log-probabilities, clipping, truncation and denominators are those
# of populora's update, so the adapters must become the same.


def train(plain: PlainModel, rows: Sequence[TrainRow], config: LearnerConfig) -> None:
    """Update each adapter that has an advantage to learn from."""
    for slot, optimiser in plain.optimisers.items():
        of_slot = [row for row in rows if row.slot == slot]
        if any(row.advantage for row in of_slot):
            plain.model.set_adapter(str(slot))
            optimiser.zero_grad()
            tokens = sum(len(row.tokens) for row in of_slot)
            for batch in _micro_batches(of_slot, config.micro_batch_tokens):
                (_loss(plain.model, batch, config) / tokens).backward()
            torch.nn.utils.clip_grad_norm_(plain.parameters(slot).values(), config.grad_clip)
            optimiser.step()


def _loss(model: Any, rows: Sequence[TrainRow], config: LearnerConfig) -> torch.Tensor:
    """Return the sum over response tokens. Rows are padded behind the last token that attends, so they need no mask."""
    ids = _padded([[*row.prompt_tokens, *row.tokens] for row in rows], 0)
    prompts = [[0.0] * (len(row.prompt_tokens) - 1) for row in rows]
    old = _padded([[*prompt, *row.logprobs] for prompt, row in zip(prompts, rows, strict=True)], 0.0)
    answer = _padded([[*prompt, *[1.0] * len(row.tokens)] for prompt, row in zip(prompts, rows, strict=True)], 0.0)
    log_p = model(input_ids=ids[:, :-1], use_cache=False).logits.log_softmax(-1).gather(2, ids[:, 1:, None])[:, :, 0]
    ratio = ((log_p - old) * answer).exp()
    advantages = torch.tensor([row.advantage for row in rows])[:, None]
    surrogate = torch.min(ratio * advantages, ratio.clamp(1.0 - config.clip_low, 1.0 + config.clip_high) * advantages)
    truncation = ratio.detach().clamp(max=config.tis_cap) / ratio.detach()
    return -(surrogate * truncation * answer).sum()


def _micro_batches(rows: Sequence[TrainRow], budget: int) -> Iterator[list[TrainRow]]:
    """Yield rows of similar length, at most ``budget`` tokens a batch with the padding."""
    batch: list[TrainRow] = []
    for row in sorted(rows, key=_length):
        if (len(batch) + 1) * _length(row) > budget:
            yield batch
            batch = []
        batch.append(row)
    yield batch


def _length(row: TrainRow) -> int:
    """Return the tokens of its forward: the last one is predicted but never fed."""
    return len(row.prompt_tokens) + len(row.tokens) - 1
