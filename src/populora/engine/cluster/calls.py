"""Asking actors: what is asked, what is waited for, and how an answer that will not come is told from an error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from populora.core.errors import PopuloraError


@dataclass(frozen=True)
class Call:
    """What is asked of the member at ``index`` of a crew."""

    index: int
    method: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, eq=False)
class Asked:
    """References to what the ``actors`` of a member answer: ``values`` to what the first of them returns, ``others`` to the rest."""

    index: int
    actors: tuple[Any, ...]
    values: tuple[Any, ...]
    others: tuple[Any, ...] = ()


class Lost(Exception):
    """The member at ``index`` is gone, or what it had computed, or what that depended on; it had these ``actors``."""

    def __init__(self, index: int, actors: tuple[Any, ...], reason: str):
        super().__init__(reason)
        self.index, self.actors = index, actors


def ask(ray: Any, actors: tuple[Any, ...], call: Call, returns: int = 1, beside: str = "") -> Asked:
    """Ask all actors of a member; ``returns`` is how many values the method gives, ``beside`` a concurrency group."""
    options = {"num_returns": returns, **({"concurrency_group": beside} if beside else {})}
    found = [getattr(actor, call.method).options(**options).remote(*call.arguments) for actor in actors]
    first, *others = [one if returns > 1 else [one] for one in found]
    return Asked(call.index, actors, tuple(first), tuple(reference for one in others for reference in one))


def answer(ray: Any, asked: Asked, reference: Any, timeout: float | None = None) -> Any:
    """The answer behind one of its references. Raises what the actor raised if that is a `PopuloraError`, `Lost` for what will not come,
    and Ray's own error for a fault of the program. Of actors that work as one, any fault may be how one notices another's death."""
    errors = ray.exceptions
    gone = (errors.RayActorError, errors.ObjectLostError, errors.NodeDiedError, errors.OutOfMemoryError)
    try:
        return ray.get(reference, timeout=timeout)
    except errors.RayTaskError as error:
        if isinstance(error.cause, PopuloraError):
            raise error.cause from None
        if isinstance(error.cause, gone) or len(asked.actors) > 1:
            raise Lost(asked.index, asked.actors, _reason(error.cause or error)) from error
        raise
    except gone as error:
        raise Lost(asked.index, asked.actors, _reason(error)) from error


def dead_of(error: BaseException | None) -> str | None:
    """Ray's id of the actor that an error tells the death of."""
    return getattr(getattr(error, "cause", None), "actor_id", None) or getattr(error, "actor_id", None)


def _reason(error: BaseException) -> str:
    said = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return f"{said[0]} {said[-1]}" if "creation task" in said[0] else said[0]  # who could not even be made says why at the end
