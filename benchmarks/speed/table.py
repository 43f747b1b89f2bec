"""Write the bars of speed beside the measurements.

    python -m benchmarks.speed.table        reads multi_lora.json and step.json, writes table.md

A bar is met if the median over the rounds is on its side.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.measuring import bar

HERE = Path(__file__).parent
Bar = tuple[str, tuple[str, ...], str, float]
"""Text, path of the ratio in the results, <= or >=, limit."""


def _training(hidden: int, text: str, ratio: str, sense: str, limit: float) -> Bar:
    return f"forward and backward, hidden {hidden}: {text}", ("multi_lora", f"training, hidden {hidden}", "ratios", ratio), sense, limit


def _shared(length: int) -> Bar:
    text = f"training, 8 responses of {length} tokens to a prompt of {length}: prompts repeated / once"
    return text, ("multi_lora", "rows", f"P = T = {length}, n = 8", "ratios", "prompts repeated / prompts once"), ">=", 1.7


def _decoding(hidden: int) -> Bar:
    path = ("multi_lora", f"decoding, hidden {hidden}", "ratios", "base only / 8 adapters")
    return f"decoding 32 rows, hidden {hidden}: speed with 8 adapters / base only", path, ">=", 0.92


PLAIN, POPULATIONS = ("step", "plain step", "plain / ours"), ("step", "adapter steps", "4T+4S / 1T+1S")
SHORT = "8 in PEFT, sequential, 64 tokens each / 8 adapters, 64 tokens each"
BARS: list[Bar] = [
    *(_training(hidden, "8 adapters / 1, same tokens", "8 adapters / 1 adapter", "<=", 1.06) for hidden in (256, 896)),
    *(_training(hidden, "16 adapters / 1, same tokens", "16 adapters / 1 adapter", "<=", 1.12) for hidden in (256, 896)),
    _training(256, "8 adapters / base only", "8 adapters / base only", "<=", 1.15),
    _training(896, "8 adapters / base only", "8 adapters / base only", "<=", 1.05),
    _training(256, "PEFT one by one / 8 adapters, same tokens", "8 in PEFT, sequential / 8 adapters", ">=", 1.4),
    _training(256, "PEFT one by one / 8 adapters, 64 tokens each", SHORT, ">=", 1.7),
    *(_training(hidden, "8 adapters, skewed / even", "8 adapters, skewed / 8 adapters", "<=", 1.05) for hidden in (256, 896)),
    ("rows that fill 0.31 of a rectangle: padded / packed", ("multi_lora", "rows", "ratios", "padded / packed"), ">=", 4.0),
    *(_shared(length) for length in (64, 256)),
    *(_decoding(hidden) for hidden in (256, 896)),
    ("a step of 4T+4S: plain composition / populora", (*PLAIN, "whole"), ">=", 4.0),
    ("the same in CPU time", (*PLAIN, "cpu"), ">=", 4.0),
    ("seconds of an adapter's step: 4T+4S / 1T+1S", (*POPULATIONS, "wall"), "<=", 1.0),
    ("the same for each sampled token", (*POPULATIONS, "wall, for each token"), "<=", 1.0),
]


def table(results: Mapping[str, Any]) -> str:
    """Return a line for each bar: the limit, the median with the smallest and largest over the rounds, and whether it is met."""
    parts, steps = results["multi_lora"], results["step"]
    about = (
        f"{_machine(parts)}; float32, one thread. Medians over {parts['rounds']} rounds of the ratio within a round, with the smallest and "
        f"the largest. The last four lines, of whole steps: {_machine(steps)}; {steps['rounds']} rounds."
    )
    lines = [about, "", "| ratio | bar | measured | |", "|---|---|---|---|"]
    for text, path, sense, limit in BARS:
        value: Any = results
        for key in path:
            value = value[key]
        measured = f"{value['median']:.2f} ({value['min']:.2f} to {value['max']:.2f})"
        met = bar(limit, value["median"], at_least=sense == ">=")["met"]
        lines.append(f"| {text} | {sense} {limit:g} | {measured} | {'' if met else '**missed**'} |")
    return "\n".join(lines) + "\n"


def _machine(results: Mapping[str, Any]) -> str:
    on = results["machine"]
    versions = f"Python {on['python']}, torch {on['torch']}, transformers {on['transformers']}, PEFT {on['peft']}"
    return f"{on['processor']}, {on['cores']} cores, {versions}"


if __name__ == "__main__":
    (HERE / "table.md").write_text(table({name: json.loads((HERE / f"{name}.json").read_text()) for name in ("multi_lora", "step")}))
