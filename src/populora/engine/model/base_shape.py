"""Read the shape of a base model without its weights, and check that it fits the GPU.

The shape comes from ``config.json`` and transformers' own model on the meta device, which allocates nothing. torch is imported on demand,
because a plan for a known base needs none of it.
"""

from typing import Any

from populora.core.config import BaseConfig, Config
from populora.core.errors import BaseModelError, ConfigError
from populora.engine.planning.model_shape import FAMILY, ITEMSIZE, QWEN_CODER, ModelShape, head_size, known_shape

NEEDED = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "max_position_embeddings")


def read_base_shape(config: BaseConfig) -> ModelShape:
    """Read the shape of ``base.path``. Raises `BaseModelError` if it is not on disk, on the hub or known, or is no dense causal LM."""
    return known_shape(config.path) or _read(config)


def _read(config: BaseConfig) -> ModelShape:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from populora.engine.model.loading import base_source

    path = base_source(config)
    try:
        base_config = AutoConfig.from_pretrained(path)
        with torch.device("meta"):
            model: Any = AutoModelForCausalLM.from_config(base_config)
    except (OSError, ValueError) as error:
        raise BaseModelError(
            f"base.path '{config.path}': expected a folder or hub name whose config.json can be read, or one of "
            f"{', '.join(FAMILY + size for size in QWEN_CODER)}, whose shapes are known; reading failed: "
            f"{str(error).splitlines()[0]}"
        ) from error
    missing = [name for name in NEEDED if not isinstance(getattr(base_config, name, None), int)]
    if missing:
        raise BaseModelError(
            f"base.path '{config.path}': expected a dense causal LM whose config.json has {', '.join(NEEDED)}, but it has no {missing[0]}: "
            "such a base cannot be planned"
        )
    return shape_of_model(config.path, model)


def shape_of_model(name: str, model: Any) -> ModelShape:
    """Return the shape of a transformers model, on the meta device or any other."""
    from torch import nn

    config, head = model.config, model.get_output_embeddings()
    linears = {
        path: (module.in_features, module.out_features)
        for path, module in model.named_modules()
        if isinstance(module, nn.Linear) and module is not head
    }
    context, heads = config.max_position_embeddings, config.num_attention_heads
    return ModelShape(
        name, config.num_hidden_layers, config.hidden_size, config.intermediate_size, heads,
        getattr(config, "num_key_value_heads", None) or heads, head_size(config),
        config.vocab_size, min(context, getattr(config, "sliding_window", None) or context),
        sum(parameter.numel() for parameter in model.parameters()), linears,
    )  # fmt: skip


def check_memory(config: Config) -> None:
    """Raise `ConfigError`, before any weight is read, for a GPU that cannot hold the base, or for vLLM the base twice."""
    import torch

    from populora.engine.model.loading import torch_device

    device = torch_device(config.base.device)
    if device.type != "cuda":
        return
    gpus, tensor_parallel, clustered = torch.cuda.device_count(), config.engine.tensor_parallel, config.cluster.learners > 0
    if config.engine.backend == "vllm" and tensor_parallel > gpus and not clustered:  # a cluster's process sees only its own GPUs
        raise ConfigError(
            f"engine.tensor_parallel is {tensor_parallel}: expected as many GPUs, found {gpus}. Lower it or take a larger machine."
        )
    engine = 1 / tensor_parallel if config.engine.backend == "vllm" or clustered else 0.0  # in-process it shares the learner's base
    needed = (1 / config.cluster.shards + engine) * ITEMSIZE[config.base.dtype] * read_base_shape(config.base).parameters
    available = torch.cuda.get_device_properties(device).total_memory
    if needed > available:
        raise ConfigError(
            f"base.path '{config.base.path}' in {config.base.dtype} needs {needed / 1e9:.1f} GB for its weights alone, {device} has "
            f"{available / 1e9:.1f}: take a smaller base or a larger GPU; `populora plan` compares them."
        )
