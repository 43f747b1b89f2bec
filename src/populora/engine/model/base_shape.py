"""Shapes of a base without its weights: its ``config.json`` and transformers' own model on the meta device, which allocates nothing."""

from __future__ import annotations

from typing import Any

from populora.core.config import BaseConfig, Config
from populora.core.errors import BaseModelError, ConfigError
from populora.engine.planning.model_shape import FAMILY, ITEMSIZE, QWEN_CODER, ModelShape, known_shape

NEEDED = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "max_position_embeddings")


def base_shapes(config: BaseConfig) -> ModelShape:
    """Shapes of ``base.path``. Raises `BaseModelError` for a base that is neither on this disk, nor on the hub as far as it can be
    reached, nor known, and for one that is not a dense causal LM."""
    return known_shape(config.path) or _read(config)


def _read(config: BaseConfig) -> ModelShape:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from populora.engine.model.loading import TINY, base_folder

    path = str(base_folder(config)) if config.path == TINY else config.path
    try:
        found = AutoConfig.from_pretrained(path)
        with torch.device("meta"):
            model: Any = AutoModelForCausalLM.from_config(found)
    except (OSError, ValueError) as error:
        raise BaseModelError(
            f"base.path '{config.path}': expected a folder or hub name whose config.json can be read, or one of "
            f"{', '.join(FAMILY + size for size in QWEN_CODER)}, whose shapes are known; reading failed: "
            f"{str(error).splitlines()[0]}"
        ) from error
    missing = [name for name in NEEDED if not isinstance(getattr(found, name, None), int)]
    if missing:
        raise BaseModelError(
            f"base.path '{config.path}': expected a dense causal LM whose config.json has {', '.join(NEEDED)}, but it has no {missing[0]}: "
            "such a base cannot be planned"
        )
    return model_shapes(config.path, model)


def model_shapes(name: str, model: Any) -> ModelShape:
    """Shapes of a transformers model, on the meta device or any other."""
    from torch import nn

    found, head = model.config, model.get_output_embeddings()
    linears = {
        path: (module.in_features, module.out_features)
        for path, module in model.named_modules()
        if isinstance(module, nn.Linear) and module is not head
    }
    return ModelShape(
        name, found.num_hidden_layers, found.hidden_size, found.intermediate_size, found.num_attention_heads,
        getattr(found, "num_key_value_heads", None) or found.num_attention_heads,
        getattr(found, "head_dim", None) or found.hidden_size // found.num_attention_heads,
        found.vocab_size, min(found.max_position_embeddings, getattr(found, "sliding_window", None) or found.max_position_embeddings),
        sum(parameter.numel() for parameter in model.parameters()), linears,
    )  # fmt: skip


def check_memory(config: Config) -> None:
    """Raise `ConfigError`, before any weight is read, for a GPU that cannot hold the base, or for vLLM the base twice."""
    import torch

    from populora.engine.model.loading import torch_device

    device = torch_device(config.base.device)
    if device.type != "cuda":
        return
    found, wanted, apart = torch.cuda.device_count(), config.engine.tensor_parallel, config.cluster.learners > 0
    if config.engine.backend == "vllm" and wanted > found and not apart:  # a cluster's processes see only their own
        raise ConfigError(f"engine.tensor_parallel is {wanted}: expected as many GPUs, found {found}. Lower it or take a larger machine.")
    engine = 1 / wanted if config.engine.backend == "vllm" or apart else 0.0  # in-process it is the learner's own
    copies = 1 / config.cluster.shards + engine
    needed = copies * ITEMSIZE[config.base.dtype] * base_shapes(config.base).parameters
    room = torch.cuda.get_device_properties(device).total_memory
    if needed > room:
        raise ConfigError(
            f"base.path '{config.base.path}' in {config.base.dtype} needs {needed / 1e9:.1f} GB for its weights alone, {device} has "
            f"{room / 1e9:.1f}: take a smaller base or a larger GPU; `populora plan` compares them."
        )
