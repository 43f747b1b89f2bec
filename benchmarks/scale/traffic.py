"""What 1,000 adapters of rank 32 on a 7B base move and hold in a step: arithmetic from stated assumptions, nothing measured."""

from __future__ import annotations

import sys
from typing import Any

from synthetic import PROMPT_TOKENS, PROMPTS, SAMPLES

PARAMETERS = 28 * 32 * (2 * (3584 + 3584) + 2 * (3584 + 512))
"""Of an adapter on q, k, v, o of 28 layers: 20.19 million."""
WEIGHTS_GB, GRADIENT_GB, STATE_GB = 2 * PARAMETERS / 1e9, 4 * PARAMETERS / 1e9, 12 * PARAMETERS / 1e9
"""bf16; fp32; fp32 with both Adam moments."""
TOKENS_PER_SECOND = 0.4 * 989e12 / (4 * 7.07e9)
"""Training: 4 operations a weight and token (the frozen base has no weight gradients) at 40 % of an H100's 989 TFLOP/s."""
MEMORY_GBS, LINKS_GBS = 4.0, {"25 Gbit/s": 3.125, "100 Gbit/s": 12.5}
"""Copies through a node's object store; a node's network card, each way."""
RANKS_PER_NODE, MEAN_RESPONSE = 8, 1000
HELP_TOKENS, FAR_HELP_TOKENS = 1000.0, 2000.0
"""Costs of a pair of adapter and helper in `assign`: about twice the bare times of `help_arithmetic`, for latency and copies on the GPU."""


def help_arithmetic() -> dict[str, float]:
    """Tokens that a rank computes while weights go to a helper and a gradient comes back."""
    near = (WEIGHTS_GB + GRADIENT_GB) / MEMORY_GBS
    far = near + (WEIGHTS_GB + GRADIENT_GB) / LINKS_GBS["25 Gbit/s"]
    return {"near": near * TOKENS_PER_SECOND, "far": far * TOKENS_PER_SECOND}


def traffic(adapters: int, ranks: int) -> dict[str, Any]:
    """GB a step, and seconds on the busiest link, of each thing that travels; GB of what is held."""
    nodes = max(1, ranks // RANKS_PER_NODE)
    responses = adapters * PROMPTS * SAMPLES * MEAN_RESPONSE
    tokens = responses + adapters * PROMPTS * PROMPT_TOKENS
    batches = (8 * responses + 4 * adapters * PROMPTS * PROMPT_TOKENS) / 1e9  # an id and a log-probability of 4 bytes each
    every_node = adapters * WEIGHTS_GB
    shard = every_node / nodes
    return {
        "nodes": nodes,
        "compute_seconds": tokens / ranks / TOKENS_PER_SECOND,
        "state_to_controller": _moved(adapters * STATE_GB, adapters * STATE_GB),
        "publish_all_from_controller": _moved(nodes * every_node, nodes * every_node),
        "publish_all_from_owners": _moved(nodes * (every_node - shard), every_node - shard),
        "publish_sharded": _moved(0.0, 0.0),
        "token_batches": _moved(2 * batches, batches),  # engines to controller, controller to learners: each way of the card once
        "held": {
            "controller_state_gb": adapters * STATE_GB,
            "controller_tokens_as_python_gb": responses * _python_bytes() / 1e9,
            "controller_tokens_as_arrays_gb": batches,
            "engine_all_adapters_gb": every_node,
            "engine_shard_gb": shard,
            "rank_state_gb": adapters / ranks * STATE_GB,
        },
    }


def _moved(total: float, busiest: float) -> dict[str, float]:
    return {"total_gb": total, "busiest_link_gb": busiest, **{f"seconds_at {link}": busiest / speed for link, speed in LINKS_GBS.items()}}


def _python_bytes() -> int:
    """Of a response token in tuples of an int and a float."""
    return sys.getsizeof(100_000) + sys.getsizeof(0.5) + 16


def assumptions() -> dict[str, float | dict[str, float]]:
    return {
        "parameters_of_an_adapter": PARAMETERS, "weights_gb": WEIGHTS_GB, "gradient_gb": GRADIENT_GB, "state_gb": STATE_GB,
        "training_tokens_per_second": TOKENS_PER_SECOND, "object_store_gb_per_second": MEMORY_GBS, "network_gb_per_second": LINKS_GBS,
        "ranks_per_node": RANKS_PER_NODE, "help_tokens": HELP_TOKENS, "far_help_tokens": FAR_HELP_TOKENS,
        "help_tokens_bare": help_arithmetic(), "bytes_of_a_python_token": _python_bytes(),
    }  # fmt: skip
