"""What a plan has to assume, because no setting says it: lengths of texts and what hardware reaches of its peaks."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, replace

from populora.core.config import SelfplayConfig
from populora.core.errors import ConfigError


@dataclass(frozen=True)
class Assumptions:
    """Printed with every plan; each is a flag."""

    prompt_tokens: float = 500.0
    """Mean length of a prompt. The paper gives only the largest."""
    response_tokens: float = 1000.0
    """Mean length of a response: what the paper's populations grow to; its baseline shrinks to 250."""
    longest_response: int = 0
    """Tokens of a step's longest response; 0 takes `selfplay.max_response_tokens`, for of thousands one may run that far."""
    valid: float = 0.5
    """Share of the proposals that are valid problems: a student attempts them all, however few it trains on."""
    train_mfu: float = 0.4
    """What training reaches of the peak, in FLOPs that the result needs."""
    sample_mfu: float = 0.5
    """What prompts, and decoding many rows, reach of the peak."""
    bandwidth: float = 0.65
    """What decoding reaches of the memory's bandwidth."""
    overhead_gb: float = 2.0
    """Memory of each engine and each learner for the driver, workspaces and fragments, 10^9 bytes."""
    verdicts_per_second: float = 100.0
    """Programs and answers that one sandbox worker judges; a CPU does it beside the GPUs. See benchmarks/sandbox."""
    publish_gb_per_second: float = 0.2
    """10^9 bytes of changed adapters that an engine takes over in a second; all engines do it at the same time. What vLLM's CPU build does
    in an actor of the same machine with a rank-32 adapter of a 7B base: benchmarks/publish.json. A network is not in it."""


def within(assumed: Assumptions, limits: SelfplayConfig) -> Assumptions:
    """The assumptions with no length above the settings' limits."""
    return replace(
        assumed,
        prompt_tokens=min(assumed.prompt_tokens, limits.max_prompt_tokens),
        response_tokens=min(assumed.response_tokens, limits.max_response_tokens),
        longest_response=min(assumed.longest_response or limits.max_response_tokens, limits.max_response_tokens),
    )


def check_assumptions(assumed: Assumptions) -> None:
    """Raise `ConfigError` for an assumption that is not a possible number."""
    for item in dataclasses.fields(assumed):
        name, value = f"assume.{item.name.replace('_', '-')}", getattr(assumed, item.name)
        if not math.isfinite(value) or value < 0 or (value == 0 and item.name not in ("longest_response", "valid", "overhead_gb")):
            raise ConfigError(f"--{name}: expected a number above 0, got {value}")
        if item.name in ("valid", "train_mfu", "sample_mfu", "bandwidth") and value > 1:
            raise ConfigError(f"--{name}: expected a share from 0 to 1, got {value}")
