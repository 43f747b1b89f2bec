"""The bars of the operators, and their measurements as a Markdown table."""

from __future__ import annotations

from typing import Any

from populora.adapters.operators import OPERATORS

SVD_OPERATORS = ("m1", "m3", "m6", "x3")
"""The operators that decompose deltas; X1 does in delta space, which is measured apart."""


def bars(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What operators are meant to reach, and what was found."""
    medians = {name: seconds["median"] for name, seconds in found["children"].items()}
    slowest = max(SVD_OPERATORS, key=lambda name: medians[name])
    other = max(medians.keys() - set(SVD_OPERATORS), key=lambda name: medians[name])
    peft = found["peft"]
    checks = {
        f"seconds of the slowest SVD operator ({slowest})": ("at_most", 0.3, medians[slowest]),
        f"seconds of the slowest other operator ({other})": ("at_most", 0.5, medians[other]),
        f"full dense SVDs in the time of {slowest}": ("at_least", 1000.0, round(found["dense"]["full_svd_child"] / medians[slowest])),
        "PEFT's time over ours": ("at_least", 20.0, peft["ratios"]["PEFT"]["median"]),
        "largest relative difference to PEFT's deltas": ("at_most", 1e-5, peft["largest_relative_difference"]),
    }
    return {
        name: {side: bar, "found": value, "met": value <= bar if side == "at_most" else value >= bar}
        for name, (side, bar, value) in checks.items()
    }


def table(found: dict[str, Any]) -> str:
    """Medians with the smallest and largest of the rounds, in Markdown."""
    where, dense, peft = found["machine"], found["dense"], found["peft"]
    about = (
        f"{where['processor']}, one thread, torch {where['torch']}, load before {where['load_before']}. CPU seconds of a whole adapter at "
        f"the shapes of Qwen2.5-7B, rank 32; medians of {found['rounds']} rounds (smallest to largest)."
    )
    lines = [
        about,
        "",
        "| operator | | seconds | a full SVD of its dense deltas takes | norm over the parents' | cosine to each | rank |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, seconds in found["children"].items():
        times = f"{dense['full_svd_child'] / seconds['median']:,.0f} times as long" if name in SVD_OPERATORS else ""
        child = found["measures"][name]
        spent = f"{seconds['median']:.3f} ({seconds['min']:.3f} to {seconds['max']:.3f})"
        cosines = ", ".join(f"{cosine:.2f}" for cosine in child["cosines"])
        measured = f"{child['norm_ratio']:.2f} | {cosines} | {child['effective_rank']:g}"
        lines.append(f"| `{name}` | {OPERATORS[name].alias} | {spent} | {times} | {measured} |")
    lines += [f"| `x1`, space = delta | dare | {dense['x1_delta_child']:.0f}, from one module of each shape | | | | |", ""]
    lines += ["| the mean of two deltas at their rank, 8 modules of hidden size 896 | milliseconds | times ours |", "|---|---|---|"]
    for name, each in peft["milliseconds"].items():
        times = f"{peft['ratios'][name]['median']:.1f}" if name in peft["ratios"] else ""
        lines.append(f"| {name} | {each['median']:.1f} ({each['min']:.1f} to {each['max']:.1f}) | {times} |")
    lines += ["", "| bar | | found | |", "|---|---|---|---|"]
    for name, bar in found["bars"].items():
        limit = f"<= {bar['at_most']:g}" if "at_most" in bar else f">= {bar['at_least']:,.0f}"
        lines.append(f"| {name} | {limit} | {bar['found']:.4g} | {'' if bar['met'] else '**missed**'} |")
    return "\n".join(lines) + "\n"
