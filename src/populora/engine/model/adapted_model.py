"""A frozen Hugging Face causal LM whose linear modules carry a bank of stacked adapters.

Each forward of `AdaptedModel` gets its own segments of tokens by adapter. Dropout is not supported, because sampler and learner would
disagree.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from ctypes import CDLL
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from populora.core.errors import BaseModelError
from populora.engine.model import attention
from populora.engine.model.attention import AttentionPlan
from populora.engine.model.bank import LoraBank
from populora.engine.model.fusion import fuse_norms
from populora.engine.model.head import chosen_logprobs
from populora.engine.model.linear import ForwardContext, FusedLinears, LoraLinear
from populora.engine.model.mlp import use_frozen_mlp
from populora.engine.model.packing import Packed, PromptGroup, pack
from populora.engine.model.products import base_products, use_base_products
from populora.engine.model.segments import SegmentMap, SlotWeights
from populora.engine.native.compiled import describe, load
from populora.engine.planning.model_shape import head_size, targeted

AGREEMENT = {torch.float32: 1e-5, torch.bfloat16: 0.05, torch.float16: 0.01}
"""The largest allowed mean difference (nats) between log-probabilities in sampler and learner, by precision of the base."""
MAX_TOKEN_FACTOR = 100.0
"""A token that differs by more than this many times the mean's bound is an outlier: rounding grows on a badly conditioned token."""
Checkpointing = Literal["none", "mlp", "layer"]
"""The parts that the backward recomputes instead of keeping their activations: none, the MLPs, or whole layers."""
PROBE = 8  # tokens of the check that the base is a plain causal LM


