"""Pack prompts and responses into one token row, with its segments and attention plan.

A group is one prompt under one adapter with its responses. The prompt is computed once for all of them, in learning as in
sampling. Tokens are laid out group by group (prompt, response, response, ...), with groups sorted by slot.
"""

from collections.abc import Sequence
from ctypes import CDLL
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import numpy as np
import torch

from populora.engine.model.attention import Block, PackedAttention
from populora.engine.model.flex import FlexPackedAttention, flex_plan
from populora.engine.model.segments import SegmentMap
from populora.engine.native.attention import CompiledAttention

FULLNESS = 0.75  # a bucket's shortest response has at least this share of its longest (short ones a little less)


@dataclass(frozen=True)
class PromptGroup:
    """One prompt (token ids) under the adapter in ``slot`` (-1: the bare base), and the responses to it."""

    slot: int
    prompt: Sequence[int]
    responses: tuple[Sequence[int], ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens of its forward. A response's last token is predicted but never fed."""
        return len(self.prompt) + sum(len(response) - 1 for response in self.responses)


@dataclass(frozen=True)
class Packed:
    """A packed row: ``ids`` and ``positions`` are [N], ``last`` [G] indexes the prompts' last tokens.

    Token ``targets[m]`` is predicted at ``predictors[m]`` (both [M]), in the order of groups, responses and tokens.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    segments: SegmentMap
    plan: PackedAttention | CompiledAttention | FlexPackedAttention
    predictors: torch.Tensor
    targets: torch.Tensor
    last: torch.Tensor


@dataclass(frozen=True)
class _Span:
    start: int
    length: int
    group: int


def pack(groups: Sequence[PromptGroup], device: str | torch.device = "cpu", keep: bool = False, functions: CDLL | None = None) -> Packed:
    """Pack groups sorted by slot (``ValueError`` if they are not). With ``keep`` the plan keeps the prompts' keys and values.

    The plan is FlexAttention's on CUDA. On a CPU it is that of ``functions``, the kernels in C. Without them, and with ``keep``, it has
    rectangles of SDPA.
    """
    ids: list[int] = []
    positions: list[int] = []
    predictors: list[int] = []
    lasts: list[int] = []
    for group in groups:
        ids += group.prompt
        positions += range(len(group.prompt))
        last = len(ids) - 1
        lasts.append(last)
        for response in group.responses:
            predictors += [last, *range(len(ids), len(ids) + len(response) - 1)]
            ids += response[:-1]
            positions += range(len(group.prompt), len(group.prompt) + len(response) - 1)
    targets = [token for group in groups for response in group.responses for token in response]
    segments = SegmentMap.build([group.slot for group in groups], [group.tokens for group in groups], device)
    if functions and not keep:
        plan = CompiledAttention(_spans(groups), functions)
    else:
        plan = (flex_packed if torch.device(device).type == "cuda" else sdpa_packed)(groups, device, keep)
    as_tensor = partial(torch.tensor, dtype=torch.int64, device=device)
    return Packed(as_tensor(ids), as_tensor(positions), segments, plan, as_tensor(predictors), as_tensor(targets), as_tensor(lasts))


def flex_packed(groups: Sequence[PromptGroup], device: str | torch.device, keep: bool) -> FlexPackedAttention:
    """Plan the attention of `pack` as one kernel, for CUDA."""
    return flex_plan(_spans(groups), device, keep)


def _spans(groups: Sequence[PromptGroup]) -> list[tuple[int, ...]]:
    """Return the tokens of each group's prompt and of its responses."""
    return [(len(group.prompt), *(len(response) - 1 for response in group.responses)) for group in groups]


def sdpa_packed(groups: Sequence[PromptGroup], device: str | torch.device, keep: bool) -> PackedAttention:
    """Plan the attention of `pack` in rectangles: shared prompts, then prompts with a single response, then responses of shared prompts."""
    tokens = sum(group.tokens for group in groups)
    starts = accumulate((group.tokens for group in groups), initial=0)
    prompts = [_Span(start, len(group.prompt), index) for index, (start, group) in enumerate(zip(starts, groups, strict=False))]
    shared = [span for span, group in zip(prompts, groups, strict=True) if keep or len(group.responses) != 1]
    single = [
        _Span(span.start, group.tokens, 0) for span, group in zip(prompts, groups, strict=True) if not keep and len(group.responses) == 1
    ]
    responses: list[_Span] = []
    for number, span in enumerate(shared):
        start = span.start + span.length
        for response in groups[span.group].responses:
            responses.append(_Span(start, len(response) - 1, number))
            start += len(response) - 1
    whole = ([shared] if shared else []) + _by_length(single)
    following = _by_length([span for span in responses if span.length])
    order, place = _orders([*whole, *following], tokens)
    lengths = np.array([span.length for span in shared])
    blocks = [Block(len(spans), max(span.length for span in spans)) for spans in whole]
    blocks += [_following(spans, lengths, device) for spans in following]
    if len(order) == tokens and np.array_equal(order, np.arange(tokens)):
        return PackedAttention(None, None, tuple(blocks), keep)
    return PackedAttention(torch.from_numpy(order).to(device), torch.from_numpy(place).to(device), tuple(blocks), keep)


def _orders(blocks: Sequence[Sequence[_Span]], tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ``order`` and ``place`` of `PackedAttention`."""
    place = np.zeros(tokens, dtype=np.int64)
    orders: list[np.ndarray] = []
    done = 0
    for block in blocks:
        index, inside = _padded_index(block)
        place[index[inside]] = done + np.flatnonzero(inside)
        orders.append(index.ravel())
        done += index.size
    return np.concatenate(orders), place


def _by_length(spans: Sequence[_Span]) -> list[list[_Span]]:
    """Sort spans into buckets of similar length, so that little of their attention is padding. Equal lengths keep their order."""
    buckets: list[list[_Span]] = []
    for span in sorted(spans, key=lambda span: -span.length):
        if not buckets or span.length < FULLNESS * buckets[-1][0].length - 4:
            buckets.append([])
        buckets[-1].append(span)
    return buckets


def _padded_index(spans: Sequence[_Span]) -> tuple[np.ndarray, np.ndarray]:
    """Return indices [rows, longest] into the packed row (padding repeats the last token), and where they are not padding."""
    starts, lengths = np.array([span.start for span in spans]), np.array([span.length for span in spans])
    columns = np.arange(lengths.max())
    return starts[:, None] + np.minimum(columns, lengths[:, None] - 1), columns < lengths[:, None]


def _following(spans: Sequence[_Span], prompt_lengths: np.ndarray, device: str | torch.device) -> Block:
    """Build the block of responses (longest first) that follow shared prompts."""
    group = np.array([span.group for span in spans])
    length = spans[0].length
    to_prompt = np.arange(prompt_lengths.max()) < prompt_lengths[group][:, None]
    to_prompt = np.broadcast_to(to_prompt[:, None], (len(spans), length, to_prompt.shape[1]))
    to_itself = np.broadcast_to(np.tril(np.ones((length, length), dtype=bool)), (len(spans), length, length))
    mask = torch.from_numpy(np.concatenate((to_prompt, to_itself), 2))
    return Block(len(spans), length, torch.from_numpy(group).to(device), mask[:, None].to(device))
