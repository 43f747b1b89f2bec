"""A CUDA device that is not there: tensors that say they are on it, and whose values a CPU computes.

Inside `PretendedCuda` the code under test takes its branches for CUDA, with real values, and what a GPU would mind is noticed: a CPU tensor
that meets one of the device (an error), waits of the host for the device, numbers in float64, and products of two precisions. PyTorch's
`FakeTensorMode` does the first and last without values; but code that samples tokens needs values, and a backward of its CUDA tensors
ends a process whose torch is built for CPUs.

To torch's C++ the tensors are on the device "meta", so that nothing looks for a driver. What compiles or is captured on a GPU runs as it is
(`without_compiler`).
"""

import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import torch
from torch.nn.attention import flex_attention
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

import populora
from populora.engine.model import flex, loading, paged
from populora.engine.sampling import decoder_pool

CUDA, META = torch.device("cuda", 0), torch.device("meta")
SOURCES = Path(populora.__file__).parent
NARROW = {torch.bfloat16, torch.float16}
COPIES = (torch.ops.aten.copy_, torch.ops.aten._to_copy, torch.ops.aten.to)
INDEXING = (torch.ops.aten.index, torch.ops.aten.index_put, torch.ops.aten.index_put_, torch.ops.aten._index_put_impl_)
"""Operators that take indices, their second argument, from either device."""


class DeviceTensor(torch.Tensor):
    """A tensor that says it is on the device; ``cpu_values`` are on the CPU."""

    cpu_values: torch.Tensor
    noticed: "PretendedCuda"
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, values: torch.Tensor, noticed: "PretendedCuda") -> Any:
        with torch.inference_mode(False):  # views of other tensors cannot be inference tensors
            return torch.Tensor._make_wrapper_subclass(
                cls, values.shape, strides=values.stride(), storage_offset=values.storage_offset(), dtype=values.dtype, device=META
            )

    def __init__(self, values: torch.Tensor, noticed: "PretendedCuda") -> None:
        self.cpu_values, self.noticed = values, noticed

    @classmethod
    def __torch_dispatch__(cls, operator: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        noticed = next(leaf.noticed for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, DeviceTensor))
        return noticed.run(operator, args, kwargs or {})

    device = property(lambda self: CUDA)  # type: ignore[assignment]
    is_cuda = property(lambda self: True)  # type: ignore[assignment]
    is_meta = property(lambda self: False)  # type: ignore[assignment]

    def tolist(self) -> Any:
        self.noticed.waits[_caller()] += 1
        return self.cpu_values.tolist()

    def data_ptr(self) -> int:
        return self.cpu_values.data_ptr()

    def __reduce_ex__(self, _: Any) -> Any:
        raise AssertionError(f"{_caller()} pickles a CUDA tensor of shape {tuple(self.shape)}: another process may not have its device")

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"on the pretended device: {self.cpu_values!r}"


class PretendedCuda:
    """Counts by function of ours, while it is entered: ``waits`` of the host for values, tensors ``sent`` to the device (where the host
    waits too), those sent from ``pinned`` memory, tensors in ``double``, and operators on ``mixed`` floats."""

    def __init__(self) -> None:
        self.waits, self.sent, self.pinned, self.double, self.mixed = (Counter[str]() for _ in range(5))
        self._modes = (_Operators(self), _Calls())

    def __enter__(self) -> Self:
        for mode in self._modes:
            mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(*error)

    def run(self, operator: Any, args: tuple, kwargs: dict) -> Any:
        """Compute an operator on the CPU, and note what it would do to a GPU."""
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        there = [tensor for tensor in tensors if isinstance(tensor, DeviceTensor)]
        device = next((value for value in (*args, kwargs.get("device")) if isinstance(value, torch.device)), None)
        if there and operator.overloadpacket not in COPIES:
            _refuse_strays(operator.name(), (args[0], *args[2:], kwargs) if operator.overloadpacket in INDEXING else (args, kwargs))
        on_device = bool(there) if device is None else device.type != "cpu"
        values, named = tree_map_only(DeviceTensor, lambda tensor: tensor.cpu_values, (args, kwargs))
        values, named = tree_map_only(torch.device, lambda _: torch.device("cpu"), (values, named))
        pinned = named.pop("pin_memory", None)
        result = operator(*values, **named)
        if pinned:
            result.pinned = True
        self._note(operator, tensors, there, result, on_device)
        if operator._schema.is_mutable and isinstance(result, torch.Tensor):
            return kwargs.get("out", args[0])
        return tree_map_only(torch.Tensor, lambda tensor: DeviceTensor(tensor, self), result) if on_device else result

    def _note(self, operator: Any, tensors: list, there: list, result: Any, on_device: bool) -> None:
        copied_back = operator is torch.ops.aten.copy_.default and not isinstance(tensors[0], DeviceTensor)
        if there and (not on_device or copied_back or _reads_values(operator, tensors)):
            self.waits[_caller()] += 1
        elif on_device and (host := [tensor for tensor in tensors if not isinstance(tensor, DeviceTensor) and tensor.dim()]):
            counter = self.pinned if all(hasattr(tensor, "pinned") for tensor in host) else self.sent
            counter[_caller()] += 1
        floats = {tensor.dtype for tensor in there if tensor.is_floating_point() and tensor.dim()}
        if on_device and torch.float64 in {leaf.dtype for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)}:
            self.double[_caller()] += 1
        if len(floats) > 1 and floats & NARROW and operator.overloadpacket not in COPIES:
            self.mixed[_caller()] += 1


