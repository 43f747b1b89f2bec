"""The exceptions of populora. A message states what was expected, what came, and what to do. The commands print it and exit with 2."""

import difflib
from collections.abc import Iterable


class PopuloraError(Exception):
    """Base of every error that populora raises on purpose."""


class ConfigError(PopuloraError, ValueError):
    """A setting is unknown, of the wrong type, or impossible together with another one."""


class BaseModelError(PopuloraError, ValueError):
    """The base model is missing, unreadable, lacks the modules in lora.targets, or is not the same in sampler and learner."""


class AdapterError(PopuloraError, ValueError):
    """An adapter is unreadable or does not fit: rank, shapes, targets, NaN or infinite weights."""


class AdapterEffectError(PopuloraError, RuntimeError):
    """A trained adapter has no effect, or sampler and learner disagree about it."""


class RunDirectoryError(PopuloraError, ValueError):
    """The run directory is in use, belongs to another configuration, or its checkpoint cannot be read."""


class SandboxUnavailableError(PopuloraError, RuntimeError):
    """The machine lacks an isolation layer that the settings demand. Never presented as a program's own failure."""


class SandboxFault(PopuloraError, RuntimeError):
    """The sandbox itself failed repeatedly. The step stops, because this must not decide a reward."""


class ClusterError(PopuloraError, RuntimeError):
    """Processes of a run cannot be started, or fail repeatedly."""


class MembersLost(PopuloraError):
    """Adapters were on machines that are gone. A run goes on from its last checkpoint by itself."""


class EngineError(PopuloraError, RuntimeError):
    """The sampling engine is stuck, or has ended a request without an answer."""


class EndpointError(PopuloraError, RuntimeError):
    """A served model cannot be reached, refuses, or fails."""


def did_you_mean(name: str, choices: Iterable[str], n: int = 1, cutoff: float = 0.6) -> str:
    """Return `` Did you mean 'x'?`` with up to ``n`` of the choices that resemble ``name``, or nothing."""
    matches = difflib.get_close_matches(name, list(choices), n, cutoff)
    return f" Did you mean {' or '.join(map(repr, matches))}?" if matches else ""
