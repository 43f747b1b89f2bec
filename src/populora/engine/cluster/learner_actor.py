"""A learner's process: the whole base, or a shard of it, and some of the population's adapters with their moments.

Besides the slots that it owns, its bank has one for a guest: the adapter of another learner whose rows it helps with.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module

import torch

from populora.adapters.adapter import Adapter
from populora.core.config import Config
from populora.core.errors import PopuloraError
from populora.core.installed import versions
from populora.core.types import Generation
from populora.engine.cluster.process import settle_in
from populora.engine.learning.batching import TrainRow, Unit, micro_batches
from populora.engine.learning.learner import Learner
from populora.engine.learning.sharding import Shard, ShardedLearner, shard
from populora.engine.model.bank import Shape
from populora.engine.model.loading import fingerprint, load_base, torch_device
from populora.engine.model.model import AdaptedModel
from populora.engine.model.shapes import check_room

State = dict[str, torch.Tensor]
"""`LoraBank.state` of some slots."""
Sums = dict[int, list[float]]
"""`Learner.accumulate`'s, by slot."""


@dataclass(frozen=True)
class Described:
    """What a learner found when it loaded the base. All of a run must find the same."""

    layout: list[dict[str, Shape]]
    context: int
    agreement: float
    base_sha256: str
    versions: dict[str, str]
    machine: str = field(compare=False)


class AbortedError(PopuloraError):
    """The update that a learner was computing is not wanted any more."""


class LearnerHost:
    """Loads what it needs when it is opened, not when it is made: a base that cannot be loaded is that error, and not a dead actor."""

    def __init__(self, process: int = 0) -> None:
        self._process, self._unwanted = process, threading.Event()

    def address(self) -> str:
        """Where the processes that share a base with this one can meet it."""
        with socket.create_server(("", 0)) as server:
            return f"{import_module('ray.util').get_node_ip_address()}:{server.getsockname()[1]}"

    def open(self, config: Config, owned: Sequence[int], gpus: Sequence[str | None], address: str) -> Described:
        """Load the base and make room for the slots ``owned`` and a guest; ``gpus`` are those of the processes that share the base, which
        meet at ``address``. Raises as a run in one process does."""
        part = Shard(self._process, len(gpus), address) if len(gpus) > 1 else None
        gpu = gpus[self._process]
        settle_in(config, gpu)
        check_room(config)
        model, _ = load_base(replace(config.base, device="cpu") if part else config.base)
        base = fingerprint(model)
        if part:
            model = shard(model, part, torch_device(config.base.device))
        lora = config.lora
        adapted = AdaptedModel(model, lora.targets, len(owned) + 1, lora.rank, lora.alpha, config.learner.activation_checkpointing)
        self._bank, self._guest = adapted.bank, len(owned)
        self._places = {slot: place for place, slot in enumerate(owned)}
        self._budget, self._part = config.learner.micro_batch_tokens, part
        self._learner = ShardedLearner(adapted, config.learner, part) if part else Learner(adapted, config.learner)
        return Described(adapted.bank.layout, adapted.context, adapted.agreement, base, versions(), socket.gethostname())

    def load(self, slots: Sequence[int], state: State) -> None:
        """Take over these owned slots, weights and moments."""
        self._bank.restore(state, [self._places[slot] for slot in slots])

    def help(self, adapter: Adapter, rows: Sequence[TrainRow], tokens: int) -> tuple[list[float], torch.Tensor | None]:
        """Sums and gradient [P] of rows of another learner's adapter; ``tokens`` are the response tokens of its whole step."""
        self._bank.load(self._guest, adapter)
        sums = self._accumulated([replace(row, slot=self._guest) for row in rows], {self._guest: tokens})
        gradient = self._bank.gradient[self._guest].cpu().clone()  # a view would be sent with all the slots
        return sums[self._guest], gradient if self._is_first else None

    def learn(self, rows: Sequence[TrainRow], tokens: Mapping[int, int]) -> Sums:
        """Sums of rows of owned slots; their gradients stay here. ``tokens`` are the response tokens of the whole step by slot."""
        self._bank.gradient.zero_()
        here = [replace(row, slot=self._places[row.slot]) for row in rows]
        sums = self._accumulated(here, {place: tokens[slot] for slot, place in self._places.items() if slot in tokens})
        return {slot: sums[place] for slot, place in self._places.items()}

    def add(self, slots: Sequence[int], *gradients: torch.Tensor) -> dict[int, float]:
        """Add the helpers' gradients, in this order; the norms of all owned slots' gradients."""
        for slot, gradient in zip(slots, gradients, strict=True):
            self._bank.gradient[self._places[slot]] += gradient.to(self._bank.gradient.device)
        norms = self._learner.norms()
        return {slot: norms[place] for slot, place in self._places.items()}

    def step(self, norms: Mapping[int, float]) -> State | None:
        """One optimiser step of these owned slots; their state after it."""
        for slot, norm in norms.items():
            self._learner.step(self._places[slot], norm)
        return self._bank.state([self._places[slot] for slot in norms]) if self._is_first else None

    def logprobs(self, slot: int, answers: Sequence[Generation]) -> torch.Tensor:
        """See `populora.engine.learning.protocol.Updater.logprobs`; of an owned slot, or -1."""
        return self._learner.logprobs(self._places[slot] if slot >= 0 else -1, answers)

    def abort(self) -> None:
        """Called beside an update: end it at the next micro-batch, and whatever is asked before `settle`. Processes that share a base go
        on: they wait for each other, and would be waiting for ever."""
        if self._part is None:
            self._unwanted.set()

    def settle(self) -> None:
        """Called after an update that was aborted: what is asked from now on is wanted."""
        self._unwanted.clear()

    @property
    def _is_first(self) -> bool:
        return self._part is None or self._part.rank == 0

    def _accumulated(self, rows: Sequence[TrainRow], tokens: Mapping[int, int]) -> Sums:
        if self._guest in tokens:
            self._bank.gradient[self._guest].zero_()
        return self._learner.accumulate(self._while_wanted(micro_batches(rows, self._budget)), tokens)

    def _while_wanted(self, batches: Sequence[Sequence[Unit]]) -> Iterator[Sequence[Unit]]:
        for batch in batches:
            if self._unwanted.is_set():
                raise AbortedError("another process was lost: the update is done again")
            yield batch
