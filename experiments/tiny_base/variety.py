"""Ship gate: the base writes real Python that can grow and shrink on all four complexity measures."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from populora.core.types import Measures

CONSTRUCTS = {
    "helper function": r"^def (?!f\()", "branch": r"^ +(if|elif) ", "loop": r"^ +(for|while) ", "comprehension": r"[\[(].* for .* in ",
    "string": r"'", "list": r"(^|[^\w\])])\[", "dict": r"\{|\bd\[", "tuple": r"(return|=) \(\w+, |tuple\(",
}  # fmt: skip
"""How the text of a program shows that it uses each. Programs of a model are never parsed in this process."""
MEASURES = ("loc", "cyclomatic", "ast_depth", "variables")
RARE = 0.01


def variety(written: Sequence[tuple[str, Measures]]) -> dict[str, dict]:
    """Of valid programs that the base wrote: share that uses each construct, and 5 %, 50 % and 95 % quantiles of each measure."""
    shares = {name: np.mean([bool(re.search(pattern, program, re.M)) for program, _ in written]) for name, pattern in CONSTRUCTS.items()}
    return {
        "constructs": {name: round(float(share), 4) for name, share in shares.items()},
        "quantiles": {
            name: [float(q) for q in np.quantile([getattr(found, name) for _, found in written], (0.05, 0.5, 0.95))] for name in MEASURES
        },
    }


def varied(found: dict[str, dict]) -> dict[str, bool]:
    """The bars: every construct in one program of a hundred, and programs at both ends of every measure."""
    return {
        "programs use every construct": all(share >= RARE for share in found["constructs"].values()),
        "programs grow and shrink on every measure": all(low < high for low, _, high in found["quantiles"].values()),
    }
