"""Tensors at chosen addresses: what enters torch from files and from NumPy begins there, and results must not depend on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import safetensors
import safetensors.torch
import torch

ALIGNMENT = 64
"""In bytes: torch's allocator puts each tensor at a multiple of it."""


def moved(tensor: torch.Tensor, offset: int) -> torch.Tensor:
    """Copy a tensor to ``offset`` bytes, a multiple of its items' size, after a multiple of `ALIGNMENT`. Return an empty one as it is."""
    if not tensor.numel():
        return tensor
    size, bytes_each = tensor.numel(), tensor.element_size()
    buffer = torch.empty(size + 2 * ALIGNMENT // bytes_each, dtype=tensor.dtype)
    start = ((offset - buffer.data_ptr()) % ALIGNMENT) // bytes_each
    at = buffer[start : start + size].view(tensor.shape)
    at.copy_(tensor)
    assert at.data_ptr() % ALIGNMENT == offset - offset % bytes_each
    return at


@contextmanager
def tensors_at(offset: int) -> Iterator[None]:
    """All that safetensors reads and all that comes from NumPy begins ``offset`` bytes after a multiple of `ALIGNMENT`."""

    def place(tensor: torch.Tensor) -> torch.Tensor:
        return moved(tensor, offset - offset % tensor.element_size())

    def reading(read: Callable[..., dict[str, torch.Tensor]]) -> Callable[..., dict[str, torch.Tensor]]:
        return lambda *arguments, **named: {name: place(tensor) for name, tensor in read(*arguments, **named).items()}

    class Sliced:
        def __init__(self, part: Any):
            self._part = part

        def __getattr__(self, name: str) -> Any:
            return getattr(self._part, name)

        def __getitem__(self, index: Any) -> torch.Tensor:
            return place(self._part[index])

    class Opened:
        def __init__(self, *arguments: Any, **named: Any):
            self._file = real_open(*arguments, **named)

        def __enter__(self) -> Opened:
            self._file.__enter__()
            return self

        def __exit__(self, *error: Any) -> None:
            self._file.__exit__(*error)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

        def get_tensor(self, name: str) -> torch.Tensor:
            return place(self._file.get_tensor(name))

        def get_slice(self, name: str) -> Sliced:
            return Sliced(self._file.get_slice(name))

    real_open, from_numpy = safetensors.safe_open, torch.from_numpy
    replaced = [
        mock.patch.object(torch, "from_numpy", lambda array: place(from_numpy(array))),
        mock.patch.object(safetensors, "safe_open", Opened),
        *(
            mock.patch.object(module, name, reading(getattr(module, name)))
            for module, name in ((safetensors.torch, "load"), (safetensors.torch, "load_file"))
        ),
    ]
    for patch in replaced:
        patch.start()
    try:
        yield
    finally:
        for patch in replaced:
            patch.stop()
