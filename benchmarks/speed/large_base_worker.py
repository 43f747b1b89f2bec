"""Compute prompts, decode and train at the shape of Qwen2.5-0.5B by the populora that Python finds.

It answers each case on standard input with a line of JSON. A case is ``prefill N``, ``decode N`` or ``train N``, with N adapters, or 0 for
the bare base. `benchmarks.large_base` starts this with the code of two commits, as `decoding_worker` explains.
"""

import json
import sys
import time
from typing import Any

import torch
from decoding_worker import load
from random_base import Numbers, qwen2

WIDTHS, VOCABULARY = (896, 24, 4864, 14, 2), 151_936
ROWS, LONG, SHORT, NEW, SLOTS, RANK = 32, 64, 8, 24, 8, 32
"""Rows, tokens of a prompt (short ones before the tokens that are decoded), decoded tokens, adapters, their rank. Half as many rows train,
each on a prompt and a response of ``LONG`` tokens."""


def adapted_model() -> Any:
    """Return a base with random weights and adapters that are not zero."""
    base = qwen2(WIDTHS, VOCABULARY)
    base.generation_config.eos_token_id = None
    targets = ("q_proj", "k_proj", "v_proj", "o_proj")
    adapted = load("engine.model.adapted_model", "lora.model").AdaptedModel(base, targets, SLOTS, RANK, 2.0 * RANK)
    adapted.bank.initialise(0)
    adapted.bank.master += 0.02 * torch.randn(adapted.bank.master.shape, generator=torch.Generator().manual_seed(1))
    return adapted


def main() -> None:
    torch.set_num_threads(1)
    adapted = adapted_model()
    sampler = load("engine.sampling.inprocess", "engine.inprocess").InProcessSampler(adapted, Numbers(), 0)
    packing, request = load("engine.model.packing", "lora.packing"), load("core.types", "types").Request
    group = getattr(packing, "PromptGroup", None) or packing.Group
    pack = getattr(adapted, "pack", packing.pack)
    draws = torch.randint(2, VOCABULARY, (ROWS, 2 * LONG), generator=torch.Generator().manual_seed(2)).tolist()

    def sample(slots: list[int], length: int, new: int) -> None:
        prompts = [" ".join(map(str, draw[:length])) for draw in draws]
        sampler.generate([request(text, slot, 1, (at,)) for at, (text, slot) in enumerate(zip(prompts, slots, strict=True))], new, 1.0, "")

    def train(slots: list[int]) -> None:
        adapted.bank.gradient.zero_()
        half = ROWS // 2
        groups = [group(slot, draw[:LONG], (draw[LONG:],)) for slot, draw in zip(slots[::2], draws[:half], strict=True)]
        adapted.logprobs(pack(groups))[0].sum().backward()

    for line in sys.stdin:
        work, adapters = line.split()
        slots = [row * int(adapters) // ROWS for row in range(ROWS)] if adapters != "0" else [-1] * ROWS
        started = time.process_time()
        if work == "train":
            train(slots)
        else:
            sample(slots, *((LONG, 1) if work == "prefill" else (SHORT, NEW)))
        print(json.dumps({"seconds": time.process_time() - started}), flush=True)


if __name__ == "__main__":
    main()
