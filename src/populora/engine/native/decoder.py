"""Decode rows, compute prompts and draw tokens by `decode.c`, on as many threads as torch has.

Threads share the rows of a call, and numpy's and torch's memory is used in place. A row's numbers depend neither on the other rows nor on
the number of threads. Log-probabilities differ from torch's in the last bits, because sums have another order.
"""

import ctypes
import itertools
from collections.abc import Callable, Sequence
from itertools import groupby

import numpy as np
import torch

from populora.core.errors import BaseModelError
from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.model.packing import PromptGroup
from populora.engine.native.cache import NativeCache
from populora.engine.native.compiled import Long, Pointer
from populora.engine.native.packed_model import PackedModel, floats, unsupported
from populora.engine.native.threads import share

THREAD_ROWS = 8  # fewer are computed by one thread
CACHED_BYTES, CACHED_ROWS = 8 << 20, 32
"""Weights of at most that many bytes stay in the processor's cache. Then few rows a thread are decoded fastest, because their keys and
values stay there too: 16 on an EPYC, 64 on a Xeon, whose large cache is slower. Larger weights are read from memory, and more rows share
each reading."""
PROBE = 24  # tokens of the check against torch
TOLERANCE = 1e-3
"""Largest difference from torch's hidden states, relative to the largest of them."""


class _Batch(ctypes.Structure):
    _fields_ = [
        ("segments", Long), ("start", Pointer), ("slot", Pointer), ("scale", Pointer), ("token", Pointer), ("prompt", Pointer),
        ("prompt_length", Pointer), ("prompt_capacity", Pointer), ("response", Pointer), ("length", Pointer), ("capacity", Pointer),
        ("hidden", Pointer),
    ]  # fmt: skip


class NativeDecoder:
    """Decodes at most ``rows`` responses of at most ``max_tokens`` tokens (`populora.engine.sampling.decoders.Decoder`)."""

    spreads_slots = False  # each adapter is read from memory

    def __init__(self, model: PackedModel, rows: int, max_tokens: int, threads: int):
        self.model, self.size, self.cache = model, (rows, max_tokens, threads), NativeCache(model, rows, max_tokens)
        functions, context = model.functions, model.adapted.context
        self._scratch = [floats(functions.scratch_floats(model.address, context)) for _ in range(threads)]
        self._logits = [floats(functions.sample_floats(model.address)) for _ in range(threads)]

    def prefill(self, prompts: Sequence[Sequence[int]], slots: Sequence[int]) -> tuple[list[int], torch.Tensor]:
        """See `Decoder`."""
        lengths = [len(prompt) for prompt in prompts]
        numbers, columns = self.cache.add_prompts(lengths)
        ends = np.cumsum(lengths)
        tokens = list(itertools.chain.from_iterable(prompts))
        if max(tokens) >= (vocabulary := self.model.adapted.head.out_features):
            raise BaseModelError(f"the tokenizer gives token {max(tokens)}, the base has {vocabulary}: expected the tokenizer of the base")
        hidden = self._compute(tokens, np.repeat(slots, lengths).tolist(), columns, [0, *ends.tolist()])
        return numbers, hidden[ends - 1]

    def __call__(self, tokens: Sequence[int], slots: Sequence[int]) -> torch.Tensor:
        """See `Decoder`."""
        hidden = self._compute(tokens, slots, self.cache.rows, range(len(tokens) + 1))
        self.cache.rows[4] += 1
        return hidden

    def sample(self, hidden: torch.Tensor, temperature: float, uniforms: np.ndarray) -> tuple[list[int], list[float], list[float]]:
        """See `Decoder`."""
        hidden, rows = hidden.contiguous(), len(hidden)
        tokens, logprobs, entropies = np.empty(rows, np.int64), np.empty(rows, np.float32), np.empty(rows, np.float32)

        def draw(thread: int, first: int, end: int) -> None:
            parts = [array[first:end].ctypes.data for array in (uniforms, tokens, logprobs, entropies)]
            address = hidden[first].data_ptr()
            scratch = self._logits[thread].ctypes.data
            self.model.functions.sample(self.model.address, end - first, address, parts[0], temperature, scratch, *parts[1:])

        self._share(draw, range(rows + 1))
        return tokens.tolist(), logprobs.tolist(), entropies.tolist()

    def _compute(self, tokens: Sequence[int], slots: Sequence[int], rows: np.ndarray, bounds: Sequence[int]) -> torch.Tensor:
        """Compute the hidden states [n, d] of new tokens. Threads share them at ``bounds``."""
        counts = {slot: len(list(repeats)) for slot, repeats in groupby(slots)}
        start = np.array([0, *itertools.accumulate(counts.values())], np.int64)
        slot, token, scales = np.array(list(counts), np.int64), np.array(tokens, np.int64), self.model.scales()
        hidden = torch.empty(len(tokens), self.model.hidden)
        arrays = [array.ctypes.data for array in (start, slot, scales, token, *rows)]
        batch = _Batch(len(counts), *arrays, hidden.data_ptr())

        def decode(thread: int, first: int, end: int) -> None:
            self.model.functions.decode(self.model.address, ctypes.addressof(batch), first, end, self._scratch[thread].ctypes.data)

        self._share(decode, bounds)
        return hidden

    def _share(self, work: Callable[[int, int, int], None], bounds: Sequence[int]) -> None:
        """Call ``work`` with a thread's number and its first and last rows, which are among ``bounds``."""
        count, threads = bounds[-1], len(self._scratch)
        parts = min(threads, count // THREAD_ROWS)
        cuts = [0, count]
        if parts > 1:
            cuts = [bounds[place] for place in np.searchsorted(bounds, np.linspace(0, count, parts + 1))]
        share(work, cuts, threads)


def prepare(adapted: AdaptedModel) -> PackedModel | str:
    """Prepare a model for `NativeDecoder`, or return the reason why it cannot be. Raises `BaseModelError` if its results are not
    torch's."""
    functions = adapted.kernels
    if isinstance(functions, str):
        return functions
    if reason := unsupported(adapted, functions.panel()):
        return reason
    model = PackedModel(adapted, functions)
    _check(model)
    return model


@torch.no_grad()
def _check(model: PackedModel) -> None:
    """Compare the hidden states of a prompt with torch's, so that a fault of the compiler is found before a run begins."""
    adapted = model.adapted
    prompt = [token % adapted.head.out_features for token in range(min(PROBE, adapted.context))]
    packed = adapted.pack([PromptGroup(-1, prompt)])
    expected = adapted.forward(packed.ids, packed.positions, packed.segments, packed.plan)[-1]
    (hidden,) = NativeDecoder(model, 1, 1, 1).prefill([prompt], [-1])[1]
    difference = float((hidden - expected).abs().max() / expected.abs().max())
    if not difference < TOLERANCE:
        raise BaseModelError(
            f"the compiled decoder's hidden states differ from torch's by {difference:.1e} relative, expected less than {TOLERANCE}: the "
            'compiler or the processor is at fault. base.kernels = "torch" does without it; please report this with `populora doctor`.'
        )
