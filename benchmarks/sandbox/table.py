"""The measured speeds and attacks as a Markdown table."""

from __future__ import annotations

from typing import Any


def table(found: dict[str, Any]) -> str:
    """Medians with the smallest and largest of the rounds, and what became of each attack."""
    machine, noise = found["machine"], found["speed"]["noise"]
    about = (
        f"{machine['processor']}, {machine['cores']} cores, Python {machine['python']}, Linux {machine['kernel']}. Medians of "
        f"{found['settings']['rounds']} rounds (smallest to largest). Taken by the host: {noise['stolen_percent']['median']} % of the "
        f"processors' time, by other processes: {noise['others_percent']['median']} %."
    )
    lines = [
        about,
        "",
        "| trivial programs | programs/s | p50 ms | p99 ms | CPU ms each |",
        "|---|---|---|---|---|",
    ]
    for name, figures in found["speed"]["ways"].items():
        rate = figures["programs_per_second"]
        lines.append(
            f"| {name} | {rate['median']:.0f} ({rate['min']:.0f} to {rate['max']:.0f}) | {figures['p50_ms']['median']:.2f} "
            f"| {figures['p99_ms']['median']:.2f} | {figures['cpu_ms']['median']:.2f} |"
        )
    lines += [f"| {name} | not measured: {reason} | | | |" for name, reason in found["speed"]["skipped"].items()]
    lines += ["", "| attack | in one warm interpreter, AZR style | populora |", "|---|---|---|"]
    for name, judges in found["attacks"].items():
        lines.append(f"| {name} | {outcome(judges['in_process'])} | {outcome(judges['populora'])} |")
    return "\n".join(lines) + "\n"


def outcome(judge: dict[str, Any]) -> str:
    return f"{'**yes**' if judge['gets_through'] else 'no'} ({judge['said']})"
