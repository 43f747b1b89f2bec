"""Children with a record of how they were bred, and the file ``lineage.json`` that holds it beside a child's weights.

Breeding is a function of the record and the parents, so breeding by a child's own record gives the record again, the child's
fingerprint in it: that is what `populora replay` compares. The arithmetic runs on one thread, whatever torch may use, and on modules in
alphabetical order: sums over more threads or in another order differ in their last bits, and a child would depend on the machine's cores.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import torch

from populora.adapters.adapter import Adapter
from populora.adapters.operators.breeding import breed
from populora.adapters.operators.registry import get_operator
from populora.adapters.svd import Refactor
from populora.core.errors import AdapterError
from populora.core.rng import stream
from populora.core.types import Lineage

LINEAGE_FILE = "lineage.json"


def bred(plan: Lineage, parents: Sequence[tuple[str, Adapter]], allow_copy: bool = False) -> tuple[Adapter, Lineage]:
    """The child of these named parents by a plan's operator, strengths, refactor, seed and stream; and the plan filled in.

    A strength that the plan leaves out has its default. Raises as `breed` does, also for a child that equals a parent.
    """
    with _one_thread():
        strength = get_operator(plan.operator).strengths | plan.strength
        rng, adapters = stream(plan.seed, *plan.stream), [_in_order(adapter) for _, adapter in parents]
        child = breed(adapters, plan.operator, rng, cast(Refactor, plan.refactor), allow_copy, **strength)
    return child.adapter, replace(
        plan,
        parents=tuple(f"{name}:{adapter.fingerprint()}" for name, adapter in parents),
        strength=strength,
        norm_ratio=child.norm_ratio,
        cosines=child.cosines,
        effective_rank=child.effective_rank,
        fingerprint=child.adapter.fingerprint(),
    )


def rebred(lineage: Lineage, parents: Sequence[tuple[str, Adapter]]) -> tuple[Adapter, list[str]]:
    """Breed a child again by its record; the child, and in what its new record differs (nothing where it is equal to the byte).

    ``parents`` are in the record's order, each under the name for messages. Raises `AdapterError` for one that is not the record's.
    """
    if len(parents) != len(lineage.parents):
        raise AdapterError(f"'{lineage.member}' has {len(lineage.parents)} parent(s), got {len(parents)}")
    adapters = [adapter for _, adapter in parents]
    child, again = bred(lineage, list(zip(lineage.parent_names, adapters, strict=True)), allow_copy=True)
    for (shown, _), expected, found in zip(parents, lineage.parents, again.parents, strict=True):
        if found != expected:
            raise AdapterError(
                f"'{shown}' is not the parent of '{lineage.member}': expected {expected}, got {found}. It was changed since, or is another "
                "adapter"
            )
    before, now = asdict(lineage), asdict(again)
    return child, [f"{name}: {before[name]!r} on record, {now[name]!r} now" for name in before if before[name] != now[name]]


def lineage_bytes(lineage: Lineage, versions: Mapping[str, str]) -> bytes:
    """Content of ``lineage.json``: the record, and the versions of what bred the child."""
    return (json.dumps({**asdict(lineage), "versions": dict(versions)}, indent=2) + "\n").encode()


def read_lineage(folder: Path) -> tuple[Lineage | None, dict[str, str]]:
    """Record and versions from the ``lineage.json`` of a folder, where it has one. Raises `AdapterError`."""
    path = folder / LINEAGE_FILE
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        versions = values.pop("versions")
        return Lineage.from_plain(values), versions
    except FileNotFoundError:
        return None, {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise AdapterError(
            f"'{path}' is not the lineage of an adapter ({error}): restore it, breed the child again, or remove the file: a parent without "
            "one counts as generation 0"
        ) from error


def _in_order(adapter: Adapter) -> Adapter:
    """The same adapter, its modules in alphabetical order."""
    return replace(adapter, modules=dict(sorted(adapter.modules.items())))


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
