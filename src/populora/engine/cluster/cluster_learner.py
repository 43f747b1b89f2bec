"""The controller's side of an update: distribute rows to learners, route gradients, and commit the new state.

Owners compute the rows of their adapters, and helpers the work above a fair load (`populora.engine.cluster.load_balancing`). An owner adds
the helpers' gradients to its own in a fixed order, without collectives. Guards check all slots before any weight changes, as in one
process. The new states are then committed to the `ClusterBank` all at once. If a learner is lost before that, the update is repeated
from there, with the same result.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from populora.core.config import Config
from populora.core.types import Generation, UpdateStats
from populora.engine.cluster.actor_pool import ActorPool, Call, PendingCall
from populora.engine.cluster.cluster_bank import Change, ClusterBank, StoredSlot
from populora.engine.cluster.learner_actor import LearnerInfo, Sums
from populora.engine.cluster.load_balancing import assign
from populora.engine.learning.batching import TrainRow
from populora.engine.learning.update import Batch, check_update, make_batch
from populora.engine.learning.work_splitting import split_work

FAR = 2.0
"""Cost of helping on another machine, relative to the same machine."""
OwnerRows = dict[int, list[TrainRow]]
"""Rows by the rank that computes them for its own slots."""
HelperRows = dict[tuple[int, int], list[TrainRow]]
"""Rows by (slot, helper), in the order in which owners add the gradients."""


class ClusterLearner:
    """A `populora.engine.learning.learner.Learner` of the adapters in ``bank``, which the learners of ``pool`` hold.

    Who helps whom depends on the machines in ``infos``. It stays when a learner moves, so that results do not change.
    """

    def __init__(self, config: Config, pool: ActorPool, bank: ClusterBank, infos: Sequence[LearnerInfo]):
        self.agreement, self.computation = infos[0].agreement, infos[0].computation
        self._config, self._pool, self._bank = config, pool, bank
        machines = [info.machine for info in infos]
        self._nodes = [machines.index(machine) for machine in machines]

    def logprobs(self, answers: Mapping[int, Sequence[Generation]]) -> dict[int, torch.Tensor]:
        """See `populora.engine.learning.learner.Learner.logprobs`. All owners compute at the same time, with one call each."""
        owned: dict[int, dict[int, Sequence[Generation]]] = {}
        for slot, answers_of_slot in answers.items():
            owned.setdefault(self._bank.owners.get(slot, 0), {})[slot] = answers_of_slot
        calls = [Call(owner, "logprobs", (part,)) for owner, part in owned.items()]
        return _merge(self._bank.until_no_loss(lambda: self._pool.results([self._pool.submit(call) for call in calls])))

    def update(self, rows: Sequence[TrainRow], scales: Mapping[int, float] | None = None) -> dict[int, UpdateStats]:
        """See `populora.engine.learning.learner.Learner.update`."""
        batch = make_batch(rows, self._bank.slots, self._config.learner)
        if not batch.active:
            return batch.skipped
        kept, moved = self._split(batch)
        updates, stored = self._bank.until_no_loss(lambda: self._compute(batch, kept, moved, scales or {}))
        self._bank.stored |= stored
        return dict(sorted((updates | batch.skipped).items()))

    def _split(self, batch: Batch) -> tuple[OwnerRows, HelperRows]:
        items = split_work(batch.rows, self._config.learner.micro_batch_tokens, self._bank.slots)
        work = {slot: [item.tokens for item in slot_items] for slot, slot_items in items.items()}
        cost, ranks = self._config.cluster.help_cost, range(len(self._pool))
        assignment = assign(work, self._bank.owners, len(ranks), cost, self._nodes, FAR * cost)

        def rows_of(indices: Mapping[int, Sequence[int]]) -> list[TrainRow]:
            """The rows of some items by slot, in the step's order, in which one process would compute them."""
            chosen = [items[slot][index] for slot, slot_indices in indices.items() for index in slot_indices]
            return [batch.rows[row] for row in sorted(row for item in chosen for row in item.rows)]

        kept = {rank: rows_of({slot: part for slot, part in assignment.kept.items() if self._bank.owners[slot] == rank}) for rank in ranks}
        return kept, {(slot, helper): rows_of({slot: part}) for (slot, helper), part in assignment.moved.items()}

    def _compute(
        self, batch: Batch, kept: OwnerRows, moved: HelperRows, scales: Mapping[int, float]
    ) -> tuple[dict[int, UpdateStats], dict[int, StoredSlot]]:
        """Compute the update of all slots, and what is stored of them after it. Owners have applied it by then, the bank has not."""
        submit, results, owners = self._pool.submit, self._pool.results, self._bank.owners
        ranks = sorted({owners[slot] for slot in batch.active})
        helping: dict[tuple[int, int], PendingCall] = {}
        for (slot, helper), rows in moved.items():
            call = Call(helper, "help", (self._bank.stored[slot].adapter, rows, batch.tokens[slot], self.agreement))
            helping[slot, helper] = submit(call, returns=2)
        learning = [submit(Call(rank, "learn", (kept[rank], dict(batch.tokens), self.agreement))) for rank in ranks]
        sums = results([*helping.values(), *learning])
        totals = _add_sums(_merge(sums[len(helping) :]), zip(helping, sums, strict=False))
        norms = _merge(results([submit(Call(rank, "add", self._gradients(rank, helping))) for rank in ranks]))
        updates = check_update(batch, totals, norms, self.agreement, self._config.learner)
        active = {rank: [slot for slot in batch.active if owners[slot] == rank] for rank in ranks}
        sizes = {rank: {slot: (norms[slot], scales.get(slot, 1.0)) for slot in slots} for rank, slots in active.items()}
        steps = [Change(Call(rank, "step", (sizes[rank],)), slots) for rank, slots in active.items()]
        return updates, self._bank.call(steps)[1]

    def _gradients(self, rank: int, helping: Mapping[tuple[int, int], PendingCall]) -> tuple[Any, ...]:
        """Arguments of `LearnerActor.add`: slots with helpers, and references to the gradients, which go to the owner directly."""
        helped = [(slot, call.values[1]) for (slot, _), call in helping.items() if self._bank.owners[slot] == rank]
        return [slot for slot, _ in helped], *(gradient for _, gradient in helped)


def _merge(parts: Iterable[dict[int, Any]]) -> dict[int, Any]:
    return {slot: value for part in parts for slot, value in part.items()}


def _add_sums(totals: Sums, helpers: Iterable[tuple[tuple[int, int], list[float]]]) -> Sums:
    """Add the helpers' sums to the owners'; the last of them is a maximum."""
    for (slot, _), part in helpers:
        added = [total + value for total, value in zip(totals[slot][:-1], part[:-1], strict=True)]
        totals[slot] = [*added, max(totals[slot][-1], part[-1])]
    return totals
