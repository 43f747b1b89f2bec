"""All adapters of a run as one stacked tensor.

Each adapted module has A [S, r, in] and B [S, out, r] for S slots. They are views into one flat fp32 master [S, P], and
their gradients arrive in one flat gradient of the same layout, so copying, resetting, saving, clipping and updating a member
each touch one contiguous row. Sampler and learner read these very tensors: there is no copy that could be stale.

The leaf of autograd is the master as a whole, split into the modules' views once per forward: the backward then writes all
modules' gradients with one concatenation. (Strided leaves would be slower, and torch warns about their gradients' layout.)
"""

from __future__ import annotations

import math

import torch

from populora.errors import AdapterError
from populora.lora.adapter import Adapter
from populora.rng import stream

Shape = tuple[int, int]
"""(in, out) of a linear module."""
Stacked = tuple[torch.Tensor, torch.Tensor]
"""A [S, r, in] and B [S, out, r] of one module, all slots."""


class LoraBank:
    """S slots of rank-r factors for the named modules.

    ``master``, ``gradient``, ``first_moment``, ``second_moment`` are [S, P] fp32; ``steps`` [S] counts optimiser steps.
    ``factors[name]`` is the pair (A [S, r, in], B [S, out, r]) of views into the master that the model multiplies with.
    """

    def __init__(self, modules: dict[str, Shape], slots: int, rank: int, alpha: float, device: str | torch.device = "cpu"):
        if slots < 1 or rank < 1:
            raise AdapterError(f"a bank needs at least one slot and rank 1, got {slots} slots of rank {rank}")
        self.modules, self.slots, self.rank, self.alpha = dict(modules), slots, rank, alpha
        self._sizes = [size for inner, outer in self.modules.values() for size in (rank * inner, outer * rank)]
        self.master = torch.zeros(slots, sum(self._sizes), device=device)
        self.gradient = torch.zeros_like(self.master)
        self.first_moment = torch.zeros_like(self.master)
        self.second_moment = torch.zeros_like(self.master)
        self.steps = torch.zeros(slots, dtype=torch.int64)
        self.factors = self._views(self.master)
        self._leaf = self.master.detach().requires_grad_()
        self._leaf.grad = self.gradient

    def tracked(self) -> dict[str, Stacked]:
        """`factors` for a forward whose backward adds to ``gradient``."""
        return self._views(self._leaf)

    @property
    def scale(self) -> float:
        """What the delta B A is multiplied with inside the model: alpha / rank."""
        return self.alpha / self.rank

    def initialise(self, seed: int) -> None:
        """B = 0 and the *same* random A in every slot, so that factor-space crossovers share a gauge (reading 27).

        A is Kaiming-uniform with a = sqrt(5), as PEFT does: uniform in +-1/sqrt(in). All optimiser state is cleared.
        """
        generator = stream(seed, "lora-init")
        for tensor in (self.master, self.gradient, self.first_moment, self.second_moment, self.steps):
            tensor.zero_()
        for name, (inner, _) in self.modules.items():
            bound = 1.0 / math.sqrt(inner)
            draw = generator.uniform(-bound, bound, (self.rank, inner)).astype("float32")
            self.factors[name][0][:] = torch.from_numpy(draw).to(self.master.device)

    def adapter(self, slot: int) -> Adapter:
        """A copy of one slot's factors on the CPU."""
        pairs = {name: (a[slot].clone().cpu(), b[slot].clone().cpu()) for name, (a, b) in self.factors.items()}
        return Adapter(pairs, self.rank, self.alpha)

    def load(self, slot: int, adapter: Adapter) -> None:
        """Put an adapter into a slot and clear the slot's optimiser state (reading 26). Raises `AdapterError` before any change."""
        self._check(adapter)
        for name, (a, b) in adapter.modules.items():
            self.factors[name][0][slot] = a.detach()
            self.factors[name][1][slot] = b.detach()
        for tensor in (self.gradient, self.first_moment, self.second_moment, self.steps):
            tensor[slot].zero_()

    def untrained(self, slot: int) -> bool:
        """Whether every B of the slot is zero: such an adapter is the bare base."""
        return not any(bool(b[slot].count_nonzero()) for _, b in self.factors.values())

    def state(self) -> dict[str, torch.Tensor]:
        """Copies of everything that a bit-exact resume needs."""
        return {name: getattr(self, name).clone().cpu() for name in ("master", "first_moment", "second_moment", "steps")}

    def restore(self, state: dict[str, torch.Tensor]) -> None:
        """Undo to `state`. Raises `AdapterError` for a state of another bank, before any change."""
        for name, mine in self.state().items():
            if name not in state or state[name].shape != mine.shape or state[name].dtype != mine.dtype:
                found = f"{tuple(state[name].shape)} {state[name].dtype}" if name in state else "nothing"
                raise AdapterError(
                    f"adapter state '{name}': expected {tuple(mine.shape)} {mine.dtype}, got {found}. "
                    "It was saved with other adapter settings or another base; resume with the configuration of that run."
                )
        for name, saved in state.items():
            getattr(self, name).copy_(saved)
        self.gradient.zero_()

    def _views(self, flat: torch.Tensor) -> dict[str, Stacked]:
        parts = iter(flat.split(self._sizes, 1))
        shapes = self.modules.items()
        return {name: (next(parts).view(-1, self.rank, inner), next(parts).view(-1, outer, self.rank)) for name, (inner, outer) in shapes}

    def _check(self, adapter: Adapter) -> None:
        if (adapter.rank, adapter.alpha) != (self.rank, self.alpha):
            raise AdapterError(
                f"expected an adapter of rank {self.rank} and alpha {self.alpha}, got rank {adapter.rank} and alpha {adapter.alpha}. "
                "Set lora.rank and lora.alpha to the adapter's."
            )
        if set(adapter.modules) != set(self.modules):
            odd = sorted(set(adapter.modules) ^ set(self.modules))
            raise AdapterError(
                f"expected an adapter of {len(self.modules)} modules, got {len(adapter.modules)}; the first that differs is "
                f"'{odd[0]}'. It belongs to another base or other lora.targets."
            )
        for name, (a, b) in adapter.modules.items():
            inner, outer = self.modules[name]
            if tuple(a.shape) != (self.rank, inner) or tuple(b.shape) != (outer, self.rank):
                raise AdapterError(
                    f"adapter module '{name}': expected A {(self.rank, inner)} and B {(outer, self.rank)}, got A {tuple(a.shape)} "
                    f"and B {tuple(b.shape)}. It belongs to another base."
                )
            if not (a.isfinite().all() and b.isfinite().all()):
                raise AdapterError(f"adapter module '{name}' has NaN or infinite weights: it cannot be loaded; use an earlier checkpoint")
