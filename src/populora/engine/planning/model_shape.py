"""Sizes of a base model: enough to count parameters, keys and values, and adapters.

The Qwen2.5-Coder family ships as data, from each model's published ``config.json``, so that a run on it can be planned without its files.
`populora.engine.model.base_shape` reads any other base model.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from populora.core.errors import BaseModelError

ITEMSIZE = {"float32": 4, "bfloat16": 2}
"""Bytes of a number by ``base.dtype``."""


def head_size(config: Any) -> int:
    """Return the dimensions of an attention head, by a base's ``config.json``."""
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def rope_type(config: Any) -> str:
    """Return the kind of a base's rotary embedding, by its ``config.json``."""
    return (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")


@dataclass(frozen=True)
class ModelShape:
    """A causal LM with full attention and gated MLPs."""

    name: str
    layers: int
    hidden: int
    inner: int
    """Width inside an MLP."""
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    context: int
    """Maximum tokens of prompt and response together."""
    parameters: int
    """All of them, tied ones once."""
    linears: Mapping[str, tuple[int, int]]
    """(in, out) of each linear module by name, without the head."""

    @property
    def linear(self) -> int:
        """Weights of the linear modules, without the head."""
        return sum(rows * columns for rows, columns in self.linears.values())

    @property
    def head(self) -> int:
        """Weights of the output head, whether or not it is tied to the embedding."""
        return self.hidden * self.vocabulary

    @property
    def attention(self) -> int:
        """Dimensions of all heads in all layers."""
        return self.layers * self.heads * self.head_size

    def kv_bytes(self, itemsize: int) -> int:
        """Bytes of one token's keys and values in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_size * itemsize

    def adapted(self, targets: Sequence[str]) -> dict[str, tuple[int, int]]:
        """The linear modules that ``lora.targets`` selects. Raises as `targeted`."""
        return {name: self.linears[name] for name in targeted(self.linears, targets)}

    def adapter(self, rank: int, targets: Sequence[str]) -> int:
        """Parameters of one adapter."""
        return sum(rank * (rows + columns) for rows, columns in self.adapted(targets).values())


def targeted(linears: Collection[str], targets: Sequence[str]) -> list[str]:
    """Select the modules whose name ends with one of ``lora.targets``, in the order of ``linears``. Raises `BaseModelError` for a target
    without a match."""
    for target in targets:
        if not any(_matches(name, target) for name in linears):
            leaves = ", ".join(sorted({name.rsplit(".", 1)[-1] for name in linears}))
            raise BaseModelError(f"lora.targets: '{target}' matches no linear module of the base; it has {leaves}")
    return [name for name in linears if any(_matches(name, target) for target in targets)]


def _matches(name: str, target: str) -> bool:
    return name == target or name.endswith("." + target)


def qwen2(
    name: str, hidden: int, inner: int, layers: int, heads: int, kv_heads: int, vocabulary: int, tied: bool, context: int
) -> ModelShape:
    """Build the shape of a Qwen2: biases on q, k and v only, two norms a layer and one at the end."""
    size = hidden // heads
    kv = kv_heads * size
    attention = {"q_proj": (hidden, hidden), "k_proj": (hidden, kv), "v_proj": (hidden, kv), "o_proj": (hidden, hidden)}
    mlp = {"gate_proj": (hidden, inner), "up_proj": (hidden, inner), "down_proj": (inner, hidden)}
    linears = {
        f"model.layers.{layer}.{part}.{module}": widths
        for layer in range(layers)
        for part, modules in (("self_attn", attention), ("mlp", mlp))
        for module, widths in modules.items()
    }
    weights = sum(rows * columns for rows, columns in linears.values())
    vectors = layers * (hidden + 2 * kv + 2 * hidden) + hidden
    parameters = weights + vectors + hidden * vocabulary * (1 if tied else 2)
    return ModelShape(name, layers, hidden, inner, heads, kv_heads, size, vocabulary, context, parameters, linears)


FAMILY = "Qwen/Qwen2.5-Coder-"
QWEN_CODER = {
    #       hidden inner layers heads kv_heads vocabulary tied context
    "0.5B": (896, 4864, 24, 14, 2, 151_936, True, 32_768),
    "1.5B": (1536, 8960, 28, 12, 2, 151_936, True, 32_768),
    "3B": (2048, 11_008, 36, 16, 2, 151_936, True, 32_768),
    "7B": (3584, 18_944, 28, 28, 4, 152_064, False, 32_768),
    "14B": (5120, 13_824, 48, 40, 8, 152_064, False, 32_768),
    "32B": (5120, 27_648, 64, 40, 8, 152_064, False, 32_768),
}


def known_shape(path: str) -> ModelShape | None:
    """Look up a model that ships as data by its hub name, with or without ``-Instruct``."""
    size = path.removeprefix(FAMILY).removesuffix("-Instruct")
    return qwen2(path, *QWEN_CODER[size]) if path.startswith(FAMILY) and size in QWEN_CODER else None
