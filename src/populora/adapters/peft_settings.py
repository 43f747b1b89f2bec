"""The settings of a PEFT LoRA folder (``adapter_config.json``), and which of them can be bred.

Some only scale the delta ``B A`` or select where it applies. A child copies the file of its first parent, and both parents must
agree in them (`check_agreement`). Others mean that something other than the factors was trained, or that the base was changed:
such a folder is refused with the reason and the remedy. So is any unknown setting that is not empty, because it may change what
the factors mean. docs/breed.md lists all of them.
"""

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from populora.adapters.adapter import Adapter
from populora.core.errors import AdapterError

CONFIG_FILE = "adapter_config.json"
Settings = dict[str, Any]

CARRIED = ("use_rslora", "rank_pattern", "alpha_pattern", "fan_in_fan_out", "layer_replication", "alora_invocation_tokens")
"""Scale and reach of the delta beyond ``r`` and ``lora_alpha``: they leave the meaning of the factors unchanged."""
_FREE = {
    "peft_type", "peft_version", "task_type", "auto_mapping", "base_model_name_or_path", "revision", "inference_mode", "r", "lora_alpha",
    "lora_dropout", "bias", "target_modules", "exclude_modules", "layers_to_transform", "layers_pattern", "init_lora_weights",
    "loftq_config", "eva_config", "corda_config", "lora_ga_config", "qalora_group_size", "megatron_core", "runtime_config",
}  # fmt: skip
"""The weights show the adapted modules. The rest matters in training only, or `read_settings` checks it."""
_NOT_FACTORS = "which no operator mixes; train it without"
_REFUSED = {
    "use_dora": "DoRA's magnitudes depend on the base's weights; train it without, or merge it and extract a plain LoRA",
    "lora_bias": f"it trains biases, {_NOT_FACTORS}",
    "modules_to_save": f"it holds whole modules of the base, {_NOT_FACTORS}",
    "trainable_token_indices": f"it trains token embeddings, {_NOT_FACTORS}",
    "target_parameters": "it adapts bare parameters in shapes of their own; adapt linear modules instead",
    "use_qalora": "QALoRA's factors read groups of inputs; train it without",
    "use_bdlora": "its factors are block-diagonal, and children's would not be; train it without",
}
_PLAIN_INITS = (None, True, False, "gaussian", "orthogonal", "eva")
"""Initialisations that leave the base as it is (PiSSA, OLoRA, CorDA, LoftQ and LoRA-GA change its weights)."""


def read_settings(folder: Path) -> Settings:
    """Read the settings of a PEFT LoRA folder. Raises `AdapterError` with reason and remedy if it trains more than factors."""
    path = folder / CONFIG_FILE
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise AdapterError(f"'{folder}' is not a PEFT adapter: cannot read {CONFIG_FILE} ({error.strerror})") from error
    except ValueError as error:
        raise AdapterError(f"'{path}' is not valid JSON: {error}. Save the adapter again.") from error
    if not isinstance(settings, dict) or settings.get("peft_type") != "LORA":
        raise AdapterError(f"'{path}': expected the settings of a PEFT LoRA adapter (peft_type LORA)")
    if reasons := _reasons(settings):
        raise AdapterError(f"'{folder}' is not a plain LoRA adapter. {'. '.join(reasons)}.")
    rank, alpha = settings.get("r"), settings.get("lora_alpha")
    if type(rank) is not int or rank < 1 or not isinstance(alpha, (int, float)) or not 0 < alpha < math.inf:
        raise AdapterError(f"'{path}': expected a rank r of at least 1 and lora_alpha above 0, got {rank!r} and {alpha!r}")
    _check_patterns(path, settings)
    return settings


def check_plain(folder: Path, settings: Settings) -> None:
    """Raise `AdapterError` unless one rank, one alpha and the scale alpha / rank describe the adapter, as a member of a run needs."""
    if extra := [f"{name} = {settings[name]}" for name in CARRIED if settings.get(name)]:
        raise AdapterError(
            f"'{folder}' has {', '.join(extra)}: a member of a run has one rank, one alpha and the scale alpha / rank. "
            "`populora breed` takes such adapters."
        )


