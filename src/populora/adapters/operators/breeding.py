"""Breed a child by a record of how: check the parents, apply the operator, check and measure the child.

A child is a function of its record (`populora.core.types.Lineage`) and its parents, so that a record breeds its child again, bit by
bit: `populora replay` compares. The arithmetic runs on one thread, on modules in alphabetical order and on factors at multiples of 64
bytes: the last bits of matrix products depend on all three.

An operator that is no control and gives a parent again (strength 0, equal parents) has done nothing and is refused, unless copies
are allowed. Evolution allows them: there X2 may draw one parent throughout, and its odds are part of the operator.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

import torch

from populora.adapters.adapter import Adapter, all_finite
from populora.adapters.operators.registry import Operator, get_operator
from populora.adapters.operators.similarity import basis_cosine, measure_similarity, same_adapter
from populora.adapters.peft_format import read_folder, save_folder
from populora.adapters.peft_settings import CONFIG_FILE, check_agreement
from populora.adapters.svd import Refactor
from populora.adapters.threads import torch_threads
from populora.core.errors import AdapterError, ConfigError
from populora.core.installed import BREEDING, versions
from populora.core.rng import stream
from populora.core.types import Lineage

LINEAGE_FILE = "lineage.json"
COMMON_BASIS = 0.5
"""Parents whose A have at least this cosine count as written in one basis. The default of ``evolution.min_basis_cosine`` is the same."""


def breed(
    parents: Sequence[Adapter],
    plan: Lineage,
    names: Sequence[str] = (),
    allow_copy: bool = False,
    operator: Operator | None = None,
) -> tuple[Adapter, Lineage]:
    """Breed the child of ``parents`` by the plan's operator, strengths, refactor, seed and stream; return it and the completed plan.

    ``names`` are recorded for the parents, by default "parent 1" and so on; ``operator`` is that of the plan, if it was looked up already.
    Strengths that the plan leaves out have their defaults. The parents stay untouched.

    Raises `ConfigError` for an unknown operator, refactor or strength, a strength out of range, or a wrong number of parents.
    Raises `AdapterError` for parents that do not fit together, are not fp32, or hold NaN or infinite weights, for such a child, and,
    unless ``allow_copy`` or the operator is a control, for a child that equals a parent.
    """
    operator, refactor = operator or get_operator(plan.operator), plan.refactor or "revive"
    if refactor not in get_args(Refactor):
        raise ConfigError(f"refactor: expected one of {', '.join(get_args(Refactor))}, got {refactor!r}")
    operator.check_arity(len(parents))
    operator.check_strength(plan.strength)
    for index, parent in enumerate(parents, start=1):
        check_fit(f"parent {index}", parent, parents[0])
    strength = operator.strengths | plan.strength
    with torch_threads(1):
        aligned = [_aligned(parent) for parent in parents]
        options = {"refactor": refactor, **strength} if operator.takes_refactor else strength
        child = _aligned(operator.function(aligned, stream(plan.seed, *plan.stream), **options))
        check_fit(f"the child of operator '{operator.name}'", child, aligned[0], cure="choose smaller strengths")
        similarity = measure_similarity(child, aligned)
        basis = basis_cosine(*aligned) if len(aligned) == 2 else None
        for index, (parent, cosine) in enumerate(zip(aligned, similarity.cosines, strict=True), start=1):
            if not (allow_copy or operator.control) and same_adapter(child, parent, cosine):
                raise AdapterError(
                    f"operator '{operator.name}' gave a child equal to parent {index} (to fp32 accuracy): choose a higher strength, "
                    "another seed or parents that differ; operator 'copy_parent' copies on purpose"
                )
    names = names or [f"parent {index}" for index in range(1, 1 + len(parents))]
    fingerprints = tuple(f"{name}:{parent.fingerprint()}" for name, parent in zip(names, parents, strict=True))
    completed = {"parents": fingerprints, "strength": strength, "refactor": refactor, "fingerprint": child.fingerprint()}
    return child, replace(plan, **completed, **similarity._asdict(), basis_cosine=basis)


def breed_folders(
    parents: Sequence[Path], plan: Lineage, out: Path, allow_other_base: bool = False, operator: Operator | None = None
) -> tuple[Adapter, Lineage]:
    """Breed the child of PEFT folders as `breed`, and write it to the new folder ``out`` with its parent's settings and its record.

    The child is named after ``out`` and is one generation younger than its parents. Raises as `breed`, and `AdapterError` for folders of
    different bases, unless they are allowed, and for an ``out`` that is not empty.
    """
    out = out.resolve()
    (operator or get_operator(plan.operator)).check_arity(len(parents))
    folders = [read_folder(parent) for parent in parents]
    check_agreement(parents, [folder.settings for folder in folders], allow_other_base)
    generation = 1 + max(lineage.generation if lineage else 0 for lineage, _ in map(read_lineage, parents))
    names = [os.path.relpath(parent, out) for parent in parents]  # holds as long as the folders move together
    plan = replace(plan, member=out.name, generation=generation)
    child, lineage = breed([folder.adapter for folder in folders], plan, names, operator=operator)
    save_folder(child, out, {CONFIG_FILE: folders[0].text, LINEAGE_FILE: lineage_bytes(lineage, versions(BREEDING))})
    return child, lineage


def breed_again(lineage: Lineage, parents: Sequence[tuple[str, Adapter]]) -> tuple[Adapter, list[str]]:
    """Breed a child again by its record; return it and the fields in which its new record differs (none if it is bit-identical).

    ``parents`` are in the record's order, each under the name for messages. Raises `AdapterError` for one that is not the record's.
    """
    if len(parents) != len(lineage.parents):
        raise AdapterError(f"'{lineage.member}' has {len(lineage.parents)} parent(s), got {len(parents)}")
    child, rebred = breed([adapter for _, adapter in parents], lineage, lineage.parent_names, allow_copy=True)
    for (name, _), expected, actual in zip(parents, lineage.parents, rebred.parents, strict=True):
        if actual != expected:
            raise AdapterError(
                f"'{name}' is not the parent of '{lineage.member}': expected {expected}, got {actual}. It was changed since, or is another "
                "adapter"
            )
    recorded, actual_record = asdict(lineage), asdict(rebred)
    return child, [
        f"{name}: {recorded[name]!r} on record, {actual_record[name]!r} now" for name in recorded if recorded[name] != actual_record[name]
    ]


def basis_warning(lineage: Lineage) -> str:
    """Return a warning if the operator mixed factors entry by entry that share no basis, else an empty text."""
    operator, cosine = get_operator(lineage.operator), lineage.basis_cosine
    if not operator.mixes_factors or lineage.strength.get("space") == "delta" or cosine is None or cosine >= COMMON_BASIS:
        return ""
    warning = f"The parents' A have a cosine of {cosine:.2f}: their factors share no basis, and {operator.name} mixes them entry by entry."
    return f"{warning} x2, x3, soup, and x1 with space=delta do not need one."


def lineage_bytes(lineage: Lineage, versions: Mapping[str, str]) -> bytes:
    """Return the content of ``lineage.json``: the record, and the versions of the libraries that bred the child."""
    return (json.dumps({**asdict(lineage), "versions": dict(versions)}, indent=2) + "\n").encode()


def read_lineage(folder: Path) -> tuple[Lineage | None, dict[str, str]]:
    """Read record and versions from a folder's ``lineage.json``, if it has one. Raises `AdapterError`."""
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


