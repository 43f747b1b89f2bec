"""A base with random weights, and a tokenizer of numbers. Nothing of populora is imported: workers use this with the code of any commit."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM, Qwen2Config


def qwen2(
    widths: Sequence[int], vocabulary: int = 512, context: int = 2048, tied: bool = True, device: str = "cpu", dtype: str = "float32"
) -> Any:
    """Return a Qwen2 in eval mode with random weights, made on the device."""
    torch.manual_seed(0)
    hidden, layers, inner, heads, kv_heads = widths
    config = Qwen2Config(
        vocab_size=vocabulary, hidden_size=hidden, num_hidden_layers=layers, intermediate_size=inner, num_attention_heads=heads,
        num_key_value_heads=kv_heads, max_position_embeddings=context, tie_word_embeddings=tied, pad_token_id=0, eos_token_id=1,
        bos_token_id=None,
    )  # fmt: skip
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype)).eval()


class Numbers:
    """A tokenizer of texts that are token ids with spaces between."""

    eos_token_id = None

    def __len__(self) -> int:
        return 0

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": [int(word) for word in text.split()]}

    def decode(self, tokens: Sequence[int], **options: Any) -> str:
        return ""