def check_agreement(folders: Sequence[Path], settings: Sequence[Settings], other_base: bool = False) -> None:
    """Raise `AdapterError` if equal factors of two parents would not be equal deltas. Rank, alpha and shapes are `breed`'s to check.

    A base may have two names, such as a folder and that of a hub: ``other_base`` accepts that the names differ.
    """
    for folder, other in zip(folders[1:], settings[1:], strict=True):
        bases = [tuple(values.get(name) for name in ("base_model_name_or_path", "revision")) for values in (settings[0], other)]
        if bases[0] != bases[1] and not other_base:
            named = [f"'{name}'" + (f" (revision {revision})" if revision else "") for name, revision in bases]
            raise AdapterError(
                f"the parents have different bases, {named[0]} and {named[1]}: factors of one base mean nothing on another. If both are "
                "names of the same weights, add --allow-other-base (from Python: allow_other_base=True)"
            )
        for name in CARRIED:
            first, second = settings[0].get(name) or None, other.get(name) or None
            if repr(first) != repr(second):  # of patterns the first that matches counts, so their order matters, too
                raise AdapterError(
                    f"the parents differ in {name}: {first!r} in '{folders[0]}', {second!r} in '{folder}'. Their factors are scaled "
                    "or applied in other ways, and a mixture would be neither: expected adapters made with equal LoRA settings"
                )


def rank_of(module: str, settings: Settings) -> int:
    """Return a module's rank by PEFT's rule: the first pattern that matches its name from a dot (or the start) to the end, else ``r``."""
    patterns: dict[str, int] = settings.get("rank_pattern") or {}
    return next((rank for pattern, rank in patterns.items() if re.match(rf"(.*\.)?({pattern})$", module)), settings["r"])


def plain_settings(adapter: Adapter, base_name: str, targets: Sequence[str]) -> Settings:
    """Return the settings of an adapter that we made. Raises `AdapterError` if ``targets`` do not describe its modules."""
    owner = {name: [target for target in targets if name == target or name.endswith(f".{target}")] for name in adapter.modules}
    lost = [name for name, owners in owner.items() if not owners]
    used = list(dict.fromkeys(owners[0] for owners in owner.values() if owners))  # in the order of the model, for `module_order`
    if lost or set(used) != set(targets):
        mismatch = f"module '{lost[0]}' matches none" if lost else f"no module matches {sorted(set(targets) - set(used))}"
        raise AdapterError(f"the targets {list(targets)} do not describe the adapter's modules: {mismatch}")
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_name,
        "r": adapter.rank,
        "lora_alpha": int(adapter.alpha) if adapter.alpha == int(adapter.alpha) else adapter.alpha,
        "target_modules": used,
        "lora_dropout": 0.0,
        "bias": "none",
        "use_dora": False,
        "use_rslora": False,
        "fan_in_fan_out": False,
        "modules_to_save": None,
        "init_lora_weights": True,
        "inference_mode": True,
    }


def module_order(name: str, targets: object) -> tuple[Any, ...]:
    """Return the sorting key of a module: by layer, then as in ``target_modules``. Weights files are sorted by name, models are not."""
    numbers = tuple(int(part) for part in name.split(".") if part.isdigit())
    listed = targets if isinstance(targets, list) else []
    target = next((i for i, item in enumerate(listed) if name == item or name.endswith(f".{item}")), len(listed))
    return not numbers, numbers, target, name


def _reasons(settings: Settings) -> list[str]:
    reasons = [f"{name}: {why}" for name, why in _REFUSED.items() if settings.get(name)]
    if settings.get("bias") not in (None, "none"):
        reasons.append(f"bias is {settings['bias']!r}: it trains biases of the base, {_NOT_FACTORS}")
    if settings.get("init_lora_weights") not in _PLAIN_INITS:
        reasons.append(
            f"init_lora_weights is {settings['init_lora_weights']!r}: its delta is against weights that this start has changed; save it "
            "with PEFT's path_initial_model_for_weight_conversion"
        )
    strange = [name for name, value in settings.items() if value and name not in {*_REFUSED, *CARRIED, *_FREE}]
    return reasons + [
        f"{name} = {settings[name]!r} is not known: it may change what the factors mean; remove it from {CONFIG_FILE} if it does not"
        for name in strange
    ]


def _check_patterns(path: Path, settings: Settings) -> None:
    for name, wanted in (("rank_pattern", int), ("alpha_pattern", (int, float))):
        patterns = settings.get(name) or {}
        if not isinstance(patterns, dict) or not all(isinstance(value, wanted) and value > 0 for value in patterns.values()):
            raise AdapterError(f"'{path}': expected {name} to map patterns of module names to positive numbers, got {patterns!r}")
        try:
            _ = [re.compile(rf"(.*\.)?({pattern})$") for pattern in patterns]
        except re.error as error:
            raise AdapterError(f"'{path}': {name} has a pattern that is no regular expression ({error})") from error
