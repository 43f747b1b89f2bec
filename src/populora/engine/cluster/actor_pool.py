"""Pools of actors that are replaced when they die, and remote calls that tell a dead actor from an application error.

A lost actor is noticed by the first result that does not arrive. Its calls can be repeated: no effect of a call is visible to others before
its result has arrived, and a new actor gets its state before it gets any other call.

A member of a pool is one actor, or several that work as one and get the same calls. If one of them is lost, all are replaced.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from populora.core.errors import ClusterError, MembersLost, PopuloraError
from populora.engine.cluster.placement import ActorPlace, RayCluster

MAX_RETRIES = 3
"""Losses after which a call is repeated; after one more, the call itself must be the cause."""
CLOSE_SECONDS = 10.0
LOOK_SECONDS = 1.0
"""For which a pool that lost a member waits for signs of life of the others. One that is at work gives none, and counts as alive."""
_log = logging.getLogger(__name__)
CallMember = Callable[..., Any]
"""Call a method of a member by its name with its arguments, and wait for the result."""
Prepare = Callable[[int, CallMember], Any]
"""Give the member at an index its state."""


@dataclass(frozen=True)
class Call:
    """A method call of the member at ``index``."""

    index: int
    method: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, eq=False)
class PendingCall:
    """References to the results of a call: ``values`` to those of the member's first actor, ``others`` to those of the rest."""

    index: int
    actors: tuple[Any, ...]
    values: tuple[Any, ...]
    others: tuple[Any, ...] = ()


class ActorLost(Exception):
    """The member at ``index``, with these ``actors``, is dead, or an object that it computed or needed is gone (``object_lost``)."""

    def __init__(self, index: int, actors: tuple[Any, ...], reason: str, object_lost: bool = False):
        super().__init__(reason)
        self.index, self.actors, self.object_lost = index, actors, object_lost


@dataclass(frozen=True)
class ActorKind:
    """Actors of a pool, created by ``actor(number)`` with their number within their member. Each runs ``concurrency`` calls at a time.

    An actor that ``breaks`` is useless after an error that is no `PopuloraError`: one of CUDA, or the death of a process that vLLM started.
    """

    name: str
    actor: type
    cpus: float
    gpus: float = 0.0
    concurrency: int = 1
    breaks: bool = False


