"""What one GPU can do, by its maker's data sheet.

Peaks are for dense bf16 products with fp32 sums (data sheets print twice as much, with sparsity). Memory is taken as GB of 10^9 bytes: what
the driver really gives is up to a tenth more.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from populora.core.errors import ConfigError

CPU = "cpu"
"""Has no data sheet worth the name: it is measured where the plan is made (`populora.engine.sampling.calibration`)."""


@dataclass(frozen=True)
class Hardware:
    """One GPU, or the CPU cores of a machine."""

    name: str
    teraflops: float
    """10^12 floating-point operations a second in matrix products."""
    gigabytes_per_second: float
    """Of its memory."""
    gigabytes: float
    """Of its memory, 10^9 bytes."""
    source: str

    @property
    def bytes(self) -> float:
        return self.gigabytes * 1e9


GPUS = (
    Hardware("h100-80gb", 989.0, 3350.0, 80.0, "NVIDIA H100 data sheet, SXM"),
    Hardware("h200-141gb", 989.0, 4800.0, 141.0, "NVIDIA H200 data sheet, SXM"),
    Hardware("a100-80gb", 312.0, 2039.0, 80.0, "NVIDIA A100 data sheet, SXM"),
    Hardware("a100-40gb", 312.0, 1555.0, 40.0, "NVIDIA A100 data sheet, SXM"),
    Hardware("l40s-48gb", 362.0, 864.0, 48.0, "NVIDIA L40S data sheet"),
    Hardware("rtx4090-24gb", 165.2, 1008.0, 24.0, "NVIDIA Ada GPU architecture white paper"),
)


def gpu(name: str) -> Hardware:
    """The GPU of that name. Raises `ConfigError` naming those that there are."""
    known = {one.name: one for one in GPUS}
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise ConfigError(f"unknown GPU '{name}': expected {CPU} or one of {', '.join(known)}.{hint}")
    return known[name]
