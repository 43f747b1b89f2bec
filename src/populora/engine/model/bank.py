"""All adapters of a run as one stacked tensor.

Each adapted module has A [S, r, in] and B [S, out, r] for S slots. They are views into one flat fp32 master [S, P], and their gradients
go to one flat tensor of the same layout. So copying, resetting, saving, clipping and updating a member each touch one contiguous row.
Sampler and learner read these very tensors, and no copy can be stale. If the base computes in another precision, both read one shared
copy of the master in that precision (`sync`), where the slots of a module are adjacent, so that all its adapters are one matrix.

Modules that read the same input (q, k and v of a layer) are stored together with their A's stacked: [S, 3 r, in] meets the input
once. Ranks may differ by member: r is the largest, and a smaller adapter is padded with zeros, which get no gradient and stay zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save

from populora.adapters.adapter import Adapter
from populora.adapters.operators.breeding import breed
from populora.adapters.operators.similarity import basis_cosine
from populora.adapters.peft_format import WEIGHTS_FILE, load_adapter, peft_files
from populora.adapters.peft_settings import CONFIG_FILE
from populora.core.errors import AdapterError
from populora.core.files import check_digest, digest, write_durably
from populora.core.rng import stream
from populora.core.types import Lineage
from populora.engine.bank import Birth
from populora.engine.model.segments import SegmentMap

STATE = ("master", "first_moment", "second_moment", "steps", "ranks", "alphas")
"""The bank's tensors that make up the state of a slot."""
OPTIMISER = ("first_moment", "second_moment", "steps")
"""What a slot's state has beyond its adapter."""
Shape = tuple[int, int]
"""(in, out) of a linear module."""
Stacked = tuple[torch.Tensor, torch.Tensor]
"""A [S, r, in] and B [S, out, r] of one module, all slots."""


@dataclass(frozen=True)
class FusedProjections:
    """Views for the K modules that read one input: ``a`` [S, K r, in] and ``b``, one [S, out, r] each, and the same for gradients."""

    a: torch.Tensor
    b: tuple[torch.Tensor, ...]
    grad_a: torch.Tensor
    grad_b: tuple[torch.Tensor, ...]

    def for_slots(self, slots: slice) -> FusedProjections:
        """Return the views of some slots."""
        grad_b = tuple(grad[slots] for grad in self.grad_b)
        return FusedProjections(self.a[slots], tuple(b[slots] for b in self.b), self.grad_a[slots], grad_b)


