"""Read `protocol.toml`, and lay out the runs that it asks for."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROTOCOL: dict[str, Any] = tomllib.loads(Path(__file__).with_name("protocol.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Planned:
    """A run of the campaign. Its ``name`` is that of its files, such as ``4t4s-0``; runs before or beside the verdicts have a folder."""

    arm: str
    seed: int
    settings: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.arm}-{self.seed}"

    @property
    def for_verdicts(self) -> bool:
        """Tell whether the run answers the suites of the verdicts. Others answer the validation suite alone."""
        return "/" not in self.arm

    def flags(self) -> list[str]:
        """Return the command-line flags of the settings."""
        return [word for name, value in self.settings.items() for word in _flag(name, value)]


def planned_runs(rates: dict[str, float]) -> list[Planned]:
    """List all runs in the protocol's order. ``rates`` are the pilot's, by arm of the pilot."""
    arms, order = PROTOCOL["arms"], PROTOCOL["order"]["arms"]
    most = max(arm["seeds"] for arm in arms.values())
    return [
        Planned(name, seed, settings_of(name, rates[family_of(name)], PROTOCOL["steps"]))
        for seed in range(most)
        for name in order
        if seed < arms[name]["seeds"]
    ]


def pilot_runs() -> list[Planned]:
    """List the runs that choose the learning rates. The seed is part of the arm's name together with the rate."""
    pilot = PROTOCOL["pilot"]
    return [
        Planned(f"pilot/{arm}-{rate:g}", seed, settings_of(arm, rate, pilot["steps"]))
        for seed in pilot["seeds"]
        for arm in pilot["arms"]
        for rate in pilot["rates"]
    ]


def idea_runs(rates: dict[str, float]) -> list[Planned]:
    """List the runs of the ideas, and of the arms that they are compared with. They have seeds of their own."""
    ideas, steps = PROTOCOL["ideas"], PROTOCOL["ideas"]["steps"]
    settings = {name: settings_of(name, rates[family_of(name)], steps) for name in ideas["references"]}
    settings |= {name: {**settings["4t4s"], **idea["settings"]} for name, idea in ideas["arms"].items()}
    return [Planned(f"ideas/{name}", seed, of_arm) for seed in ideas["seeds"] for name, of_arm in settings.items()]


def family_of(arm: str) -> str:
    """Return the arm of the pilot whose learning rate an arm takes."""
    return "agent" if PROTOCOL["arms"][arm]["settings"].get("population.single_agent") else "4t4s"


def settings_of(arm: str, rate: float, steps: int) -> dict[str, Any]:
    """Return everything that a run has beside its preset and seed."""
    return {**PROTOCOL["settings"], **PROTOCOL["arms"][arm]["settings"], "learner.learning_rate": rate, "steps": steps}


def _flag(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    if value is True:
        return [flag]
    return [flag, *map(str, value)] if isinstance(value, list) else [flag, str(value)]