class _Operators(TorchDispatchMode):
    """Hands every operator to a `PretendedCuda`, also those that make tensors."""

    def __init__(self, noticed: PretendedCuda) -> None:
        super().__init__()
        self._noticed = noticed

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return self._noticed.run(func, args, kwargs or {})


class _Calls(TorchFunctionMode):
    """Calls torch with the device "meta" where "cuda" is asked for, so that its C++ does not look for a driver."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        named = dict(kwargs or {})
        if func is torch.device:
            return func(*args, **named)
        if func in (torch.tensor, torch.as_tensor) and named.get("device") is not None:
            return func(*args, **{name: value for name, value in named.items() if name != "device"}).to(_meta(named["device"]))
        if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):  # a list of indices would become a tensor without values
            args = (args[0], tree_map_only(list, torch.tensor, args[1], is_leaf=lambda value: isinstance(value, list)), *args[2:])
        if "device" in named:
            named["device"] = _meta(named["device"])
        return func(*map(_meta, args), **named)


def _meta(value: Any) -> Any:
    return META if isinstance(value, (str, torch.device)) and str(value).partition(":")[0] == "cuda" else value


def _refuse_strays(name: str, values: Any) -> None:
    strays = [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor) and not isinstance(leaf, DeviceTensor) and leaf.dim()]
    assert not strays, f"{_caller()}: {name} of a CUDA tensor and one {tuple(strays[0].shape)} on the CPU"


def _reads_values(operator: Any, tensors: list[torch.Tensor]) -> bool:
    """Tell whether the host must know values, for a number, a decision, or the shape of the result."""
    if operator.overloadpacket in INDEXING:
        return any(tensor.dtype in (torch.bool, torch.uint8) for tensor in tensors[1:])
    return bool({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(operator.tags))


def _caller() -> str:
    """Name the innermost function of ours on the stack."""
    frame = sys._getframe(1)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(SOURCES):
            return f"{path.stem}.{frame.f_code.co_name}"
        frame = frame.f_back  # type: ignore[assignment]
    return "elsewhere"


def on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values of a tensor of the device."""
    assert isinstance(tensor, DeviceTensor), "expected a tensor on the pretended device"
    return tensor.cpu_values


def without_compiler(monkeypatch: Any) -> None:
    """Replace what needs a GPU or its compiler: `torch.compile` leaves functions as they are, attention kernels are computed on the CPU,
    graphs run their forward again. A base is loaded by a thread, which has no modes: transformers makes it on the device "meta" first."""
    load = loading.AutoModelForCausalLM.from_pretrained
    monkeypatch.setattr(loading.AutoModelForCausalLM, "from_pretrained", lambda *path, **named: _in_thread(load, *path, **named))
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    monkeypatch.setattr(torch.compiler, "disable", lambda function, **_: function)
    monkeypatch.setattr(flex_attention, "_validate_device", lambda *_: None)  # it has a backward on a CPU too, though no kernel
    monkeypatch.setattr(flex, "kernel", lambda size: _on_cpu(flex.attend_in_blocks))
    monkeypatch.setattr(paged, "kernel", lambda: _attend_in_pages)
    monkeypatch.setattr(decoder_pool, "cuda_graph", lambda forward: forward)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=80 << 30))


def _in_thread(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *arguments, **named).result()


def _without_modes(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        return function(*arguments, **named)


def _attend_in_pages(*arguments: Any) -> torch.Tensor:
    _refuse_strays("attention", arguments)
    values = tree_map_only(DeviceTensor, on_cpu, arguments)
    return DeviceTensor(_without_modes(_attend_page_by_page, *values), arguments[0].noticed)


def _attend_page_by_page(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, address: torch.Tensor, first: torch.Tensor, end: torch.Tensor,
    start: torch.Tensor, until: torch.Tensor, count: torch.Tensor, table: torch.Tensor, scaling: float,
) -> torch.Tensor:  # fmt: skip
    """Compute `paged.attend_in_pages` from the listed pages alone: as it is written it would hold the scores of all pages of the pool."""
    result = torch.empty_like(q)
    for row in range(len(q)):
        pages = table[row, 0, 0, : int(count[row, 0, 0])]
        at = (address[pages][:, None] + torch.arange(paged.PAGE)).flatten()
        seen = ((at >= first[row]) & (at < end[row])) | ((at >= start[row]) & (at < until[row]))
        k, v = (pool[:, pages].flatten(1, 2)[:, seen].float() for pool in (keys, values))
        result[row] = (q[row].float() @ k.mT * scaling).softmax(-1) @ v
    return result


def _on_cpu(attend: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return lambda *arguments: _Attention.apply(attend, *arguments)  # type: ignore[return-value]


class _Attention(torch.autograd.Function):
    """Attention whose operators no mode sees: FlexAttention does not know tensors like these."""

    @staticmethod
    def forward(ctx: Any, attend: Callable[..., torch.Tensor], *arguments: Any) -> Any:
        _refuse_strays("attention", arguments)
        ctx.attend, ctx.arguments = attend, tree_map_only(DeviceTensor, lambda tensor: tensor.cpu_values.detach(), arguments)
        return DeviceTensor(_without_modes(attend, *ctx.arguments), arguments[0].noticed)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        inputs = [tensor.requires_grad_() for tensor in ctx.arguments[:3]]
        with torch.enable_grad():
            result = _without_modes(ctx.attend, *inputs, *ctx.arguments[3:])
        gradients = _without_modes(torch.autograd.grad, result, inputs, grads[0].cpu_values)
        return None, *(DeviceTensor(gradient, grads[0].noticed) for gradient in gradients), *[None] * len(ctx.arguments[3:])
