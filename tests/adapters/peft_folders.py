"""Adapters as PEFT makes and saves them: the oracle of the tests of folders."""

import copy
import json
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import PreTrainedModel

WEIGHTS, SETTINGS = "adapter_model.safetensors", "adapter_config.json"
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]


def saved(base: PreTrainedModel, folder: Path, seed: int = 0, **settings) -> PeftModel:
    """An adapter with random factors, as PEFT makes and saves it."""
    torch.manual_seed(seed)
    defaults = {"r": 4, "lora_alpha": 6, "target_modules": ATTENTION, "init_lora_weights": False, "task_type": "CAUSAL_LM"}
    model = get_peft_model(copy.deepcopy(base), LoraConfig(**(defaults | settings)))
    model.save_pretrained(folder)
    return model.eval()


def edit_settings(folder: Path, **changes) -> None:
    path = folder / SETTINGS
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def logits(model) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.arange(12)[None]).logits
