"""All adapters of a run as one stacked tensor.

Each adapted module has A [S, r, in] and B [S, out, r] for S slots. They are views into one flat fp32 master [S, P], and
their gradients arrive in one flat gradient of the same layout, so copying, resetting, saving, clipping and updating a member
each touch one contiguous row. Sampler and learner read these very tensors: there is no copy that could be stale. Only where the
base computes in another precision do both read one shared copy of the master in that precision (`sync`); in it the slots of a
module lie together, so that all adapters of a module are one matrix.

Modules that read the same input (q, k and v of a layer) lie together, their A's on top of each other: [S, 3 r, in] meets the input
once. Ranks may differ by member: r is the largest, a smaller adapter is padded with zeros, which get no gradient and stay zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from populora.adapters.adapter import Adapter
from populora.core.errors import AdapterError
from populora.core.rng import stream
from populora.engine.model.routing import Route

STATE = ("master", "first_moment", "second_moment", "steps", "ranks", "alphas")
"""What a slot is, by the names of the bank's tensors."""
Shape = tuple[int, int]
"""(in, out) of a linear module."""
Stacked = tuple[torch.Tensor, torch.Tensor]
"""A [S, r, in] and B [S, out, r] of one module, all slots."""


@dataclass(frozen=True)
class Family:
    """Views for the K modules that read one input: ``a`` [S, K r, in] and ``b``, one [S, out, r] each; gradients alike."""

    a: torch.Tensor
    b: tuple[torch.Tensor, ...]
    grad_a: torch.Tensor
    grad_b: tuple[torch.Tensor, ...]

    def of(self, slots: slice) -> Family:
        """The views of some slots."""
        return Family(self.a[slots], tuple(b[slots] for b in self.b), self.grad_a[slots], tuple(grad[slots] for grad in self.grad_b))


