"""Assumptions of a plan that no setting determines: text lengths, and the achieved share of hardware peaks."""

import dataclasses
import math
from dataclasses import dataclass

from populora.core.errors import ConfigError

SHARES = ("valid", "train_mfu", "sample_mfu", "bandwidth")
MAY_BE_ZERO = ("longest_response", "valid", "overhead_gb", "collectives_gb")


@dataclass(frozen=True)
class Assumptions:
    """Printed with every plan; each is a flag."""

    prompt_tokens: float = 500.0
    """Mean length of a prompt. The paper gives only the largest."""
    response_tokens: float = 1000.0
    """Mean length of a response. The paper's populations grow to this length, its baseline shrinks to 250."""
    longest_response: int = 0
    """Tokens of a step's longest response. 0 takes `selfplay.max_response_tokens`: among thousands, one may run that far."""
    valid: float = 0.5
    """Share of the proposals that are valid problems. A student attempts all of them, however few it trains on."""
    train_mfu: float = 0.4
    """Share of the peak FLOP/s that training reaches, counting only FLOPs that the result needs."""
    sample_mfu: float = 0.5
    """Share of the peak FLOP/s that prompts, and decoding of many rows, reach."""
    bandwidth: float = 0.65
    """Share of the memory bandwidth that decoding reaches."""
    overhead_gb: float = 2.0
    """Memory of each engine and each learner for the driver, workspaces and fragmentation, 10^9 bytes."""
    collectives_gb: float = 1.0
    """NCCL's buffers on each GPU of an engine or a learner that has several, 10^9 bytes. Not measured."""
    verdicts_per_second: float = 100.0
    """Programs and answers that one sandbox worker judges on a CPU. See benchmarks/sandbox."""
    publish_gb_per_second: float = 0.2
    """10^9 bytes of changed adapters that an engine loads in a second; all engines load at the same time. Measured with vLLM's CPU build
    in an actor of the same machine and a rank-32 adapter of a 7B base, without a network: benchmarks/publish.json."""


def check_assumptions(assumed: Assumptions) -> None:
    """Raise `ConfigError` for an assumption outside its range."""
    for field in dataclasses.fields(assumed):
        name, value = f"assume.{field.name.replace('_', '-')}", getattr(assumed, field.name)
        if not math.isfinite(value) or value < 0 or (value == 0 and field.name not in MAY_BE_ZERO):
            raise ConfigError(f"--{name}: expected a number above 0, got {value}")
        if field.name in SHARES and value > 1:
            raise ConfigError(f"--{name}: expected a share from 0 to 1, got {value}")
