"""The process of a learner: the whole base model, or a shard of it, and some of the population's adapters with their moments.

In addition to the slots that it owns, its bank has one for an adapter borrowed from another learner.
"""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from populora.adapters.adapter import Adapter
from populora.adapters.operators.breeding import breed
from populora.adapters.operators.similarity import basis_cosine
from populora.core.config import Config
from populora.core.installed import versions
from populora.core.types import Generation, Lineage
from populora.engine.cluster.process import init_process
from populora.engine.learning.batching import TrainRow, micro_batches
from populora.engine.learning.learner import InProcessLearner
from populora.engine.learning.sharding import Shard, ShardedLearner, shard
from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.model.bank import Shape
from populora.engine.model.base_shape import check_memory
from populora.engine.model.loading import base_fingerprint, load_base, torch_device

State = dict[str, torch.Tensor]
"""`LoraBank.state` of a slot."""
Stored = tuple[Any, ...]
"""What a method returns that changes slots: a value and for each slot whether it is untrained, and then for each slot its state and its
adapter in the precision of the base. Ray keeps all but the first on this machine."""
BORROWED = -1
"""The slot of a borrowed adapter."""
Sums = dict[int, list[float]]
"""Sums of `InProcessLearner.accumulate` by slot."""


@dataclass(frozen=True)
class LearnerInfo:
    """Properties of the base model that a learner loaded. All learners of a run must agree on them, except for the machine."""

    layout: list[dict[str, Shape]]
    context: int
    agreement: float
    computation: dict[str, str]
    base_sha256: str
    versions: dict[str, str]
    machine: str = field(compare=False)


