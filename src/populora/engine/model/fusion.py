"""Fuse a base's small operations on CUDA by `torch.compile`: between two products there are many, and a kernel for each costs as much
as the products of a decoding step.

The norms are compiled for all forwards, whole layers for decoding alone (`FusedLayers`): there a CUDA graph replays the kernels, so what
the compiler checks in Python before each call costs nothing. Attention has kernels of its own and stays outside.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import torch
from torch import nn
from transformers import AttentionInterface

from populora.engine.model import attention

F = TypeVar("F", bound=Callable[..., Any])


def fused(function: F) -> F:
    """Return a function of tensors compiled. Inside a compiled layer it is compiled with the layer."""
    return function if torch.compiler.is_compiling() else _compiled(function)


@cache
def _compiled(function: F) -> F:
    warnings.filterwarnings("ignore", r"\s*Online softmax is disabled")  # the sums over a large vocabulary are split instead
    return torch.compile(function)  # type: ignore[return-value]


def fuse_norms(model: nn.Module) -> None:
    """Compile the norms of a base, and keep the compiler out of its attention."""
    AttentionInterface.register(attention.NAME, torch.compiler.disable(attention.attend))
    for module in model.modules():
        if "norm" in type(module).__name__.lower() and all(parameter.dim() == 1 for parameter in module.parameters()):
            module.forward = torch.compile(module.forward)


class FusedLayers:
    """The layers of a base compiled, inside the block of `in_use`. All layers of one kind share their compilations."""

    def __init__(self, layers: Iterable[nn.Module]):
        self._layers = [(layer, layer.forward, torch.compile(layer.forward)) for layer in layers]

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Compute the layers compiled."""
        try:
            for layer, _, compiled in self._layers:
                layer.forward = compiled
            yield
        finally:
            for layer, plain, _ in self._layers:
                layer.forward = plain