def _aligned(adapter: Adapter) -> Adapter:
    """Copy each factor to where torch's allocator puts it, at a multiple of 64 bytes, and sort the modules by name. Tensors from a file
    or from NumPy begin anywhere."""
    return replace(adapter, modules={name: (a.clone(), b.clone()) for name, (a, b) in sorted(adapter.modules.items())})


def check_fit(
    label: str, adapter: Adapter, model: Adapter, model_label: str = "parent 1", cure: str = "use an earlier checkpoint of it"
) -> None:
    """Raise `AdapterError` unless ``adapter`` is finite fp32 with the rank, alpha, modules and shapes of ``model``.

    ``cure`` is what to do about weights that are not finite.
    """
    if (adapter.rank, adapter.alpha) != (model.rank, model.alpha):
        raise AdapterError(
            f"{label} has rank {adapter.rank} and alpha {adapter.alpha}, expected {model.rank} and {model.alpha} as in "
            f"{model_label}: take adapters made with equal LoRA settings"
        )
    if not model.modules or adapter.modules.keys() != model.modules.keys():
        unshared = sorted(adapter.modules.keys() ^ model.modules.keys())
        detail = f"'{unshared[0]}' and {len(unshared) - 1} more are in only one of them" if unshared else "both are empty"
        raise AdapterError(f"{label} and {model_label} must adapt the same modules, at least one: {detail}")
    for name, pair in adapter.modules.items():
        for letter, tensor, expected in zip("AB", pair, model.modules[name], strict=True):
            if tensor.shape != expected.shape:
                raise AdapterError(f"{label}, {letter} of '{name}': expected shape {tuple(expected.shape)}, got {tuple(tensor.shape)}")
            if tensor.dtype != torch.float32:
                raise AdapterError(f"{label}, {letter} of '{name}': expected float32, got {tensor.dtype}; convert the adapter first")
            if not all_finite(tensor):
                raise AdapterError(f"{label}, {letter} of '{name}' holds NaN or infinite weights: {cure}")
