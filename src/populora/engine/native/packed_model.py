"""The base model and its adapters as `decode.c` reads them.

Weights of the base are copied into panels, so they are in memory twice. Adapters are read in the bank itself: no copy can be stale.
"""

import ctypes
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.model.linear import LoraLinear
from populora.engine.native.compiled import Long, Pointer
from populora.engine.planning.model_shape import head_size, rope_type

KINDS = ("llama", "mistral", "qwen2")
ROPES = ("default", "linear", "llama3", "yarn")
"""Rotary embeddings whose frequencies do not depend on the length of a row."""
ALIGNMENT = 64  # bytes


def _structure(name: str, **fields: Any) -> Any:
    return type(name, (ctypes.Structure,), {"_fields_": list(fields.items())})


_Part = _structure("Part", b=Pointer, b_stride=Long, offset=Long, outputs=Long)
_Linear = _structure(
    "Linear", weight=Pointer, bias=Pointer, a=Pointer, a_stride=Long, inputs=Long, outputs=Long, parts=Long, part=_Part * 3
)
_Layer = _structure("Layer", attention_norm=Pointer, mlp_norm=Pointer, qkv=_Linear, out=_Linear, gate_up=_Linear, down=_Linear)
_Model = _structure(
    "Model", layers=Long, hidden=Long, inner=Long, heads=Long, kv_heads=Long, size=Long, vocabulary=Long, rank=Long,
    epsilon=ctypes.c_float, scaling=ctypes.c_float,
    embedding=Pointer, norm=Pointer, head=Pointer, cosine=Pointer, sine=Pointer, layer=Pointer,
)  # fmt: skip


def unsupported(adapted: AdaptedModel, panel: int) -> str:
    """Return why `decode.c`, whose panels have ``panel`` columns of two vectors, cannot compute this model. Empty if it can."""
    config, head = adapted.model.config, adapted.head
    rope, dimensions, lanes = rope_type(config), head_size(config), panel // 2
    modules = {name: module for name, module in adapted.model.named_modules() if isinstance(module, torch.nn.Linear)}
    widths = sorted({size for module in modules.values() for size in module.weight.shape if size % panel})
    reasons = {
        f"it is for bases of kind {', '.join(KINDS)}, this is {config.model_type}": config.model_type not in KINDS,
        f"it is for MLPs with silu, this base has {config.hidden_act}": config.hidden_act != "silu",
        f"it is for rotary embeddings of kind {', '.join(ROPES)}, this base has {rope}": rope not in ROPES,
        f"it is for widths that are multiples of {panel}, this base has {widths}": bool(widths),
        f"it is for attention heads of a multiple of {lanes} dimensions, this base's have {dimensions}": dimensions % lanes != 0,
        "it is for heads without a bias": head.bias is not None,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def floats(count: int) -> np.ndarray:
    """Return ``count`` zeros, in memory that begins at a multiple of `ALIGNMENT` bytes."""
    memory = np.zeros(count + ALIGNMENT, np.float32)
    start = -memory.ctypes.data % ALIGNMENT // 4
    return memory[start : start + count]


class PackedModel:
    """The structures that describe a supported model to ``functions`` of `decode.c`, and the memory that they point to."""

    def __init__(self, adapted: AdaptedModel, functions: ctypes.CDLL):
        self.adapted, self.functions = adapted, functions
        config, backbone = adapted.model.config, adapted.backbone
        self.layers, self.kv_heads, self.hidden = config.num_hidden_layers, config.num_key_value_heads, config.hidden_size
        self.size = head_size(config)
        self._kept: list[Any] = []
        self.bytes = 0
        """Bytes of the packed weights."""
        layers = (_Layer * self.layers)(*map(self._layer, backbone.layers))
        cosine, sine = (
            table[0, :, : self.size // 2].contiguous() for table in backbone.rotary_emb(torch.zeros(1), torch.arange(adapted.context)[None])
        )
        self._model = _Model(
            self.layers, self.hidden, config.intermediate_size, config.num_attention_heads, self.kv_heads, self.size,
            adapted.head.out_features, adapted.bank.rank, backbone.norm.variance_epsilon, self.size**-0.5,
            self._pointer(backbone.embed_tokens.weight), self._pointer(backbone.norm.weight), self._packed([adapted.head.weight]),
            self._pointer(cosine), self._pointer(sine), ctypes.addressof(layers),
        )  # fmt: skip
        self._kept.append(layers)
        self.address = ctypes.addressof(self._model)

    def scales(self) -> np.ndarray:
        """Return alpha / rank of each slot [S]."""
        bank = self.adapted.bank
        return (bank.alphas.numpy() / bank.ranks.numpy()).astype(np.float32)

    def _layer(self, layer: Any) -> Any:
        attention, mlp = layer.self_attn, layer.mlp
        return _Layer(
            self._pointer(layer.input_layernorm.weight), self._pointer(layer.post_attention_layernorm.weight),
            self._linear(attention.q_proj, attention.k_proj, attention.v_proj), self._linear(attention.o_proj),
            self._linear(mlp.gate_proj, mlp.up_proj), self._linear(mlp.down_proj),
        )  # fmt: skip

    def _linear(self, *modules: Any) -> Any:
        """Describe modules that read one input, some of them adapted."""
        plain = [module.base if isinstance(module, LoraLinear) else module for module in modules]
        starts = itertools.accumulate((linear.out_features for linear in plain), initial=0)
        adapted = [(module, start) for module, start in zip(modules, starts, strict=False) if isinstance(module, LoraLinear)]
        a, a_stride, parts = None, 0, []
        for module, start in adapted:
            projections = module.shared.projections
            a, a_stride = projections.a.data_ptr(), projections.a.stride(0)
            b = projections.b[module.index]  # [S, out, r], stored as [S, r, out]
            parts.append(_Part(b.data_ptr(), b.stride(0), start, b.shape[1]))
        bias = None if plain[0].bias is None else self._pointer(torch.cat([linear.bias for linear in plain]))
        weight, outputs = self._packed([linear.weight for linear in plain]), sum(linear.out_features for linear in plain)
        return _Linear(weight, bias, a, a_stride, plain[0].in_features, outputs, len(parts), (_Part * 3)(*parts))

    def _pointer(self, tensor: torch.Tensor) -> int:
        self._kept.append(tensor.detach())
        return tensor.data_ptr()

    def _packed(self, weights: Sequence[torch.Tensor]) -> int:
        weight = torch.cat([weight.detach() for weight in weights])
        packed = floats(weight.numel())
        self.bytes += packed.nbytes
        self.functions.pack(weight.shape[1], weight.shape[0], weight.data_ptr(), packed.ctypes.data)
        self._kept.append(packed)
        return packed.ctypes.data