class LoraBank:
    """A `populora.engine.bank.Bank`: S slots of factors of rank ``rank`` at most. ``layout`` lists, for each input, the modules that read
    it with their shapes.

    ``master``, ``gradient``, ``first_moment``, ``second_moment`` are [S, P] fp32; ``steps`` [S] counts optimiser steps,
    ``ranks`` and ``alphas`` [S] are the adapters' own. ``factors[name]`` is the pair (A [S, r, in], B [S, out, r]) of views into the
    master. The model multiplies with ``projections``, which are views into the master if ``dtype`` is float32. A bank that only samples
    does not learn (``learns``): its gradients and moments have shapes but no memory, and torch raises an error for whoever reads them.
    """

    def __init__(
        self,
        layout: Sequence[Mapping[str, Shape]],
        slots: int,
        rank: int,
        alpha: float,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
        learns: bool = True,
    ):
        if slots < 1 or rank < 1:
            raise AdapterError(f"a bank needs at least one slot and rank 1, got {slots} slots of rank {rank}")
        self.layout = [dict(modules) for modules in layout]
        self.modules = {name: shape for modules in self.layout for name, shape in modules.items()}
        self.slots, self.rank = slots, rank
        size = sum(rank * (inner + outer) for inner, outer in self.modules.values())
        self.master = torch.zeros(slots, size, device=device)
        template = self.master if learns else self.master.to("meta")
        self.gradient, self.first_moment, self.second_moment = (torch.zeros_like(template) for _ in range(3))
        self.steps = torch.zeros(slots, dtype=torch.int64)
        self.ranks = torch.full((slots,), rank, dtype=torch.int64)
        self.alphas = torch.full((slots,), alpha, dtype=torch.float64)
        self.factors = self.by_module(self.master)
        weights, gradients = self._compute_copy(dtype), self._parts(self.gradient)
        self.projections = [FusedProjections(*pair, *grads) for pair, grads in zip(weights, gradients, strict=True)]

    def scale(self, segments: SegmentMap) -> float | torch.Tensor:
        """Return alpha / rank of the adapted tokens' adapters: one number if all are equal, else one a token [N, 1]."""
        scales = (self.alphas / self.ranks)[segments.slots].float()  # the same for all ranks of a run, up to the rounding of alphas
        if bool((scales == scales[0]).all()):
            return float(scales[0])
        return scales.repeat_interleave(torch.tensor(segments.counts))[:, None].to(self.master.device)

    def weights(self) -> torch.Tensor:
        """Return the `SlotWeights` of a token of each slot [S + 1, S]; the last row is that of the bare base."""
        return torch.cat((torch.diag(self.alphas / self.ranks), torch.zeros(1, self.slots)))

    def initialise(self, seed: int, ranks: Sequence[int] | None = None) -> None:
        """Set B = 0 and the *same* random A in every slot, so that factor-space crossovers share a gauge (reading 27).

        A is Kaiming-uniform with a = sqrt(5) as in PEFT: uniform in +-1/sqrt(in). A slot of smaller rank (``ranks``, default: all
        have the largest) gets the first rows and the same alpha / rank. All optimiser state is cleared.
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
        self.sync()

    def adapter(self, slot: int) -> Adapter:
        """Copy one slot's factors to the CPU, at the slot's own rank."""
        rank, row = int(self.ranks[slot]), self.master[slot : slot + 1].cpu()  # one transfer from a GPU, not one for each factor

        def copy(x: torch.Tensor) -> torch.Tensor:
            return x.clone(memory_format=torch.contiguous_format)

        pairs = {name: (copy(a[0, :rank]), copy(b[0, :, :rank])) for name, (a, b) in self.by_module(row).items()}
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
        self.sync(slot)

    def basis_cosine(self, slots: Sequence[int]) -> float:
        """See `populora.engine.bank.Bank.basis_cosine`."""
        return basis_cosine(*map(self.adapter, slots))

    def breed(self, births: Sequence[Birth]) -> list[Lineage]:
        """See `populora.engine.bank.Bank.breed`. A child may equal a parent."""
        children = [breed([*map(self.adapter, birth.parents)], birth.plan, birth.names, allow_copy=True) for birth in births]
        for birth, (adapter, _) in zip(births, children, strict=True):
            self.load(birth.slot, adapter)
        return [lineage for _, lineage in children]

    def write_adapters(self, folder: Path, slots: Mapping[str, int], base: str, targets: Sequence[str]) -> dict[str, str]:
        """See `populora.engine.bank.Bank.write_adapters`. Raises `RunDirectoryError` when the disk refuses."""
        digests: dict[str, str] = {}
        for name, slot in slots.items():
            for file, data in peft_files(self.adapter(slot), base, targets).items():
                write_durably(folder / name / file, data)
                digests[f"{name}/{file}"] = digest(data)
        return digests

    def write_optimiser(self, folder: Path, slots: Mapping[str, int]) -> dict[str, str]:
        """See `populora.engine.bank.Bank.write_optimiser`. Raises `RunDirectoryError` when the disk refuses."""
        digests: dict[str, str] = {}
        for name, slot in slots.items():
            data = save({part: getattr(self, part)[slot : slot + 1].cpu() for part in OPTIMISER})
            write_durably(folder / f"{name}.safetensors", data)
            digests[f"{name}.safetensors"] = digest(data)
        return digests

    def read(self, adapters: Path, optimiser: Path, slots: Mapping[str, int], digests: Mapping[Path, str]) -> None:
        """See `populora.engine.bank.Bank.read`."""
        for name, slot in slots.items():
            state = optimiser / f"{name}.safetensors"
            for path in (*(adapters / name / file for file in (CONFIG_FILE, WEIGHTS_FILE)), state):
                check_digest(path, digests[path])
            self.load(slot, load_adapter(adapters / name))
            self.restore({**self.state([slot]), **load_file(state)}, [slot])

    def sync(self, slot: int | slice = slice(None)) -> None:
        """Update the model's copy of the master. In float32 there is no copy."""
        if self.projections[0].a.dtype == torch.float32:
            return
        for copies, (a, b) in zip(self.projections, self._parts(self.master), strict=True):
            for copy, master in zip((copies.a, *copies.b), (a, *b), strict=True):
                copy[slot] = master[slot]

    def untrained(self, slot: int) -> bool:
        """Tell whether every B of the slot is zero, so that the adapter has no effect."""
        return not torch.stack([b[slot].any() for _, b in self.factors.values()]).any().item()  # one transfer from a GPU

    def state(self, slots: Sequence[int] | None = None) -> dict[str, torch.Tensor]:
        """Copy to the CPU all that a bit-exact resume needs, of all slots or of these in this order."""
        chosen = list(range(self.slots) if slots is None else slots)
        return {name: getattr(self, name)[chosen].cpu() for name in STATE}

    def restore(self, state: Mapping[str, torch.Tensor], slots: Sequence[int] | None = None) -> None:
        """Restore a `state`, which may be of another bank's slots. Raises `AdapterError`, before any change, if it does not fit."""
        chosen = list(range(self.slots) if slots is None else slots)
        for name in STATE:
            tensor = getattr(self, name)
            shape = (len(chosen), *tensor.shape[1:])
            if name not in state or tuple(state[name].shape) != shape or state[name].dtype != tensor.dtype:
                actual = f"{tuple(state[name].shape)} {state[name].dtype}" if name in state else "nothing"
                raise AdapterError(
                    f"adapter state '{name}': expected {shape} {tensor.dtype}, got {actual}. "
                    "It was saved with other adapter settings or another base; resume with the configuration of that run."
                )
        for name in STATE:
            tensor = getattr(self, name)
            tensor[chosen] = state[name].to(tensor.device)
        self.gradient[chosen] = 0.0
        for slot in chosen:
            self.sync(slot)

    def _parts(self, flat: torch.Tensor) -> list[tuple[torch.Tensor, tuple[torch.Tensor, ...]]]:
        """View ``flat`` as the factors of each entry of the layout: the stacked A's [S, K r, in], then each module's B [S, out, r].

        A B is stored transposed, so that it is read in order when it expands a few tokens.
        """
        parts, start = [], 0
        for modules in self.layout:
            inner, outers = next(iter(modules.values()))[0], [outer for _, outer in modules.values()]
            sizes = [len(modules) * self.rank * inner, *(self.rank * outer for outer in outers)]
            a, *b = flat[:, start : start + sum(sizes)].split(sizes, 1)
            start += sum(sizes)
            stacked_b = tuple(x.view(-1, self.rank, outer).mT for x, outer in zip(b, outers, strict=True))
            parts.append((a.view(-1, len(modules) * self.rank, inner), stacked_b))
        return parts

    def _compute_copy(self, dtype: torch.dtype) -> list[tuple[torch.Tensor, tuple[torch.Tensor, ...]]]:
        """Return the factors in the precision of the base: contiguous copies, or in float32 the views themselves."""
        parts = self._parts(self.master)
        if dtype == torch.float32:
            return parts

        def copy(x: torch.Tensor) -> torch.Tensor:
            return x.to(dtype, memory_format=torch.contiguous_format)

        return [(copy(a), tuple(copy(x.mT).mT for x in b)) for a, b in parts]

    def by_module(self, flat: torch.Tensor) -> dict[str, Stacked]:
        """View a tensor in the layout of the master, [S, P], as A and B of each module."""
        return {
            name: pair
            for modules, (a, b) in zip(self.layout, self._parts(flat), strict=True)
            for name, pair in zip(modules, zip(a.split(self.rank, 1), b, strict=True), strict=True)
        }

    def _check(self, adapter: Adapter) -> None:
        if adapter.rank > self.rank:
            raise AdapterError(f"expected an adapter of rank {self.rank} at most, got rank {adapter.rank}: set lora.rank to the largest")
        if set(adapter.modules) != set(self.modules):
            unshared = sorted(set(adapter.modules) ^ set(self.modules))
            raise AdapterError(
                f"expected an adapter of {len(self.modules)} modules, got {len(adapter.modules)}; the first that differs is "
                f"'{unshared[0]}'. It belongs to another base or other lora.targets."
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
