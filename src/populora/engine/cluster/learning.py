"""The controller's side of an update: who computes which rows, whose gradients go where, and when it counts.

Owners compute their adapters' rows, helpers what is above a fair load (`populora.engine.cluster.balance`), and an owner adds the helpers'
gradients to its own in a fixed order: one object a pair, no collective, so nobody waits for a watchdog. Guards see all slots before any
weight changes, as in one process. The new states then come to the controller's bank all at once: until that moment the update
has not happened, and a process that is lost before it means that the update is done again, from the bank, with the same result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from populora.core.config import Config
from populora.core.types import Generation
from populora.engine.cluster.actor_pool import Crew
from populora.engine.cluster.balance import Assignment, Share, assign, owners_of
from populora.engine.cluster.calls import Asked, Call, Lost
from populora.engine.cluster.learner_actor import Described, State, Sums
from populora.engine.learning.batching import TrainRow
from populora.engine.learning.update import Batch, SlotUpdate, batch_of, guarded
from populora.engine.learning.work_splitting import Piece, cut
from populora.engine.model.bank import LoraBank

CONTROL = "control"
"""Learners answer these calls beside an update."""
FAR = 2.0
"""Helping on another machine costs so many times what it costs on the same."""


@dataclass(frozen=True)
class _Work:
    """A step's rows by who computes them: an owner's own by rank, and those of a slot by (slot, helper)."""

    own: dict[int, list[TrainRow]]
    helped: dict[tuple[int, int], list[TrainRow]]
    """In the order in which owners add the gradients."""


class ClusterLearner:
    """A `populora.engine.learning.protocol.Updater` of the adapters in ``bank``, which is the truth; the learners of ``crew`` have copies.

    Who helps whom depends on the machines that learners were ``described`` to be on at first. It stays as it is when one moves, so that
    bytes do too.
    """

    def __init__(self, config: Config, crew: Crew, bank: LoraBank, agreement: float, described: Sequence[Described]):
        self.agreement, self.helps = agreement, 0
        """``helps``: pairs of slot and helper in the last update."""
        self._config, self._crew, self._bank = config, crew, bank
        names = [one.machine for one in described]
        self._machines = [names.index(name) for name in names]
        self._owners = owners_of(bank.slots, len(crew))
        self._held: dict[int, int] = {}

    def logprobs(self, slot: int, answers: Sequence[Generation]) -> torch.Tensor:
        """See `populora.engine.learning.protocol.Updater.logprobs`."""
        rank = self._owners.get(slot, 0)

        def asked() -> torch.Tensor:
            self._synchronise({rank})
            return self._crew.answers([self._crew.ask(Call(rank, "logprobs", (slot, answers)))])[0]

        return self._done(asked)

    def update(self, rows: Sequence[TrainRow]) -> dict[int, SlotUpdate]:
        """See `populora.engine.learning.protocol.Updater.update`."""
        batch = batch_of(rows, self._bank.slots)
        if not batch.active:
            return batch.skipped
        work = self._planned(batch)
        updates, states = self._done(lambda: self._computed(batch, work))
        for slots, state in states:
            self._bank.restore(state, slots)
            self._held |= {slot: self._bank.changes[slot] for slot in slots}
        return dict(sorted((updates | batch.skipped).items()))

    def _planned(self, batch: Batch) -> _Work:
        pieces = cut(batch.rows, self._config.learner.micro_batch_tokens, self._bank.slots)
        sizes = {slot: [piece.tokens for piece in own] for slot, own in pieces.items()}
        cost = self._config.cluster.help_cost
        plan = assign(sizes, self._owners, len(self._crew), cost, self._machines, FAR * cost)
        self.helps = len(plan.helps)
        return _Work(
            {rank: self._rows(batch, pieces, own) for rank in range(len(self._crew)) if (own := self._owned(plan, rank))},
            {
                (help.slot, help.helper): self._rows(batch, pieces, [share])
                for help in plan.helps
                for share in plan.shares[help.helper]
                if share.slot == help.slot
            },
        )

    def _owned(self, plan: Assignment, rank: int) -> list[Share]:
        return [share for share in plan.shares[rank] if self._owners[share.slot] == rank]

    def _rows(self, batch: Batch, pieces: Mapping[int, Sequence[Piece]], shares: Sequence[Share]) -> list[TrainRow]:
        """In the step's order, in which one process would compute them."""
        chosen = [pieces[share.slot][piece] for share in shares for piece in share.pieces]
        return [batch.rows[index] for index in sorted(index for piece in chosen for index in piece.rows)]

    def _computed(self, batch: Batch, work: _Work) -> tuple[dict[int, SlotUpdate], list[tuple[list[int], State]]]:
        """The update of all slots, and the states that it leads to. Owners have made it by then, the bank has not."""
        ask, answers = self._crew.ask, self._crew.answers
        active = {rank: [slot for slot in batch.active if self._owners[slot] == rank] for rank in range(len(self._crew))}
        ranks = [rank for rank, slots in active.items() if slots]
        self._synchronise(ranks)
        guests = {pair: ask(Call(pair[1], "help", self._of_guest(pair[0], rows, batch)), returns=2) for pair, rows in work.helped.items()}
        learned = [ask(Call(rank, "learn", (work.own.get(rank, []), dict(batch.tokens)))) for rank in ranks]
        found = answers([*guests.values(), *learned])  # before owners are asked for more: what waits behind that could not be aborted
        sums = _summed(_merged(found[len(guests) :]), zip(guests, found, strict=False))
        norms = _merged(answers([ask(Call(rank, "add", _gradients(rank, self._owners, guests))) for rank in ranks]))
        updates = guarded(batch, sums, norms, self.agreement, self._config.learner)
        states = answers([ask(Call(rank, "step", ({slot: norms[slot] for slot in active[rank]},))) for rank in ranks])
        return updates, [(active[rank], state) for rank, state in zip(ranks, states, strict=True)]

    def _of_guest(self, slot: int, rows: list[TrainRow], batch: Batch) -> tuple[Any, ...]:
        return self._bank.adapter(slot).to(getattr(torch, self._config.base.dtype)), rows, batch.tokens[slot]

    def _synchronise(self, ranks: Iterable[int]) -> None:
        """Give owners what was changed by others: bred, restored, or never sent."""
        bank = self._bank
        stale = {rank: [s for s, own in self._owners.items() if own == rank and self._held.get(s) != bank.changes[s]] for rank in ranks}
        sent = {rank: slots for rank, slots in stale.items() if slots}
        self._crew.answers([self._crew.ask(Call(rank, "load", (slots, bank.state(slots)))) for rank, slots in sent.items()])
        self._held |= {slot: bank.changes[slot] for slots in sent.values() for slot in slots}

    def _done(self, attempt: Callable[[], Any]) -> Any:
        """``attempt``, made again until no learner is lost in it: the others end theirs at once, and all start from the bank."""
        losses = Counter[Hashable]()
        while True:
            try:
                return attempt()
            except Lost as lost:
                self._held.clear()
                self._crew.kill(lost)
                self._tell("abort", beside=CONTROL)
                self._crew.bear(losses, lost.index, lost)
                self._tell("settle")
            except BaseException:
                self._held.clear()  # some may have stepped
                raise

    def _tell(self, method: str, beside: str = "") -> None:
        """Ask all learners; a dead one is noticed, and replaced, by what comes after this."""
        for asked in [self._crew.ask(Call(rank, method), beside=beside) for rank in range(len(self._crew))]:
            with suppress(Lost):
                self._crew.answers([asked])


def _gradients(rank: int, owners: Mapping[int, int], guests: Mapping[tuple[int, int], Asked]) -> tuple[Any, ...]:
    """Arguments of `LearnerHost.add`: the slots that others helped with, and references to their gradients, which go there directly."""
    mine = [(slot, asked.values[1]) for (slot, _), asked in guests.items() if owners[slot] == rank]
    return [slot for slot, _ in mine], *(gradient for _, gradient in mine)


def _merged(parts: Iterable[dict[int, Any]]) -> dict[int, Any]:
    return {slot: value for part in parts for slot, value in part.items()}


def _summed(sums: Sums, guests: Iterable[tuple[tuple[int, int], list[float]]]) -> Sums:
    """Sums of owners and helpers; the last one is a maximum."""
    for (slot, _), part in guests:
        sums[slot] = [*(one + other for one, other in zip(sums[slot][:7], part[:7], strict=True)), max(sums[slot][7], part[7])]
    return sums
