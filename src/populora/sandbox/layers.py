"""Which isolation this machine gives, found by trying, and the tier that a pool may call it.

``full`` is namespaces (bubblewrap), Landlock, seccomp and limits; ``standard`` is seccomp and limits with Landlock or namespaces,
which needs no privilege and holds in containers; everything less is ``weak``.
"""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
from dataclasses import dataclass
from typing import Literal

from populora.core.errors import SandboxUnavailableError
from populora.sandbox.launch import command

Tier = Literal["full", "standard", "weak"]
_TIERS: dict[Tier, frozenset[str]] = {
    "full": frozenset({"namespaces", "landlock", "seccomp", "limits"}),
    "standard": frozenset({"landlock", "seccomp", "limits"}),
    "weak": frozenset({"limits"}),
}
_PROBE = {"limits": {"memory_mb": 512, "cpu_seconds": 2}}


@dataclass(frozen=True)
class Isolation:
    """The layers in use, the tier they make, and for each layer what the probe found."""

    tier: Tier
    layers: frozenset[str]
    report: dict[str, str]
    bubblewrap: str | None


def isolation(allow_weak: bool = False, tier: Tier | None = None) -> Isolation:
    """The strongest isolation that holds here, or the one of ``tier``.

    Raises `SandboxUnavailableError` if a layer of ``tier`` is missing, or if the result is weak and ``allow_weak`` is not set.
    """
    bubblewrap = shutil.which("bwrap")
    found = probe_layers(bubblewrap)
    holding = frozenset(layer for layer, (holds, _) in found.items() if holds)
    used = holding if tier is None else _TIERS[tier]
    report = {layer: (f"on: {detail}" if layer in used else f"off: {detail}") for layer, (_, detail) in found.items()}
    if not used <= holding:
        missing = "; ".join(f"{layer} ({found[layer][1]})" for layer in sorted(used - holding))
        raise SandboxUnavailableError(f"sandbox tier '{tier}' was asked for, but this machine lacks: {missing}")
    reached = _name(used)
    if reached == "weak" and not allow_weak:
        lacks = "; ".join(f"{layer}: {found[layer][1]}" for layer in sorted(_TIERS["full"] - used))
        raise SandboxUnavailableError(
            f"programs written by a model need at least the 'standard' sandbox (Landlock and seccomp), but this machine gives 'weak': "
            f"{lacks}. Run on Linux 5.13 or newer (a container or virtual machine will do), install bubblewrap, or accept the risk "
            f"with sandbox.allow_weak = true."
        )
    return Isolation(reached, used, report, bubblewrap if "namespaces" in used else None)


def _name(used: frozenset[str]) -> Tier:
    if used == _TIERS["full"]:
        return "full"
    return "standard" if {"seccomp", "limits"} <= used and used & {"landlock", "namespaces"} else "weak"


@functools.cache
def probe_layers(bubblewrap: str | None) -> dict[str, tuple[bool, str]]:
    """For every layer whether it holds and what was seen; each in a process of its own."""
    found = {"namespaces": _probe("namespaces", bubblewrap) if bubblewrap else (False, "bwrap is not on PATH")}
    return found | {layer: _probe(layer, None) for layer in ("landlock", "seccomp", "limits")}


def _probe(layer: str, bubblewrap: str | None) -> tuple[bool, str]:
    arguments, environment = command(["probe", layer, json.dumps(_PROBE)], bubblewrap=bubblewrap)
    try:
        done = subprocess.run(  # noqa: S603 - our own command line
            arguments, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=True, cwd="/"
        )
        answer = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        words = getattr(error, "stderr", None) or str(error).encode()
        return False, f"the probe failed: {words.decode(errors='replace').strip()[-200:]}"
    return bool(answer["holds"]), str(answer["detail"])
