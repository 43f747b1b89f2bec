"""Greedy tokens of transformers, as an oracle that another processor does not change."""

from typing import Any

import torch

NEAR_TIE = 1e-4
"""Ten times what two implementations' log-probabilities may differ by: where the two best logits are closer together, the processor's
rounding could decide which of them wins."""


def greedy_tokens(model: Any, ids: torch.Tensor, count: int) -> list[int]:
    """At most ``count`` greedy tokens after a prompt, shape [1, length]. Fails at a near tie: choose another prompt or another seed."""
    mask = torch.ones_like(ids)
    output = model.generate(
        input_ids=ids, attention_mask=mask, max_new_tokens=count, do_sample=False, pad_token_id=0, output_logits=True,
        return_dict_in_generate=True,
    )  # fmt: skip
    best = torch.cat(output.logits).topk(2).values
    gap = float((best[:, 0] - best[:, 1]).min())
    assert gap > NEAR_TIE, f"two logits are {gap:.1e} apart: which of them is the larger could depend on the processor"
    return output.sequences[0, ids.shape[1] :].tolist()
