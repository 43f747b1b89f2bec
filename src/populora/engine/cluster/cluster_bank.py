"""The adapters of a cluster run as references: weights and moments stay on their owners' machines, in Ray's object stores.

Each learner owns some slots (`owners_of`). After a change it stores every changed slot on its machine, and the controller keeps the
references. So a slot outlives its owner's process, and moves straight to where it is needed: to the owner's successor, to the learner that
breeds from it, and once to each machine with engines that hold it. Slots whose only machine is gone are lost (`MembersLost`).
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from populora.adapters.adapter import Adapter
from populora.core.errors import ClusterError
from populora.core.files import make_folder
from populora.core.types import Lineage
from populora.engine.bank import Birth
from populora.engine.cluster.actor_pool import ActorLost, ActorPool, Call
from populora.engine.cluster.load_balancing import owners_of

Result = TypeVar("Result")


class StoredSlot(NamedTuple):
    """References to what a learner stored of a slot, and what the controller has to know of it."""

    state: Any
    """`LoraBank.state` of the slot."""
    adapter: Any
    """In the precision of the base, for engines and helpers."""
    untrained: bool


class Change(NamedTuple):
    """A call of a learner whose method stores ``slots`` anew (`learner_actor.Stored`)."""

    call: Call
    slots: Sequence[int]


class ClusterBank:
    """A `populora.engine.bank.Bank` of the slots that the learners of ``pool`` own.

    ``stored`` is by slot; a learner that replaces another one loads its slots from it.
    """

    def __init__(self, pool: ActorPool, slots: int, stored: dict[int, StoredSlot]):
        self.slots, self.stored, self.owners = slots, stored, owners_of(slots, len(pool))
        self._pool = pool
        self._outdated = set[int]()
        """Slots that their owners must load before the next call, because they were bred elsewhere or a change was broken off."""

    def initialise(self, seed: int, ranks: Sequence[int] | None = None) -> None:
        """See `Bank.initialise`."""
        owned = self._by_owner(range(self.slots))
        self.change([Change(Call(owner, "initialise", (seed, ranks)), slots) for owner, slots in owned.items()])

    def adapter(self, slot: int) -> Adapter:
        """See `Bank.adapter`. A run does not need it: the adapter comes to this process."""
        return self._results([Call(self.owners[slot], "adapter", (slot,))])[0]

    def load(self, slot: int, adapter: Adapter) -> None:
        """See `Bank.load`."""
        self.change([Change(Call(self.owners[slot], "put", (slot, adapter)), [slot])])

    def untrained(self, slot: int) -> bool:
        """See `Bank.untrained`."""
        return self.stored[slot].untrained

    def basis_cosine(self, slots: Sequence[int]) -> float:
        """See `Bank.basis_cosine`."""
        return self._results([Call(self.owners[slots[0]], "basis_cosine", tuple(self.stored[slot].state for slot in slots))])[0]

    def breed(self, births: Sequence[Birth]) -> list[Lineage]:
        """See `Bank.breed`. The owner of its first parent breeds a child."""
        calls = [
            Call(self.owners[birth.parents[0]], "breed", (birth.plan, birth.names, *(self.stored[slot].state for slot in birth.parents)))
            for birth in births
        ]
        lineages = self.change([Change(call, [birth.slot]) for call, birth in zip(calls, births, strict=True)])
        self._outdated |= {birth.slot for birth in births}
        return lineages

    def write_adapters(self, folder: Path, slots: Mapping[str, int], base: str, targets: Sequence[str]) -> dict[str, str]:
        """See `Bank.write_adapters`. Owners write; `ClusterError` if the controller does not see what they wrote."""
        return self._write(folder, "write_adapters", slots, base, targets)

    def write_optimiser(self, folder: Path, slots: Mapping[str, int]) -> dict[str, str]:
        """See `Bank.write_optimiser`. Owners write; `ClusterError` if the controller does not see what they wrote."""
        return self._write(folder, "write_optimiser", slots)

    def read(self, adapters: Path, optimiser: Path, slots: Mapping[str, int], digests: Mapping[Path, str]) -> None:
        """See `Bank.read`. Owners read. What was stored of these slots before may be lost, and is not needed."""
        for slot in slots.values():
            self.stored.pop(slot, None)
        self._outdated &= self.stored.keys()
        folders, digests = (adapters.absolute(), optimiser.absolute()), {path.absolute(): value for path, value in digests.items()}
        owned = [(owner, _named(slots, indices)) for owner, indices in self._by_owner(slots.values()).items()]
        self.change([Change(Call(owner, "read", (*folders, named, digests)), list(named.values())) for owner, named in owned])

    def change(self, changes: Sequence[Change]) -> list[Any]:
        """Make calls that store slots anew, all of them or none. Returns the calls' values."""
        values, stored = self.until_no_loss(lambda: self.call(changes))
        self.stored |= stored
        return values

    def call(self, changes: Sequence[Change]) -> tuple[list[Any], dict[int, StoredSlot]]:
        """Make calls that store slots anew. Returns their values, and what they stored, for `stored`. Raises as `ActorPool.results`."""
        calls = [self._pool.submit(change.call, returns=1 + 2 * len(change.slots)) for change in changes]
        values, stored = [], dict[int, StoredSlot]()
        for change, call, (value, untrained) in zip(changes, calls, self._pool.results(calls), strict=True):
            values.append(value)
            parts = zip(call.values[1::2], call.values[2::2], untrained, strict=True)
            stored |= {slot: StoredSlot(*part) for slot, part in zip(change.slots, parts, strict=True)}
        return values, stored

    def until_no_loss(self, compute: Callable[[], Result]) -> Result:
        """Repeat ``compute``, which calls learners, until none is lost in it. Before it owners have the slots as they are stored."""
        losses = Counter[Hashable]()
        while True:
            try:
                self._refresh()
                self._outdated = set(self.stored)  # some learners may have made their step when others fail
                result = compute()
                self._outdated = set()
                return result
            except ActorLost as lost:
                self._pool.retry_or_raise(losses, lost.index, lost)

    def _refresh(self) -> None:
        owned = self._by_owner(self._outdated)
        calls = [Call(owner, "load", (slots, *(self.stored[slot].state for slot in slots))) for owner, slots in owned.items()]
        self._pool.results([self._pool.submit(call) for call in calls])

    def _results(self, calls: Sequence[Call]) -> list[Any]:
        return self.until_no_loss(lambda: self._pool.results([self._pool.submit(call) for call in calls]))

    def _write(self, folder: Path, method: str, slots: Mapping[str, int], *arguments: Any) -> dict[str, str]:
        if slots:
            make_folder(folder)
        owned = self._by_owner(slots.values())
        calls = [Call(owner, method, (folder.absolute(), _named(slots, indices), *arguments)) for owner, indices in owned.items()]
        digests = {name: digest for part in self._results(calls) for name, digest in part.items()}
        for name in digests:
            if not (folder / name).is_file():
                raise ClusterError(
                    f"expected '{folder / name}', which a learner wrote: choose a folder of the run (--out) on storage that this machine "
                    "shares with those of the learners"
                )
        return digests

    def _by_owner(self, slots: Iterable[int]) -> dict[int, list[int]]:
        by_owner: dict[int, list[int]] = {}
        for slot in sorted(slots):
            by_owner.setdefault(self.owners[slot], []).append(slot)
        return by_owner


def _named(names: Mapping[str, int], slots: Sequence[int]) -> dict[str, int]:
    """Those of the slots by name that are among ``slots``."""
    return {name: slot for name, slot in names.items() if slot in slots}
