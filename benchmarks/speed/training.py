"""Forward and backward of a mixed batch, beside PEFT, merged weights and the bare base."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from models import ALPHA, RANK, adapted_model, random_base
from timing import Case

from populora.engine.model.model import AdaptedModel
from populora.engine.model.packing import PromptGroup, pack

ROW = 64
"""Tokens of a row: half prompt, half response."""


def batch(slots: Sequence[int], seed: int = 0, row: int = ROW) -> list[PromptGroup]:
    """One row of ``row`` tokens for each entry of ``slots``."""
    generator = torch.Generator().manual_seed(seed)
    draws = torch.randint(2, 512, (len(slots), row + 1), generator=generator).tolist()
    return [PromptGroup(slot, draw[: row // 2], (draw[row // 2 :],)) for slot, draw in zip(slots, draws, strict=True)]


def stacked(adapted: AdaptedModel, slots: Sequence[int]) -> Case:
    """populora: one packed row, all adapters at once."""
    groups = batch(sorted(slots))

    def run() -> None:
        adapted.bank.gradient.zero_()
        adapted.logprobs(pack(groups))[0].sum().backward()

    return run


def bare(shape: str, rows: int) -> Case:
    """populora without adapters: the same forward, and the backward through the base down to the first layer's projections."""
    adapted = adapted_model(shape, 1)
    groups = batch([-1] * rows)
    attention = adapted.backbone.layers[0].self_attn
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
        projection.register_forward_hook(lambda module, inputs, output: output.requires_grad_())
    return lambda: adapted.logprobs(pack(groups))[0].sum().backward()


def rows_of(groups: Sequence[PromptGroup]) -> torch.Tensor:
    return torch.tensor([[*group.prompt, *group.responses[0]] for group in groups])


def plain_loss(model: Any, ids: torch.Tensor, **options: Any) -> torch.Tensor:
    """The sum of the responses' log-probabilities as anybody would write it."""
    logits = model(input_ids=ids[:, :-1], use_cache=False, **options).logits[:, ROW // 2 - 1 :]
    return logits.log_softmax(-1).gather(2, ids[:, ROW // 2 :, None]).sum()


def peft_sequential(model: Any, slots: Sequence[int]) -> Case:
    """PEFT, one adapter at a time."""
    own = {slot: rows_of([group for group in batch(sorted(slots)) if group.slot == slot]) for slot in sorted(set(slots))}

    def run() -> None:
        model.zero_grad()
        for slot, ids in own.items():
            model.set_adapter(str(slot))
            plain_loss(model, ids).backward()

    return run


def peft_mixed(model: Any, slots: Sequence[int]) -> Case:
    """PEFT's ``adapter_names``: one batch, made for inference, but right in eval mode with every adapter trainable."""
    ids, names = rows_of(batch(sorted(slots))), [str(slot) for slot in sorted(slots)]

    def run() -> None:
        model.zero_grad()
        model.base_model.set_requires_grad(names)
        plain_loss(model, ids, adapter_names=names).backward()

    return run


def merged(adapted: AdaptedModel, shape: str, slots: Sequence[int]) -> Case:
    """Weights W + (alpha / r) B A of one adapter at a time, differentiated through."""
    model = random_base(shape).requires_grad_(False)
    factors = {slot: adapted.bank.adapter(slot).modules for slot in sorted(set(slots))}
    leaves = {slot: {name: (a.requires_grad_(), b.requires_grad_()) for name, (a, b) in own.items()} for slot, own in factors.items()}
    own_rows = {slot: rows_of([group for group in batch(sorted(slots)) if group.slot == slot]) for slot in leaves}
    linears = {name: model.get_submodule(name) for name in adapted.bank.modules}
    weights = {name: linear.weight for name, linear in linears.items()}

    def run() -> None:
        for slot, ids in own_rows.items():
            for name, linear in linears.items():
                a, b = leaves[slot][name]
                a.grad = b.grad = None
                del linear._parameters["weight"]
                linear.weight = weights[name] + ALPHA / RANK * b @ a
            plain_loss(model, ids).backward()
            for name, linear in linears.items():
                del linear.weight
                linear.register_parameter("weight", weights[name])

    return run
