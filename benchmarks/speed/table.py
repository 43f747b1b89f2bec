"""The bars of speed and what was measured, as a table.

    python benchmarks/speed/table.py        reads multi_lora.json and step.json, writes table.md

A bar is met if the median over the rounds is on its side.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FILES = ("multi_lora", "step")


@dataclass(frozen=True)
class Bar:
    """``text`` says which ratio; ``path`` leads to it, beginning with its file; ``sense`` is <= or >=."""

    text: str
    path: tuple[str, ...]
    sense: str
    bound: float


def training(hidden: int, text: str, ratio: str, sense: str, bound: float) -> Bar:
    return Bar(
        f"forward and backward, hidden {hidden}: {text}", ("multi_lora", f"training, hidden {hidden}", "ratios", ratio), sense, bound
    )


def decoding(hidden: int) -> Bar:
    path = ("multi_lora", f"decoding, hidden {hidden}", "decoding alone", "ratios", "base only / 8 adapters")
    return Bar(f"decoding 32 rows, hidden {hidden}: speed with 8 adapters / base only", path, ">=", 0.92)


def prompts(case: str) -> Bar:
    path = ("multi_lora", "scheduling", case, "ratios", "for each of 8 samples / once")
    return Bar(f"{case}: time for each of 8 samples / once", path, ">=", 8.0)


def shared(length: int) -> Bar:
    path = ("multi_lora", "rows", f"P = T = {length}, n = 8", "ratios", "prompts repeated / prompts once")
    return Bar(f"training, 8 responses of {length} tokens to a prompt of {length}: prompts repeated / once", path, ">=", 1.7)


def head(ratio: str, sense: str, bound: float) -> Bar:
    return Bar(f"log-probabilities at a vocabulary of 152k: {ratio}", ("multi_lora", "head", "ratios", ratio), sense, bound)


PLAIN, ALONE = ("step", "plain composition, 4T+4S, threads 1", "plain / ours"), ("step", "adapter steps, 4T+4S, threads 1", "4T+4S / 1T+1S")

BARS = [
    *(training(hidden, "8 adapters / 1, same tokens", "8 adapters / 1 adapter", "<=", 1.06) for hidden in (256, 896)),
    *(training(hidden, "16 adapters / 1, same tokens", "16 adapters / 1 adapter", "<=", 1.12) for hidden in (256, 896)),
    training(256, "8 adapters / base only", "8 adapters / base only", "<=", 1.15),
    training(896, "8 adapters / base only", "8 adapters / base only", "<=", 1.05),
    training(256, "PEFT one by one / 8 adapters, same tokens", "8 in PEFT, sequential / 8 adapters", ">=", 1.4),
    training(
        256, "PEFT one by one / 8 adapters, 64 tokens each", "8 in PEFT, sequential, 64 tokens each / 8 adapters, 64 tokens each", ">=", 1.7
    ),
    *(training(hidden, "8 adapters, skewed / even", "8 adapters, skewed / 8 adapters", "<=", 1.05) for hidden in (256, 896)),
    Bar("rows that fill 0.31 of a rectangle: padded / packed", ("multi_lora", "rows", "ratios", "padded / packed"), ">=", 4.0),
    *(shared(length) for length in (64, 256)),
    Bar("sampling of log-normal lengths: waves / refill", ("multi_lora", "scheduling", "ratios", "waves / refill"), ">=", 1.8),
    prompts("32 prompts of 32 tokens"),
    prompts("8 prompts of 256 tokens"),
    head("memory, plain / chunked", ">=", 16.0),
    head("time, chunked / plain", "<=", 1.0),
    decoding(256),
    decoding(896),
    Bar("a step of 4T+4S: plain composition / populora", (*PLAIN, "whole"), ">=", 4.0),
    Bar("the same in CPU time", (*PLAIN, "cpu"), ">=", 4.0),
    Bar("seconds of an adapter's step: 4T+4S / 1T+1S", (*ALONE, "wall"), "<=", 1.0),
    Bar("the same for each sampled token", (*ALONE, "wall, for each token"), "<=", 1.0),
]


def table(results: dict[str, Any], bars: Sequence[Bar] = BARS) -> str:
    """A line for each bar: the bound, the median with the smallest and largest over the rounds, and whether it is met."""
    lines = ["| ratio | bar | measured | |", "|---|---|---|---|"]
    for bar in bars:
        found: Any = results
        for key in bar.path:
            found = found[key]
        spread = found if isinstance(found, dict) else {"median": found}
        value = spread["median"]
        met = value <= bar.bound if bar.sense == "<=" else value >= bar.bound
        between = f" ({spread['min']:.2f} to {spread['max']:.2f})" if "min" in spread else ""
        lines.append(f"| {bar.text} | {bar.sense} {bar.bound:g} | {value:.2f}{between} | {'' if met else '**missed**'} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    results = {name: json.loads((HERE / f"{name}.json").read_text()) for name in FILES}
    on = results["multi_lora"]["machine"]
    head = (
        f"{on['processor']}, {on['cores']} cores, Python {on['python']}, torch {on['torch']}, transformers {on['transformers']}, PEFT "
        f"{on['peft']}; float32, one thread unless said. Medians over {results['multi_lora']['rounds']} rounds of the ratio within a round "
        f"({results['step']['rounds']} for whole steps), with the smallest and the largest.\n\n"
    )
    (HERE / "table.md").write_text(head + table(results))


if __name__ == "__main__":
    main()