class LoraBank:
    """S slots of factors of rank ``rank`` at most, for ``families`` of modules by name that read the same input.

    ``master``, ``gradient``, ``first_moment``, ``second_moment`` are [S, P] fp32; ``steps`` [S] counts optimiser steps,
    ``ranks`` and ``alphas`` [S] are the adapters' own. ``changes`` counts per slot how often it was written as a whole, not by an
    optimiser: who has a copy of it elsewhere can tell that it is an old one. ``factors[name]`` is the pair (A [S, r, in], B [S, out, r])
    of views into the master; the model multiplies with ``families``, views into the master itself where ``dtype`` is float32. ``layout``
    are the families that it was made from.
    """

    def __init__(
        self,
        families: Sequence[Mapping[str, Shape]],
        slots: int,
        rank: int,
        alpha: float,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
    ):
        if slots < 1 or rank < 1:
            raise AdapterError(f"a bank needs at least one slot and rank 1, got {slots} slots of rank {rank}")
        self.layout = [dict(family) for family in families]
        self.modules = {name: shape for family in self.layout for name, shape in family.items()}
        self.slots, self.rank = slots, rank
        size = sum(rank * (inner + outer) for inner, outer in self.modules.values())
        self.master = torch.zeros(slots, size, device=device)
        self.gradient = torch.zeros_like(self.master)
        self.first_moment = torch.zeros_like(self.master)
        self.second_moment = torch.zeros_like(self.master)
        self.steps = torch.zeros(slots, dtype=torch.int64)
        self.ranks = torch.full((slots,), rank, dtype=torch.int64)
        self.alphas = torch.full((slots,), alpha, dtype=torch.float64)
        self.changes = [0] * slots
        self.factors = self.by_module(self.master)
        self.families = [Family(*own, *grad) for own, grad in zip(self._compute(dtype), self._parts(self.gradient), strict=True)]

    def scale(self, route: Route) -> float | torch.Tensor:
        """What the deltas B A of a route's adapted tokens are multiplied with, alpha / rank: one number, or one a token [N, 1]."""
        scales = (self.alphas / self.ranks)[route.slots].float()  # the same for all ranks of a run, up to the rounding of alphas
        if bool((scales == scales[0]).all()):
            return float(scales[0])
        return scales.repeat_interleave(torch.tensor(route.counts))[:, None].to(self.master.device)

    def weights(self) -> torch.Tensor:
        """What each slot's adapter is weighed with for a token of each slot [S + 1, S], the last row being the bare base's."""
        return torch.cat((torch.diag(self.alphas / self.ranks), torch.zeros(1, self.slots)))

    def initialise(self, seed: int, ranks: Sequence[int] | None = None) -> None:
        """B = 0 and the *same* random A in every slot, so that factor-space crossovers share a gauge (reading 27).

        A is Kaiming-uniform with a = sqrt(5), as PEFT does: uniform in +-1/sqrt(in); a slot of smaller rank (``ranks``, default: all
        have the largest) has the first rows, and the same alpha / rank. All optimiser state is cleared.
        """
        generator = stream(seed, "lora-init")
        for tensor in (self.master, self.gradient, self.first_moment, self.second_moment, self.steps):
            tensor.zero_()
        scale = float(self.alphas[0] / self.ranks[0])
        self.ranks[:] = torch.tensor(ranks or [self.rank] * self.slots)
        self.alphas[:] = scale * self.ranks.double()
        for name, (inner, _) in self.modules.items():
            bound = 1.0 / math.sqrt(inner)
            draw = torch.from_numpy(generator.uniform(-bound, bound, (self.rank, inner)).astype("float32"))
            for slot, rank in enumerate(self.ranks.tolist()):
                self.factors[name][0][slot, :rank] = draw[:rank].to(self.master.device)
        self._changed(range(self.slots))

    def adapter(self, slot: int) -> Adapter:
        """A copy of one slot's factors on the CPU, at the slot's own rank."""
        rank = int(self.ranks[slot])
        own = {name: (a[slot, :rank], b[slot, :, :rank]) for name, (a, b) in self.factors.items()}
        plain = torch.contiguous_format
        pairs = {name: (a.clone(memory_format=plain).cpu(), b.clone(memory_format=plain).cpu()) for name, (a, b) in own.items()}
        return Adapter(pairs, rank, float(self.alphas[slot]))

    def load(self, slot: int, adapter: Adapter) -> None:
        """Put an adapter into a slot and clear the slot's optimiser state (reading 26). Raises `AdapterError` before any change."""
        self._check(adapter)
        for tensor in (self.master, self.gradient, self.first_moment, self.second_moment, self.steps):
            tensor[slot].zero_()
        for name, (a, b) in adapter.modules.items():
            self.factors[name][0][slot, : adapter.rank] = a.detach()
            self.factors[name][1][slot, :, : adapter.rank] = b.detach()
        self.ranks[slot], self.alphas[slot] = adapter.rank, adapter.alpha
        self._changed([slot])

    def sync(self, slot: int | slice = slice(None)) -> None:
        """Bring what the model multiplies with up to date with the master; nothing to do in float32, where they are one."""
        if self.families[0].a.dtype == torch.float32:
            return
        for family, (a, b) in zip(self.families, self._parts(self.master), strict=True):
            for mine, its in zip((family.a, *family.b), (a, *b), strict=True):
                mine[slot] = its[slot]

    def untrained(self, slot: int) -> bool:
        """Whether every B of the slot is zero: such an adapter is the bare base."""
        return not any(bool(b[slot].count_nonzero()) for _, b in self.factors.values())

    def state(self, slots: Sequence[int] | None = None) -> dict[str, torch.Tensor]:
        """Copies, on the CPU, of everything that a bit-exact resume needs: of all slots, or of these in this order."""
        chosen = range(self.slots) if slots is None else slots
        return {name: getattr(self, name)[list(chosen)].cpu() for name in STATE}

    def restore(self, state: Mapping[str, torch.Tensor], slots: Sequence[int] | None = None) -> None:
        """Undo to `state`, also to one of another bank's slots. Raises `AdapterError` for a state of other adapters, before any change."""
        chosen = list(range(self.slots) if slots is None else slots)
        for name in STATE:
            mine = getattr(self, name)
            shape = (len(chosen), *mine.shape[1:])
            if name not in state or tuple(state[name].shape) != shape or state[name].dtype != mine.dtype:
                found = f"{tuple(state[name].shape)} {state[name].dtype}" if name in state else "nothing"
                raise AdapterError(
                    f"adapter state '{name}': expected {shape} {mine.dtype}, got {found}. "
                    "It was saved with other adapter settings or another base; resume with the configuration of that run."
                )
        for name in STATE:
            mine = getattr(self, name)
            mine[chosen] = state[name].to(mine.device)
        self.gradient[chosen] = 0.0
        self._changed(chosen)

    def _changed(self, slots: Iterable[int]) -> None:
        for slot in slots:
            self.changes[slot] += 1
            self.sync(slot)

    def _parts(self, flat: torch.Tensor) -> list[tuple[torch.Tensor, tuple[torch.Tensor, ...]]]:
        """Per family, views of ``flat``: the A's on top of each other [S, K r, in], then each module's B [S, out, r], which lies
        transposed: so it is read in order when it expands a few tokens."""
        parts, start = [], 0
        for family in self.layout:
            inner = next(iter(family.values()))[0]
            sizes = [len(family) * self.rank * inner, *(self.rank * outer for _, outer in family.values())]
            a, *b = flat[:, start : start + sum(sizes)].split(sizes, 1)
            start += sum(sizes)
            outers = [outer for _, outer in family.values()]
            parts.append(
                (a.view(-1, len(family) * self.rank, inner), tuple(x.view(-1, self.rank, o).mT for x, o in zip(b, outers, strict=True)))
            )
        return parts

    def _compute(self, dtype: torch.dtype) -> list[tuple[torch.Tensor, tuple[torch.Tensor, ...]]]:
        """What the model multiplies with, in the precision of the base."""
        parts = self._parts(self.master)
        return parts if dtype == torch.float32 else [(_together(a, dtype), tuple(_together(x.mT, dtype).mT for x in b)) for a, b in parts]

    def by_module(self, flat: torch.Tensor) -> dict[str, Stacked]:
        """Views of a tensor in the layout of the master, [S, P], as A and B of each module."""
        return {
            name: pair
            for family, (a, b) in zip(self.layout, self._parts(flat), strict=True)
            for name, pair in zip(family, zip(a.split(self.rank, 1), b, strict=True), strict=True)
        }

    def _check(self, adapter: Adapter) -> None:
        if adapter.rank > self.rank:
            raise AdapterError(f"expected an adapter of rank {self.rank} at most, got rank {adapter.rank}: set lora.rank to the largest")
        if set(adapter.modules) != set(self.modules):
            odd = sorted(set(adapter.modules) ^ set(self.modules))
            raise AdapterError(
                f"expected an adapter of {len(self.modules)} modules, got {len(adapter.modules)}; the first that differs is "
                f"'{odd[0]}'. It belongs to another base or other lora.targets."
            )
        for name, (a, b) in adapter.modules.items():
            inner, outer = self.modules[name]
            if tuple(a.shape) != (adapter.rank, inner) or tuple(b.shape) != (outer, adapter.rank):
                raise AdapterError(
                    f"adapter module '{name}': expected A {(adapter.rank, inner)} and B {(outer, adapter.rank)}, got A {tuple(a.shape)} "
                    f"and B {tuple(b.shape)}. It belongs to another base."
                )
            if not (a.isfinite().all() and b.isfinite().all()):
                raise AdapterError(f"adapter module '{name}' has NaN or infinite weights: it cannot be loaded; use an earlier checkpoint")


def _together(part: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return part.to(dtype, memory_format=torch.contiguous_format)
