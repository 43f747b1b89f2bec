"""Compute log-probabilities of chosen tokens at a vocabulary of 151,936, in chunks or from all logits at once.

python -m benchmarks.speed.head chunked|plain       prints seconds of each repeat and the additional peak memory in MiB
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import torch
from benchmarks.measuring import ROOT

from populora.engine.model.head import chosen_logprobs

TOKENS, WIDTH, VOCABULARY, REPEATS = 1024, 256, 151_936, 3


def measure(way: str) -> dict[str, object]:
    """Run one way in a process of its own."""
    done = subprocess.run([sys.executable, "-m", "benchmarks.speed.head", way], capture_output=True, text=True, check=True, cwd=ROOT)
    return json.loads(done.stdout)


def peak_kib() -> int:
    """Return the peak memory of this process; getrusage would include the parent's before this program began."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def main(way: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False).requires_grad_(False)
    targets = torch.randint(0, VOCABULARY, (TOKENS,))
    before, seconds = peak_kib(), []
    for _ in range(REPEATS):
        hidden = torch.randn(TOKENS, WIDTH, generator=torch.Generator().manual_seed(1)).requires_grad_()
        started = time.process_time()
        if way == "chunked":
            logprobs = chosen_logprobs(head, hidden, targets)[0]
        else:
            logprobs = head(hidden).float().log_softmax(-1).gather(1, targets[:, None])[:, 0]
        logprobs.sum().backward()
        seconds.append(time.process_time() - started)
    gradient = float(hidden.grad.norm()) if hidden.grad is not None else 0.0
    print(json.dumps({"seconds": seconds, "mib": (peak_kib() - before) / 1024, "gradient_norm": gradient}))


if __name__ == "__main__":
    main(sys.argv[1])
