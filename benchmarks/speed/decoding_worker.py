"""Sample from the tiny base by the populora that Python finds: one line of JSON for each number of rows on standard input.

`benchmarks.decoding` starts it with the code of two commits. So it imports nothing of benchmarks, and names modules of both.
"""

import hashlib
import json
import sys
import time
from importlib import import_module
from typing import Any

import torch

PROMPT = (
    "<solve><code_o>\ndef f(a, b):\n    total = 0\n    for x in a:\n        if x > b:\n            total += x * {number}\n"
    "    return total\n[1, 2], 3"
)
SAMPLES, NEW, SLOTS, RANK = 4, 96, 8, 8
"""Responses to a prompt, tokens of a response, adapters, their rank."""


def load(*modules: str) -> Any:
    """Return the first of these modules that exists."""
    for name in modules:
        try:
            return import_module(f"populora.{name}")
        except ModuleNotFoundError:
            continue
    raise SystemExit(f"populora has none of {', '.join(modules)}")


def main() -> None:
    torch.set_num_threads(1)
    base_config = load("core.config", "config").BaseConfig()
    model, tokenizer = load("engine.model.loading", "engine.loading").load_base(base_config)
    targets = ("q_proj", "k_proj", "v_proj", "o_proj")
    adapted = load("engine.model.adapted_model", "lora.model").AdaptedModel(model, targets, SLOTS, RANK, 2.0 * RANK)
    adapted.bank.initialise(0)
    adapted.bank.master += 0.02 * torch.randn(adapted.bank.master.shape, generator=torch.Generator().manual_seed(1))
    sampler = load("engine.sampling.inprocess", "engine.inprocess").InProcessSampler(adapted, tokenizer, 0)
    sampler._eos = frozenset()  # every response has its full length
    request = load("core.types", "types").Request
    for line in sys.stdin:
        prompts = range(int(line) // SAMPLES)
        requests = [request(PROMPT.replace("{number}", str(at)), at * SLOTS // len(prompts), SAMPLES, ("decoding", at)) for at in prompts]
        started = time.process_time()
        responses = sampler.generate(requests, NEW, 1.0, "")
        seconds = time.process_time() - started
        tokens = [response.tokens for group in responses for response in group]
        digests = [hashlib.sha256(repr(tuple(row)).encode()).hexdigest()[:8] for row in tokens]
        print(json.dumps({"seconds": seconds, "tokens": sum(map(len, tokens)), "digests": digests}), flush=True)


if __name__ == "__main__":
    main()