class AdaptedModel:
    """``model`` frozen in eval mode, with its ``targets`` replaced in place, and the ``bank`` that they read.

    Raises `BaseModelError` for a target that matches no linear module and for a base that is not a plain causal LM with full
    attention and an untouched linear head. ``kernels`` is `BaseConfig.kernels`; the attribute holds the functions in C, or the reason why
    torch computes. ``learns`` is False for a sampler's own model (`LoraBank`).
    """

    def __init__(
        self,
        model: Any,
        targets: Sequence[str],
        slots: int,
        rank: int,
        alpha: float,
        checkpointing: Checkpointing = "none",
        kernels: str = "auto",
        learns: bool = True,
    ):
        self.model = model.eval().requires_grad_(False)
        self.backbone, self.head = model.get_decoder(), model.get_output_embeddings()
        linears = _matching(model, targets, self.head)
        window = getattr(model.config, "sliding_window", None)  # up to its length, attention within a window is full attention
        self.context = min(int(model.config.max_position_embeddings), window or sys.maxsize)
        self.device, dtype = self.head.weight.device, self.head.weight.dtype
        self.agreement = AGREEMENT[dtype]
        self.kernels = _load_kernels(kernels, self.device, dtype)
        expected, layout = self._probed(linears)
        shapes = [{name: (linears[name].in_features, linears[name].out_features) for name in names} for names in layout]
        self.bank = LoraBank(shapes, slots, rank, alpha, self.device, dtype, learns)
        self._context = ForwardContext(self.device)
        for names, projections in zip(layout, self.bank.projections, strict=True):
            shared = FusedLinears([linears[name] for name in names], projections, self._context)
            for index, name in enumerate(names):
                model.set_submodule(name, LoraLinear(linears[name], index, shared))
        model.set_attn_implementation(attention.NAME)
        for module in model.modules():
            if isinstance(module, nn.Linear):
                use_base_products(module)
        for layer in self.backbone.layers:
            use_frozen_mlp(getattr(layer, "mlp", None))
        if self.device.type == "cuda":
            fuse_norms(self.backbone)
        self._check_base(expected)
        if checkpointing != "none":
            for layer in self.backbone.layers:
                module = layer if checkpointing == "layer" else layer.mlp
                module.forward = self._recomputed_in_backward(module.forward)

    def forward(self, ids: torch.Tensor, positions: torch.Tensor, segments: SegmentMap | SlotWeights, plan: AttentionPlan) -> torch.Tensor:
        """Compute the last hidden states [N, d] of a packed row of tokens: ids and positions [N].

        With gradients on, a backward from them adds to ``bank.gradient``. `SlotWeights` support no backward.
        """
        scale = self.bank.scale(segments) if isinstance(segments, SegmentMap) and segments.counts else 1.0
        with self._context.follow(segments, scale):
            output = self.backbone(input_ids=ids[None], position_ids=positions[None], use_cache=False, attention_plan=plan)
        return output.last_hidden_state[0]

    @property
    def computation(self) -> dict[str, str]:
        """Name what computes the attention of `pack` and the base's products, with the reason."""
        on_cpu = self.device.type == "cpu" and self.head.weight.dtype == torch.float32
        return {"attention": describe(self._attention()), "products": base_products() if on_cpu else "torch's default"}

    def pack(self, groups: Sequence[PromptGroup], keep: bool = False) -> Packed:
        """Pack groups as `populora.engine.model.packing.pack`, for `forward`."""
        functions = self._attention()
        return pack(groups, self.device, keep, None if isinstance(functions, str) else functions)

    def _attention(self) -> CDLL | str:
        if isinstance(self.kernels, str):
            return self.kernels
        size, panel = head_size(self.model.config), self.kernels.panel()
        return f"C is for heads of a multiple of {panel} dimensions, these have {size}" if size % panel else self.kernels

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Compute fp32 logits [..., V] of hidden states [..., d]."""
        return self.head(hidden).float()

    def logprobs(self, packed: Packed) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute log-probabilities (differentiable) and entropies [M] of a pack's response tokens, at temperature 1, in nats."""
        hidden = self.forward(packed.ids, packed.positions, packed.segments, packed.plan)
        return chosen_logprobs(self.head, hidden.index_select(0, packed.predictors), packed.targets)

    def _recomputed_in_backward(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``forward`` so that the backward recomputes its activations, with the segments of the first run."""

        def checkpointed(*arguments: Any, **named: Any) -> Any:
            if not torch.is_grad_enabled():
                return forward(*arguments, **named)
            rerun = self._context.follow(self._context.segments, self._context.scale)
            return checkpoint(
                forward, *arguments, use_reentrant=False, preserve_rng_state=False, context_fn=lambda: (nullcontext(), rerun), **named
            )

        return checkpointed

    @torch.no_grad()  # not inference mode: weights that a sharded base gathers in it could not be used in a backward
    def _probed(self, linears: dict[str, nn.Linear]) -> tuple[torch.Tensor, list[list[str]]]:
        """Return the base's own logits for a probe, and its adapted modules grouped by the input that they read."""
        readers: list[tuple[torch.Tensor, list[str]]] = []

        def read(linear: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            if not readers or readers[-1][0] is not inputs[0]:
                readers.append((inputs[0], []))
            readers[-1][1].append(names[linear])

        names: dict[nn.Module, str] = {linear: name for name, linear in linears.items()}
        hooks = [linear.register_forward_pre_hook(read) for linear in names]
        logits = self.model(self._probe()[None]).logits[0].float()
        for hook in hooks:
            hook.remove()
        idle = sorted(set(linears) - {name for _, group in readers for name in group})
        if idle:
            raise BaseModelError(f"lora.targets: the base never uses its module '{idle[0]}': leave it out of lora.targets")
        return logits, [group for _, group in readers]

    def _probe(self) -> torch.Tensor:
        return torch.arange(PROBE, device=self.device) % self.head.out_features

    def _check_base(self, expected: torch.Tensor) -> None:
        kinds = set(getattr(self.model.config, "layer_types", None) or {"full_attention"})
        packed = self.pack([PromptGroup(-1, self._probe().tolist())])
        with torch.no_grad():
            actual = self.logits(self.forward(packed.ids, packed.positions, packed.segments, packed.plan))
        tolerance = 1e-4 if self.head.weight.dtype == torch.float32 else 0.05
        difference = float((actual - expected).abs().max() / expected.abs().max())
        faults = [f"layers of kind {', '.join(sorted(kinds))}"] if kinds != {"full_attention"} else []
        faults += [] if difference < tolerance else [f"logits that differ by {difference:.1e} relative"]
        if faults:
            compiled = not isinstance(self.kernels, str)
            raise BaseModelError(
                "expected a causal LM with full attention and a plain linear head; this one has "
                f"{' and '.join(faults)}. Choose another base.path."
                + (' If torch computes it rightly (base.kernels = "torch"), the C compiler is at fault.' if compiled else "")
            )


def _load_kernels(choice: str, device: torch.device, dtype: torch.dtype) -> CDLL | str:
    """Return the functions in C, or the reason why torch computes."""
    if device.type != "cpu" or dtype != torch.float32:
        return "C is for bases in float32 on a CPU"
    return load() if choice == "auto" else f'base.kernels = "{choice}"'


def _matching(model: Any, targets: Sequence[str], head: nn.Module) -> dict[str, nn.Linear]:
    """Return the linear modules whose last name part is one of the targets, in the model's order."""
    linears = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear) and module is not head}
    return {name: linears[name] for name in targeted(linears, targets)}
