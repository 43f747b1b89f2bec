"""Actors of one kind, which are replaced when they die.

A lost actor is noticed by the first answer that does not come. What it was asked can be asked again: nothing that an actor does can be
seen by others before its answer has come, and a new one is prepared from what the controller has, before anybody can ask it.

A member of a crew is one actor, or several that work as one and are asked the same: then all of them go when one is lost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from populora.core.errors import ClusterError
from populora.engine.cluster.calls import Asked, Call, Lost, answer, ask, dead_of
from populora.engine.cluster.placement import Place, Session

PATIENCE = 3
"""So often the same thing may be asked again after its actor was lost; if that is lost too, the cause is no accident."""
CLOSING_SECONDS = 10.0
_log = logging.getLogger(__name__)
Ask = Callable[..., Any]
"""Ask a member by the name of a method and its arguments, and wait for the answer."""


@dataclass(frozen=True)
class Kind:
    """What the actors of a crew are: made by ``host(number)`` with their number among the actors of one member. ``calls`` are answered at
    a time, in any order if there are several; those of the groups ``beside`` apart from them."""

    name: str
    host: type
    cpus: float
    gpus: float = 0.0
    calls: int = 1
    beside: tuple[str, ...] = ()


class Crew:
    """One member at each of ``places``, which has as many actors as there are places for it. ``prepare(index, ask)`` brings a new one to
    where it can work; what it gave back stands in ``prepared``. Raises as `replace` does."""

    def __init__(
        self, session: Session, kind: Kind, places: Sequence[Sequence[Place]], prepare: Callable[[int, Ask], Any], wait_seconds: float
    ):
        self.kind, self.faults, self.ray = kind, 0, session.ray
        self._session, self._places, self._prepare, self._wait = session, places, prepare, wait_seconds
        self._host = session.ray.remote(concurrency_groups=dict.fromkeys(kind.beside, 1))(kind.host)
        self._replacing = threading.RLock()
        self._actors: list[tuple[Any, ...]] = []
        with ThreadPoolExecutor(len(places), thread_name_prefix="prepare") as threads:
            ready = list(threads.map(self._ready, range(len(places))))
        self._actors, self.prepared = [actors for actors, _ in ready], [found for _, found in ready]

    def __len__(self) -> int:
        return len(self._places)

    def ask(self, call: Call, returns: int = 1, beside: str = "") -> Asked:
        """``returns`` is how many values the method gives. Calls of one member are done in order, but for those of a group ``beside``."""
        return ask(self.ray, self._actors[call.index], call, returns, beside)

    def share(self, value: Any) -> Any:
        """A reference to ``value``, which then goes to each machine once, however many actors are asked with it."""
        return self.ray.put(value)

    def answers(self, asked: Iterable[Asked]) -> list[Any]:
        """The first value of each, in order. Raises what an actor raised, and `Lost` as soon as one of them will not come."""
        asked = list(asked)
        owner = {reference: one for one in asked for reference in (one.values[0], *one.others)}
        waiting, found = list(owner), {}
        while waiting:
            (done,), waiting = self.ray.wait(waiting)
            found[done] = self._answer(owner[done], done)
        return [found[one.values[0]] for one in asked]

    def first(self, asked: Iterable[Asked], seconds: float | None = None) -> Asked | None:
        """The first of them whose answer has come, or that was lost; None if there is none within ``seconds``."""
        by_reference = {one.values[0]: one for one in asked}
        done, _ = self.ray.wait(list(by_reference), timeout=seconds)
        return by_reference[done[0]] if done else None

    def each(self, calls: Sequence[Call]) -> list[Any]:
        """Answers to all calls, in order. What a lost member was asked is asked again of the one that replaces it."""
        found: dict[int, Any] = {}
        losses = Counter[Hashable]()
        waiting = {self.ask(call): number for number, call in enumerate(calls)}
        while waiting and (asked := self.first(waiting)) is not None:
            number = waiting.pop(asked)
            try:
                (found[number],) = self.answers([asked])
            except Lost as lost:
                self.bear(losses, number, lost)
                waiting[self.ask(calls[number])] = number
        return [found[number] for number in range(len(calls))]

    def bear(self, losses: Counter[Hashable], what: Hashable, lost: Lost) -> None:
        """Replace the lost member, so that ``what`` it was asked can be asked again; ``losses`` counts how often it was. Raises as
        `replace`, and `ClusterError` when that was too often."""
        losses[what] += 1
        if losses[what] > PATIENCE:
            raise self._no_accident(lost)
        self.replace(lost)

    def kill(self, lost: Lost) -> None:
        """End all actors of a lost member: those that work with a dead one may be waiting for it."""
        for actor in lost.actors:
            self.ray.kill(actor)

    def replace(self, lost: Lost) -> None:
        """Put a new member in the place of a lost one, unless that was done already. Raises `ClusterError` if it cannot be had in time,
        dies whenever it is made, or finds another base or other libraries than the one before."""
        with self._replacing:
            index = lost.index
            if self._actors[index] is not lost.actors:
                return
            started = time.perf_counter()
            self.faults += 1
            _log.warning("%s %d was lost (%s); it is replaced", self.kind.name, index, lost)
            self.kill(lost)
            actors, found = self._ready(index)
            if found != self.prepared[index]:
                raise ClusterError(f"{self.kind.name} {index} was lost, and its successor found {found} instead of {self.prepared[index]}")
            self._actors[index] = actors
            _log.warning("%s %d works again after %.1f s", self.kind.name, index, time.perf_counter() - started)

    def close(self) -> None:
        """Have all members end what an abrupt end would leave behind; whoever does not answer soon is left to Ray."""
        asked = [self.ask(Call(index, "close")) for index in range(len(self))]
        self.ray.wait([one.values[0] for one in asked], num_returns=len(asked), timeout=CLOSING_SECONDS)

    def _ready(self, index: int) -> tuple[tuple[Any, ...], Any]:
        """New actors for a member, prepared, and what they found."""
        kind, session, losses = self.kind, self._session, 0
        while True:
            options = [session.options(place, kind.cpus, kind.gpus) for place in self._places[index]]
            actors = tuple(self._host.options(max_concurrency=kind.calls, **one).remote(number) for number, one in enumerate(options))
            try:
                return actors, self._prepare(index, self._asking(index, actors))
            except Lost as lost:
                self.kill(lost)
                losses += 1
                if losses > PATIENCE:
                    raise self._no_accident(lost) from lost

    def _asking(self, index: int, actors: tuple[Any, ...]) -> Ask:
        try:
            for actor in actors:
                reference = actor.__ray_ready__.remote()
                answer(self.ray, Asked(index, actors, (reference,)), reference, self._wait)
        except self.ray.exceptions.GetTimeoutError as error:
            for actor in actors:
                self.ray.kill(actor)
            raise ClusterError(
                f"{self.kind.name} {index}: expected a place in the cluster within cluster.wait_seconds ({self._wait:g}), but a machine is "
                "gone and no other has room. Add one and go on with `populora resume`: no more than the step in flight is lost."
            ) from error
        return lambda method, *arguments: self.answers([ask(self.ray, actors, Call(index, method, arguments))])[0]

    def _answer(self, asked: Asked, reference: Any) -> Any:
        try:
            return answer(self.ray, asked, reference)
        except Lost as lost:
            dead = dead_of(lost.__cause__)
            for index, actors in enumerate(self._actors):  # an answer may be lost with another member, whom it depended on
                if index != lost.index and dead in [actor._actor_id.hex() for actor in actors]:
                    raise Lost(index, actors, str(lost)) from lost
            raise

    def _no_accident(self, lost: Lost) -> ClusterError:
        return ClusterError(
            f"{self.kind.name} {lost.index} was lost {PATIENCE + 1} times in a row without finishing the same thing (last: {lost}): that "
            "is no accident. See Ray's logs, then go on with `populora resume`: no more than the step in flight is lost."
        )