class ActorPool:
    """One member for each of ``places``, with one actor for each place of it.

    ``prepare(index, call)`` gives a new member its state. Its return values are kept in ``prepared``. Raises as `replace`.
    """

    def __init__(self, cluster: RayCluster, kind: ActorKind, places: Sequence[Sequence[ActorPlace]], prepare: Prepare, wait_seconds: float):
        self.kind, self.faults, self.ray = kind, 0, cluster.ray
        self._cluster, self._places, self._prepare, self._wait = cluster, places, prepare, wait_seconds
        self._actor = cluster.ray.remote(kind.actor)
        errors = cluster.ray.exceptions
        self._gone = (errors.RayActorError, errors.ObjectLostError, errors.NodeDiedError, errors.OutOfMemoryError)
        self._replacing = threading.RLock()
        self._members: list[tuple[Any, ...]] = []
        with ThreadPoolExecutor(len(places), thread_name_prefix="prepare") as threads:
            started = list(threads.map(self._start, range(len(places))))
        self._members, self.prepared = [actors for actors, _ in started], [state for _, state in started]

    def __len__(self) -> int:
        return len(self._places)

    def put(self, value: Any) -> Any:
        """Store an argument of several calls, so that each machine receives it once."""
        return self.ray.put(value)

    def submit(self, call: Call, returns: int = 1) -> PendingCall:
        """Start a call whose method returns a tuple of ``returns`` values."""
        return self._submit(self._members[call.index], call, returns)

    def results(self, pending: Iterable[PendingCall]) -> list[Any]:
        """Wait for the first value of each call, in order. Raises application errors, and `ActorLost` as soon as a result cannot arrive."""
        pending = list(pending)
        calls = {reference: call for call in pending for reference in (call.values[0], *call.others)}
        waiting, values = list(calls), {}
        while waiting:
            (done,), waiting = self.ray.wait(waiting)
            values[done] = self._result(calls[done], done)
        return [values[call.values[0]] for call in pending]

    def wait_some(self, pending: Iterable[PendingCall], seconds: float | None = None) -> list[PendingCall]:
        """Wait until a call is done or lost. Returns all that are, which is none after ``seconds``.

        A look at tens of thousands of references takes long, so all are taken at once, not one a look.
        """
        by_reference = {call.values[0]: call for call in pending}
        done, waiting = self.ray.wait(list(by_reference), timeout=seconds)
        if done and waiting:
            done += self.ray.wait(waiting, num_returns=len(waiting), timeout=0)[0]
        return [by_reference[reference] for reference in done]

    def wait_all(self, pending: Iterable[PendingCall]) -> None:
        """Wait until each call is done or lost, and drop what it returns."""
        if references := [call.values[0] for call in pending]:
            self.ray.wait(references, num_returns=len(references))

    def run(self, calls: Sequence[Call]) -> list[Any]:
        """Make all calls and return their results in order. Lost members are replaced and their calls repeated."""
        results: dict[int, Any] = {}
        losses = Counter[Hashable]()
        waiting = {self.submit(call): number for number, call in enumerate(calls)}
        try:
            while waiting:
                for done in self.wait_some(waiting):
                    number = waiting.pop(done)
                    try:
                        (results[number],) = self.results([done])
                    except ActorLost as lost:
                        self.retry_or_raise(losses, number, lost)
                        waiting[self.submit(calls[number])] = number
        except Exception:  # a later call to these members must not overtake what they still do
            self.wait_all(waiting)
            raise
        return [results[number] for number in range(len(calls))]

    def retry_or_raise(self, losses: Counter[Hashable], task: Hashable, lost: ActorLost) -> None:
        """Replace the lost member, so that ``task`` can be repeated. ``losses`` counts the losses of each task. Raises `ClusterError` after
        `MAX_RETRIES`, or `MembersLost` if it was each time an object that was gone, and as `replace`."""
        losses[task] += 1
        if losses[task] > MAX_RETRIES:
            raise self._objects_lost(lost) if lost.object_lost else self._repeated_loss(lost)
        if not lost.object_lost:  # else the member lives, and that whose machine is gone is found by its next call
            self.replace(lost)

    def replace(self, lost: ActorLost) -> None:
        """Replace a lost member, unless another thread has done so, and at the same time those that were lost with it. Raises
        `ClusterError` if no resources are free in time, or if a new member dies repeatedly or reports another base model or other
        libraries than the old one."""
        with self._replacing:
            if self._members[lost.index] is not lost.actors:
                return
            dead = {lost.index: str(lost)} | self._lost_with(lost.index)
            self.faults += len(dead)
            if len(dead) == 1:  # in this thread, which an interrupt ends
                self._replace_member(lost.index, dead[lost.index])
                return
            with ThreadPoolExecutor(len(dead), thread_name_prefix="replace") as threads:
                list(threads.map(self._replace_member, dead, dead.values()))

    def close(self) -> None:
        """Let all members release what a kill would leave behind. Members that do not respond in time are left to Ray."""
        pending = [self.submit(Call(index, "close")) for index in range(len(self))]
        self.ray.wait([call.values[0] for call in pending], num_returns=len(pending), timeout=CLOSE_SECONDS)

    def _lost_with(self, index: int) -> dict[int, str]:
        """Look for other members that are dead, as all of a machine are that is gone. Returns the reasons by their indices."""
        others = {
            reference: PendingCall(number, actors, (reference,))
            for number, actors in enumerate(self._members)
            if number != index
            for reference in [actor.__ray_ready__.remote() for actor in actors]
        }
        answered = self.ray.wait(list(others), num_returns=len(others), timeout=LOOK_SECONDS)[0] if others else []
        dead: dict[int, str] = {}
        for reference in answered:
            try:
                self._result(others[reference], reference)
            except ActorLost as lost:
                dead[lost.index] = str(lost)
        return dead

    def _replace_member(self, index: int, reason: str) -> None:
        started = time.perf_counter()
        _log.warning("%s %d was lost (%s); it is replaced", self.kind.name, index, reason)
        self._kill(self._members[index])  # the others of a member may be waiting for the dead one
        actors, state = self._start(index)
        if state != self.prepared[index]:
            raise ClusterError(f"{self.kind.name} {index} was lost, and its successor found {state} instead of {self.prepared[index]}")
        self._members[index] = actors
        _log.warning("%s %d works again after %.1f s", self.kind.name, index, time.perf_counter() - started)

    def _start(self, index: int) -> tuple[tuple[Any, ...], Any]:
        """Create and prepare the actors of a member. Returns them and the result of ``prepare``. Raises `MembersLost` if objects that
        ``prepare`` sends are gone."""
        kind, losses = self.kind, 0
        while True:
            options = [self._cluster.actor_options(place, kind.cpus, kind.gpus) for place in self._places[index]]
            actors = tuple(
                self._actor.options(max_concurrency=kind.concurrency, **option).remote(number) for number, option in enumerate(options)
            )
            try:
                self._wait_ready(index, actors)
                return actors, self._prepare(index, partial(self._call, index, actors))
            except ActorLost as lost:
                self._kill(actors)
                if lost.object_lost:
                    raise self._objects_lost(lost) from lost
                losses += 1
                if losses > MAX_RETRIES:
                    raise self._repeated_loss(lost) from lost

    def _wait_ready(self, index: int, actors: tuple[Any, ...]) -> None:
        try:
            for actor in actors:
                reference = actor.__ray_ready__.remote()
                self._result(PendingCall(index, actors, (reference,)), reference, self._wait)
        except self.ray.exceptions.GetTimeoutError as error:
            self._kill(actors)
            advice = (
                "a machine is gone and no other has room. Add one and go on with `populora resume`: no more than the step in flight is "
                "lost."
                if self._members
                else "its process has not started. If machines import from a slow disk, raise cluster.wait_seconds."
            )
            raise ClusterError(
                f"{self.kind.name} {index}: expected a place in the cluster within cluster.wait_seconds ({self._wait:g}), but {advice}"
            ) from error

    def _kill(self, actors: tuple[Any, ...]) -> None:
        for actor in actors:
            self.ray.kill(actor)

    def _call(self, index: int, actors: tuple[Any, ...], method: str, *arguments: Any) -> Any:
        return self.results([self._submit(actors, Call(index, method, arguments))])[0]

    def _submit(self, actors: tuple[Any, ...], call: Call, returns: int = 1) -> PendingCall:
        results = [getattr(actor, call.method).options(num_returns=returns).remote(*call.arguments) for actor in actors]
        first, *others = [result if returns > 1 else [result] for result in results]
        return PendingCall(call.index, actors, tuple(first), tuple(reference for result in others for reference in result))

    def _result(self, call: PendingCall, reference: Any, timeout: float | None = None) -> Any:
        """Fetch one result of a call. Raises a `PopuloraError` of the actor as it is, `ActorLost` if the result cannot arrive or the actor
        is broken, and else Ray's error. For actors that work as one, any error may be the effect of another's death."""
        try:
            return self.ray.get(reference, timeout=timeout)
        except self.ray.exceptions.RayTaskError as error:
            cause: Any = error.cause
            if isinstance(cause, PopuloraError):
                raise cause from None
            if isinstance(cause, self._gone) or self.kind.breaks or len(call.actors) > 1:
                raise self._lost(call, cause or error) from error
            raise
        except self._gone as error:
            raise self._lost(call, error) from error

    def _lost(self, call: PendingCall, error: BaseException) -> ActorLost:
        """Attribute the loss to the dead actor, which may belong to another member whose result was an argument of the call."""
        dead = getattr(error, "actor_id", None)
        index, lost = call.index, call.actors
        for number, actors in enumerate(self._members):
            if number != call.index and dead in [actor._actor_id.hex() for actor in actors]:
                index, lost = number, actors
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
        reason = f"{lines[0]} {lines[-1]}" if "creation task" in lines[0] else lines[0]  # the cause of a failed creation comes last
        if not isinstance(error, self.ray.exceptions.RayError):
            reason = f"{type(error).__name__}: {reason}"
        return ActorLost(index, lost, reason, isinstance(error, self.ray.exceptions.ObjectLostError))

    def _objects_lost(self, lost: ActorLost) -> MembersLost:
        return MembersLost(f"{self.kind.name} {lost.index} cannot get its adapters, because they were on a machine that is gone ({lost})")

    def _repeated_loss(self, lost: ActorLost) -> ClusterError:
        return ClusterError(
            f"{self.kind.name} {lost.index} was lost {MAX_RETRIES + 1} times in a row without finishing the same thing (last: {lost}): "
            "that is no accident. See Ray's logs, then go on with `populora resume`: no more than the step in flight is lost."
        )
