"""Apply mergekit's functions to the tensors that our operators of the same names get, and compare the results.

    pip install mergekit==0.1.5 && python -m benchmarks.operators.differences        writes differences.json here; a minute

mergekit merges an adapter into its base first, and its functions then see dense deltas. Here both get two factors of an adapter, so that
only the functions differ. `tests/adapters/operators/test_peft_differences.py` has the same for PEFT.
"""

from importlib.metadata import version
from pathlib import Path

import torch
from benchmarks.measuring import write_results
from mergekit.merge_methods.slerp import slerp as their_slerp
from mergekit.sparsify import RescaleNorm, bernoulli, della_magprune, magnitude

from populora.adapters.adapter import Adapter
from populora.adapters.operators import OPERATORS, merges
from populora.core.rng import stream

ROWS, COLUMNS, DRAWS = 32, 896, 1500


def main() -> None:
    torch.manual_seed(0)
    left, right = torch.randn(2, ROWS, COLUMNS)
    results = {
        "mergekit": version("mergekit"),
        "shape": [ROWS, COLUMNS],
        "draws": DRAWS,
        "x1_dare": dare(left),
        "x6_ties": ties(left, right),
        "x7_della": della(left),
        "x8_slerp": slerp(left, right),
    }
    write_results(Path(__file__).with_suffix(".json"), results)


def ours(name: str, left: torch.Tensor, right: torch.Tensor, draw: int = 0, **strength: float) -> torch.Tensor:
    """Return A of the child of two adapters whose only A are the tensors."""
    parents = [Adapter({"w": (tensor, torch.zeros(1, len(tensor)))}, len(tensor), 1.0) for tensor in (left, right)]
    return OPERATORS[name].function(parents, stream(0, "differences", draw), **strength).modules["w"][0]


def kept(name: str, parent: torch.Tensor, draw: int) -> torch.Tensor:
    """Return one parent after our drop and rescale: with a zero parent, the child is half of it."""
    return 2 * ours(name, parent, torch.zeros_like(parent), draw)


def slope(children: list[torch.Tensor], parent: torch.Tensor, where: torch.Tensor) -> float:
    """Return the factor between the mean child and the parent, over the entries ``where``."""
    mean = torch.stack(children).mean(dim=0)
    return round(float((mean * parent)[where].sum() / parent[where].square().sum()), 3)


def dare(parent: torch.Tensor) -> dict[str, float]:
    """Compare the rescaling: theirs matches the sum of magnitudes of each draw, ours is 1 / (1 - drop)."""
    everywhere, tiny = torch.ones_like(parent, dtype=torch.bool), parent[:2, :4]
    theirs = [bernoulli(parent, density=0.3, rescale_norm=RescaleNorm.l1) for _ in range(DRAWS // 10)]
    on_few = [bernoulli(tiny, density=0.3, rescale_norm=RescaleNorm.l1) for _ in range(20 * DRAWS)]
    return {
        "mean_over_parent_theirs": slope(theirs, parent, everywhere),
        "mean_over_parent_ours": slope([kept("x1", parent, draw) for draw in range(DRAWS // 10)], parent, everywhere),
        "mean_over_parent_theirs_8_entries": slope(on_few, tiny, torch.ones_like(tiny, dtype=torch.bool)),
    }


def ties(left: torch.Tensor, right: torch.Tensor) -> dict[str, float]:
    """Trim both to 80 %, elect the sign of the sum, and take the mean of the entries that have it."""
    trimmed = torch.stack([magnitude(tensor, density=0.8) for tensor in (left, right)])
    elected = trimmed.sum(dim=0).sign()
    agree = trimmed.sign() == elected
    theirs, child = (trimmed * agree).sum(dim=0) / agree.sum(dim=0).clamp(min=1), ours("x6", left, right)
    return {
        "entries_trimmed_by_theirs": int((trimmed == 0).sum()),
        "entries_trimmed_by_ours": sum(int((merges._trimmed(tensor, 0.2) == 0).sum()) for tensor in (left, right)),
        "entries_of_the_child_that_differ": int((theirs != child).sum()),
        "entries": left.numel(),
    }


def della(parent: torch.Tensor) -> dict[str, float]:
    """Compare the drop rates: theirs rank within rows, keep density ± epsilon, and match the sum of magnitudes afterwards."""
    by_size = parent.abs().flatten().argsort()
    share = parent.numel() // 10
    large, small = (torch.zeros(parent.numel(), dtype=torch.bool).scatter(0, chosen, True).view_as(parent)
                    for chosen in (by_size[-share:], by_size[:share]))  # fmt: skip
    theirs = [della_magprune(parent, density=0.45, epsilon=0.44, rescale_norm=RescaleNorm.l1) for _ in range(DRAWS)]
    children = [kept("x7", parent, draw) for draw in range(DRAWS)]
    return {
        f"mean_over_parent_{who}_{which}_tenth": slope(tensors, parent, where)
        for who, tensors in (("theirs", theirs), ("ours", children))
        for which, where in (("largest", large), ("smallest", small))
    }


def slerp(left: torch.Tensor, right: torch.Tensor) -> dict[str, float]:
    """Compare lengths: theirs is linear from a cosine of 0.9995 on, of either sign; ours from an angle of 1e-6."""
    across = right - (right * left).sum() / left.square().sum() * left
    across = across / across.norm() * left.norm()

    def turned(cosine: float) -> torch.Tensor:
        return cosine * left + (1 - cosine**2) ** 0.5 * across

    def length(cosine: float) -> float:
        theirs = their_slerp(torch.tensor([0.5]), left[None], turned(cosine)[None])
        return round(float(ours("x8", left, turned(cosine)).norm() / theirs.norm()), 4)

    return {f"length_ours_over_theirs_at_cosine_{cosine}": length(cosine) for cosine in (0.9, 0.9996, -0.9, -0.9996)}


if __name__ == "__main__":
    main()