class LearnerActor:
    """Loads the base model in `open`, so that a failure to load is raised as an error, not as a dead actor."""

    def __init__(self, process: int = 0) -> None:
        self._process = process

    def address(self) -> str:
        """Return a free address at which the processes that share a base model with this one can meet."""
        with socket.create_server(("", 0)) as server:
            return f"{import_module('ray.util').get_node_ip_address()}:{server.getsockname()[1]}"

    def open(self, config: Config, owned: Sequence[int], gpus: Sequence[str | None], address: str) -> LearnerInfo:
        """Load the base model and allocate the ``owned`` slots and one for a borrowed adapter. ``gpus`` are those of the processes that
        share the base model, which meet at ``address``. Raises the same errors as a run in one process."""
        part = Shard(self._process, len(gpus), address) if len(gpus) > 1 else None
        init_process(config, gpus[self._process])
        check_memory(config)
        model, _ = load_base(config.base, mapped=part is not None and config.base.device != "cpu")
        base = base_fingerprint(model)
        if part:
            model = shard(model, part, torch_device(config.base.device))
        lora, checkpointing = config.lora, config.learner.activation_checkpointing
        adapted = AdaptedModel(model, lora.targets, len(owned) + 1, lora.rank, lora.alpha, checkpointing, config.base.kernels)
        self._bank, self._borrowed = adapted.bank, len(owned)
        self._local = {slot: index for index, slot in enumerate(owned)}
        """Index in this bank of each owned slot."""
        self._budget, self._part, self._dtype = config.learner.micro_batch_tokens, part, getattr(torch, config.base.dtype)
        self._learner = ShardedLearner(adapted, config.learner, part) if part else InProcessLearner(adapted, config.learner)
        return LearnerInfo(
            adapted.bank.layout, adapted.context, adapted.agreement, adapted.computation, base, versions(), socket.gethostname()
        )

    def load(self, slots: Sequence[int], *states: State) -> None:
        """Set weights and moments of these owned slots, which are stored already."""
        for slot, state in zip(slots, states, strict=True):
            self._bank.restore(state, [self._local[slot]])

    def initialise(self, seed: int, ranks: Sequence[int] | None) -> Stored:
        """See `LoraBank.initialise`. ``ranks`` are those of all slots of the run."""
        self._bank.initialise(seed, [*(ranks[slot] for slot in self._local), self._bank.rank] if ranks else None)
        return self._stored(None, list(self._local))

    def put(self, slot: int, adapter: Adapter) -> Stored:
        """See `LoraBank.load`, for an owned slot."""
        self._bank.load(self._local[slot], adapter)
        return self._stored(None, [slot])

    def adapter(self, slot: int) -> Adapter:
        """See `LoraBank.adapter`, for an owned slot."""
        return self._bank.adapter(self._local[slot])

    def basis_cosine(self, *states: State) -> float:
        """Compute `basis_cosine` of the adapters in the states of slots, of this learner or others."""
        return basis_cosine(*map(self._adapter_of, states))

    def breed(self, plan: Lineage, names: Sequence[str], *parents: State) -> Stored:
        """Breed a child as `LoraBank.breed` does, from the states of slots, of this learner or others. Its value is the child's record."""
        child, lineage = breed([*map(self._adapter_of, parents)], plan, names, allow_copy=True)
        self._bank.load(self._borrowed, child)
        return self._stored(lineage, [BORROWED])

    def write_adapters(self, folder: Path, slots: Mapping[str, int], base: str, targets: Sequence[str]) -> dict[str, str]:
        """See `LoraBank.write_adapters`, for owned slots."""
        return self._bank.write_adapters(folder, self._indices(slots), base, targets) if self._is_first else {}

    def write_optimiser(self, folder: Path, slots: Mapping[str, int]) -> dict[str, str]:
        """See `LoraBank.write_optimiser`, for owned slots."""
        return self._bank.write_optimiser(folder, self._indices(slots)) if self._is_first else {}

    def read(self, adapters: Path, optimiser: Path, slots: Mapping[str, int], digests: Mapping[Path, str]) -> Stored:
        """See `LoraBank.read`, for owned slots."""
        self._bank.read(adapters, optimiser, self._indices(slots), digests)
        return self._stored(None, list(slots.values()))

    def help(self, adapter: Adapter, rows: Sequence[TrainRow], tokens: int, agreement: float) -> tuple[list[float], torch.Tensor | None]:
        """Compute the sums and the gradient [P] of rows of a borrowed adapter, whose step has ``tokens`` response tokens in total.

        ``agreement`` is the run's `Learner.agreement`.
        """
        self._learner.agreement = agreement
        self._bank.load(self._borrowed, adapter)
        sums = self._accumulate([row._replace(slot=self._borrowed) for row in rows], {self._borrowed: tokens})
        gradient = self._bank.gradient[self._borrowed].cpu().clone()  # a view would be sent with all slots
        return sums[self._borrowed], gradient if self._is_first else None

    def learn(self, rows: Sequence[TrainRow], tokens: Mapping[int, int], agreement: float) -> Sums:
        """Compute the sums of rows of owned slots; their gradients stay here. ``tokens`` are the response tokens of the step by slot.

        ``agreement`` is the run's `Learner.agreement`.
        """
        self._learner.agreement = agreement
        self._bank.gradient.zero_()
        local_rows = [row._replace(slot=self._local[row.slot]) for row in rows]
        sums = self._accumulate(local_rows, {index: tokens[slot] for slot, index in self._local.items() if slot in tokens})
        return {slot: sums[index] for slot, index in self._local.items()}

    def add(self, slots: Sequence[int], *gradients: torch.Tensor) -> dict[int, float]:
        """Add the helpers' gradients of these slots, in this order. Returns the gradient norms of all owned slots."""
        for slot, gradient in zip(slots, gradients, strict=True):
            self._bank.gradient[self._local[slot]] += gradient.to(self._bank.gradient.device)
        norms = self._learner.norms()
        return {slot: norms[index] for slot, index in self._local.items()}

    def step(self, sizes: Mapping[int, tuple[float, float]]) -> Stored:
        """Make one optimiser step of these owned slots, whose gradients have this norm, of their step size times this scale."""
        for slot, (norm, scale) in sizes.items():
            self._learner.step(self._local[slot], norm, scale)
        return self._stored(None, list(sizes))

    def logprobs(self, answers: Mapping[int, Sequence[Generation]]) -> dict[int, torch.Tensor]:
        """See `populora.engine.learning.learner.Learner.logprobs`. The slots are owned ones or -1."""
        local = {slot: self._local[slot] if slot >= 0 else -1 for slot in answers}
        computed = self._learner.logprobs({local[slot]: answers[slot] for slot in answers})
        return {slot: computed[local[slot]] for slot in answers}

    def _stored(self, value: Any, slots: Sequence[int]) -> Stored:
        """Return the state and the adapter of slots, `BORROWED` or owned. Of processes that share a base model, the first one does."""
        indices = [self._local.get(slot, self._borrowed) for slot in slots]
        if not self._is_first:
            return None, *[None] * (2 * len(indices))
        parts = [(self._bank.state([index]), self._bank.adapter(index).to(self._dtype)) for index in indices]
        return (value, [self._bank.untrained(index) for index in indices]), *chain(*parts)

    def _adapter_of(self, state: State) -> Adapter:
        self._bank.restore(state, [self._borrowed])
        return self._bank.adapter(self._borrowed)

    def _indices(self, slots: Mapping[str, int]) -> dict[str, int]:
        return {name: self._local[slot] for name, slot in slots.items()}

    @property
    def _is_first(self) -> bool:
        return self._part is None or self._part.rank == 0

    def _accumulate(self, rows: Sequence[TrainRow], tokens: Mapping[int, int]) -> Sums:
        if self._borrowed in tokens:
            self._bank.gradient[self._borrowed].zero_()
        return self._learner.accumulate(micro_batches(rows, self._budget), tokens)
