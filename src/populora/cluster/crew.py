"""Actors of one kind, which are replaced when they die.

A lost actor is noticed by the first answer that does not come. What it was asked can be asked again: nothing that an actor does can be
seen by others before its answer has come, and a new one is prepared from what the controller has.

A member of a crew is one actor, or several that work as one and are asked the same: then all of them go when one is lost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from populora.cluster.session import Place, Session
from populora.errors import ClusterError, PopuloraError

PATIENCE = 3
"""A member may be lost so many times in a row without finishing anything; then the cause is no accident."""
_log = logging.getLogger(__name__)
Ask = Callable[..., Any]
"""Ask a member by the name of a method and its arguments, and wait for the answer."""


class Lost(Exception):
    """An actor, or what it had computed, is gone; ``actor`` is its Ray id, if that is known."""

    def __init__(self, actor: str | None, reason: str):
        super().__init__(reason)
        self.actor = actor


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


@dataclass(frozen=True)
class Call:
    """What is asked of the member at ``index``."""

    index: int
    method: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, eq=False)
class Asked:
    """References to answers: ``values`` to what a member's first actor returns, ``others`` to those of the rest."""

    index: int
    values: tuple[Any, ...]
    others: tuple[Any, ...] = ()


class Crew:
    """One member at each of ``places``, which has as many actors as there are places for it. ``prepare(index, ask)`` brings a new one to
    where it can work; what it gave back last stands in ``prepared``. Raises as `replace` does."""

    def __init__(
        self, session: Session, kind: Kind, places: Sequence[Sequence[Place]], prepare: Callable[[int, Ask], Any], wait_seconds: float
    ):
        self.kind, self.faults, self.ray = kind, 0, session.ray
        self._session, self._places, self._prepare, self._wait = session, places, prepare, wait_seconds
        self._host = session.ray.remote(concurrency_groups=dict.fromkeys(kind.beside, 1))(kind.host)
        self._losses = [0] * len(places)
        self._replacing = threading.RLock()
        self._actors = [self._start(index) for index in range(len(places))]
        with ThreadPoolExecutor(len(places), thread_name_prefix="prepare") as threads:
            self.prepared = list(threads.map(self._ready, range(len(places))))

    def __len__(self) -> int:
        return len(self._places)

    def ask(self, call: Call, returns: int = 1, beside: str = "") -> Asked:
        """``returns`` is how many values the method gives. Calls of one member are done in order, but for those of a group ``beside``."""
        options = {"num_returns": returns, **({"concurrency_group": beside} if beside else {})}
        found = [getattr(actor, call.method).options(**options).remote(*call.arguments) for actor in self._actors[call.index]]
        first, *others = [one if returns > 1 else [one] for one in found]
        return Asked(call.index, tuple(first), tuple(reference for one in others for reference in one))

    def answers(self, asked: Iterable[Asked]) -> list[Any]:
        """The first value of each, in order. Raises what an actor raised, and `Lost` as soon as one of them will not come."""
        asked = list(asked)
        waiting = [reference for one in asked for reference in (one.values[0], *one.others)]
        while waiting:
            (done,), waiting = self.ray.wait(waiting)
            self._answer(done)
        return [self._answer(one.values[0]) for one in asked]

    def worked(self, index: int) -> None:
        """This member has done what it is there for: losses are counted from here again."""
        self._losses[index] = 0

    def first(self, asked: Iterable[Asked], seconds: float | None = None) -> Asked | None:
        """The first of them whose answer has come, or that was lost; None if there is none within ``seconds``."""
        by_reference = {one.values[0]: one for one in asked}
        done, _ = self.ray.wait(list(by_reference), timeout=seconds)
        return by_reference[done[0]] if done else None

    def each(self, calls: Sequence[Call]) -> list[Any]:
        """Answers to all calls, in order. What a lost member was asked is asked again of the one that replaces it."""
        found: dict[int, Any] = {}
        waiting = {self.ask(call): number for number, call in enumerate(calls)}
        while (asked := self.first(waiting)) is not None:
            number = waiting.pop(asked)
            try:
                (found[number],) = self.answers([asked])
                self.worked(asked.index)
            except Lost as lost:
                self.replace(lost)
                waiting[self.ask(calls[number])] = number
        return [found[number] for number in range(len(calls))]

    def share(self, value: Any) -> Any:
        """A reference to ``value``, which then goes to each machine once, however many actors are asked with it."""
        return self.ray.put(value)

    def close(self) -> None:
        """Ask all members to end what an abrupt end would leave behind; those that are dead have left it."""
        for asked in [self.ask(Call(index, "close")) for index in range(len(self))]:
            with suppress(Lost):
                self.answers([asked])

    def replace(self, lost: Lost) -> None:
        """Put a new member in the place of the one that lost an actor, unless that was done already. Raises `ClusterError` if it cannot be
        had in time, or if members are lost at this place again and again."""
        with self._replacing:
            for index, actors in enumerate(self._actors):
                if lost.actor in [actor._actor_id.hex() for actor in actors]:
                    started = time.perf_counter()
                    self._renew(index, lost)
                    self.prepared[index] = self._ready(index)
                    _log.warning("%s %d works again after %.1f s", self.kind.name, index, time.perf_counter() - started)

    def _ready(self, index: int) -> Any:
        while True:
            try:
                return self._prepare(index, self._asking(index))
            except Lost as lost:
                self._renew(index, lost)

    def _renew(self, index: int, lost: Lost) -> None:
        self.faults += 1
        self._losses[index] += 1
        if self._losses[index] > PATIENCE:
            raise ClusterError(
                f"{self.kind.name} {index} was lost {PATIENCE + 1} times in a row without finishing anything (last: {lost}): that is no "
                "accident. See Ray's logs, then go on with `populora resume`: no more than the step in flight is lost."
            )
        _log.warning("%s %d was lost (%s); it is replaced", self.kind.name, index, lost)
        for actor in self._actors[index]:
            self.ray.kill(actor)
        self._actors[index] = self._start(index)

    def _start(self, index: int) -> list[Any]:
        kind, session = self.kind, self._session
        options = [session.options(place, kind.cpus, kind.gpus) for place in self._places[index]]
        return [self._host.options(max_concurrency=kind.calls, **one).remote(number) for number, one in enumerate(options)]

    def _asking(self, index: int) -> Ask:
        try:
            for actor in self._actors[index]:
                self._answer(actor.__ray_ready__.remote(), self._wait)
        except self.ray.exceptions.GetTimeoutError as error:
            raise ClusterError(
                f"{self.kind.name} {index}: expected a place in the cluster within cluster.wait_seconds ({self._wait:g}), but a machine is "
                "gone and no other has room. Add one and go on with `populora resume`: no more than the step in flight is lost."
            ) from error
        return lambda method, *arguments: self.answers([self.ask(Call(index, method, arguments))])[0]

    def _answer(self, reference: Any, timeout: float | None = None) -> Any:
        errors = self.ray.exceptions
        gone = (errors.RayActorError, errors.ObjectLostError, errors.NodeDiedError)
        try:
            return self.ray.get(reference, timeout=timeout)
        except errors.RayTaskError as error:
            if isinstance(error.cause, PopuloraError):
                raise error.cause from None
            if isinstance(error.cause, gone):
                raise _lost(error.cause) from error
            raise
        except gone as error:
            raise _lost(error) from error


def _lost(error: Exception) -> Lost:
    said = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    reason = f"{said[0]} {said[-1]}" if "creation task" in said[0] else said[0]  # who could not even be made says why at the end
    return Lost(getattr(error, "actor_id", None), reason)
