"""The random models that the benchmarks run, as populora's adapted model and as PEFT's."""

from collections.abc import Sequence
from typing import Any

import torch
from benchmarks.speed.random_base import qwen2

from populora.engine.model.adapted_model import AdaptedModel, Checkpointing
from populora.engine.model.bank import LoraBank

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj")
RANK = 32
SHAPES = {"hidden 256": (256, 6, 704, 4, 2), "hidden 896": (896, 2, 4864, 14, 2)}
"""Hidden size, layers, inner size of the MLP, heads, key-value heads; the second has the widths of Qwen2.5-0.5B."""


def adapt(base: Any, slots: int, rank: int = RANK, checkpointing: Checkpointing = "none") -> AdaptedModel:
    """Return populora's model of ``base`` with ``slots`` adapters that are not zero."""
    adapted = AdaptedModel(base, TARGETS, slots, rank, 2.0 * rank, checkpointing)
    adapted.bank.initialise(0)
    noise = torch.Generator(adapted.device).manual_seed(1)
    adapted.bank.master += 0.02 * torch.randn(adapted.bank.master.shape, generator=noise, device=adapted.device)
    adapted.bank.sync()
    return adapted


def adapted_model(shape: str, slots: int) -> AdaptedModel:
    return adapt(qwen2(SHAPES[shape]), slots)


def peft_model(adapted: AdaptedModel, shape: str) -> Any:
    """Return the same adapters in PEFT, named "0", "1", ..., on a second base."""
    return in_peft(adapted.bank, qwen2(SHAPES[shape]), TARGETS)


def in_peft(bank: LoraBank, base: Any, targets: Sequence[str]) -> Any:
    """Return the bank's adapters, which have one rank, in PEFT on ``base``, in eval mode."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=bank.rank, lora_alpha=float(bank.alphas[0]), target_modules=list(targets), lora_dropout=0.0, bias="none")
    model: Any = get_peft_model(base, config, adapter_name="0")
    for slot in range(1, bank.slots):
        model.add_adapter(str(slot), config)
    for slot in range(bank.slots):
        for name, (a, b) in bank.adapter(slot).modules.items():
            layer = model.base_model.model.get_submodule(name)
            layer.lora_A[str(slot)].weight.data.copy_(a)
            layer.lora_B[str(slot)].weight.data.copy_(b)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name)
    return model.eval()
