"""Read `protocol.toml`, and lay out the runs that it asks for."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROTOCOL: dict[str, Any] = tomllib.loads(Path(__file__).with_name("protocol.toml").read_text(encoding="utf-8"))

VALIDATION, VERDICTS = ("validation",), ("test", "transfer", "validation")
IN_SOUP = 4
"""Adapters of a soup."""
OF_A_POPULATION = ("population.", "evolution.", "league.", "learner.teacher_learning_rate")
"""What the names of settings begin with that a single agent has no use for."""


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
    def suites(self) -> tuple[str, ...]:
        """Name the suites that the run's solvers answer."""
        return suites_of(self.arm)

    def flags(self) -> list[str]:
        """Return the command-line flags of the settings."""
        return [word for name, value in self.settings.items() for word in _flag(name, value)]


@dataclass(frozen=True)
class PlannedSoup:
    """One adapter from several, which are PEFT folders ``RUN/MEMBER`` below the campaign's. Its ``name`` is that of its file."""

    arm: str
    adapters: tuple[str, ...]

    @property
    def runs(self) -> list[str]:
        """Name the runs that made the adapters."""
        return list(dict.fromkeys(adapter.rpartition("/")[0] for adapter in self.adapters))

    @property
    def name(self) -> str:
        """End in the seed of the first run."""
        return f"{self.arm}-{self.runs[0].rpartition('-')[2]}"


def planned_soups() -> list[PlannedSoup]:
    """List the soups of the verdicts, then those of the confirmation's cured students."""
    parts = {arm: (part["adapters"], part["members"], part["seeds"]) for arm, part in PROTOCOL["soups"].items()}
    cured = "confirmation/cured"
    parts[f"{cured}_soup"] = (f"{cured}-{{seed}}/{{member}}", PROTOCOL["soups"]["students"]["members"], PROTOCOL["confirmation"]["seeds"])
    soups: list[PlannedSoup] = []
    for arm, (template, members, seeds) in parts.items():
        adapters = [template.format(seed=seed, member=member) for seed in seeds for member in members]
        soups += [PlannedSoup(arm, tuple(adapters[start : start + IN_SOUP])) for start in range(0, len(adapters), IN_SOUP)]
    return soups


def suites_of(arm: str) -> tuple[str, ...]:
    """Name the suites that an arm's solvers answer. Those of the verdicts see the test suites, the confirmation the held-back one."""
    return {"pilot": VALIDATION, "ideas": VALIDATION, "confirmation": ("held_back",)}.get(arm.partition("/")[0], VERDICTS)


def planned_runs(rates: Mapping[str, float]) -> list[Planned]:
    """List all runs in the protocol's order. ``rates`` are the pilot's, by arm of the pilot."""
    arms, order = PROTOCOL["arms"], PROTOCOL["order"]["arms"]
    most = max(arm["seeds"] for arm in arms.values())
    return [
        Planned(name, seed, settings_of(name, rates[family_of(name)], PROTOCOL["steps"]))
        for group in order
        for seed in range(most)
        for name in group
        if seed < arms[name]["seeds"]
    ]


def pilot_runs() -> list[Planned]:
    """List the runs that choose the learning rates. The rate is part of the arm's name."""
    pilot = PROTOCOL["pilot"]
    return [
        Planned(f"pilot/{arm}-{rate:g}", seed, settings_of(arm, rate, pilot["steps"]))
        for seed in pilot["seeds"]
        for arm, rates in pilot["rates"].items()
        for rate in rates
    ]


def idea_runs(rates: Mapping[str, float]) -> list[Planned]:
    """List the runs of the ideas. They have seeds of their own."""
    ideas = PROTOCOL["ideas"]
    plain = settings_of("4t4s", rates["4t4s"], ideas["steps"])
    return [Planned(f"ideas/{name}", seed, plain | idea["settings"]) for seed in ideas["seeds"] for name, idea in ideas["arms"].items()]


def together_runs(rates: Mapping[str, float], taken: Sequence[str]) -> list[Planned]:
    """List the runs of the ideas that the rule puts together. There are none of a single idea."""
    settings = {**settings_of("4t4s", rates["4t4s"], PROTOCOL["ideas"]["steps"]), **cure_of(taken)}
    return [Planned("ideas/together", seed, settings) for seed in PROTOCOL["ideas"]["seeds"] if len(taken) > 1]


def control_runs(names: Sequence[str]) -> list[Planned]:
    """List the runs that choose the learning rate of the confirmation's agent. The rate is part of the arm's name."""
    part = PROTOCOL["confirmation"]["control"]
    return [
        Planned(f"ideas/agent_x4-{rate:g}", seed, control_settings("agent_x4", rate, names))
        for seed in part["seeds"]
        for rate in part["rates"]
    ]


def confirmation_runs(rates: Mapping[str, float], names: Sequence[str]) -> list[Planned]:
    """List the runs that confirm the cure of these ideas. ``rates`` has that of the agent as ``control``."""
    part = PROTOCOL["confirmation"]
    plain = settings_of("4t4s", rates["4t4s"], part["steps"])
    arms = {"4t4s": plain, "agent_x4": control_settings("agent_x4", rates["control"], names), "cured": {**plain, **cure_of(names)}}
    arms["agent"] = control_settings("agent", rates["agent"], names)
    return [Planned(f"confirmation/{arm}", seed, settings) for seed in part["seeds"] for arm, settings in arms.items()]


def control_settings(arm: str, rate: float, names: Sequence[str]) -> dict[str, Any]:
    """Return the settings of an agent of the confirmation: of the cure, those that a single agent has a use for, and `agent_x4` has four
    times the sizes."""
    part, cure, times = PROTOCOL["confirmation"], cure_of(names), 4 if arm == "agent_x4" else 1
    settings = settings_of(arm, rate, part["steps"]) | part["control"]["settings"]
    settings |= {name: value for name, value in cure.items() if not name.startswith(OF_A_POPULATION)}
    return settings | {name: times * cure[name] for name in ("selfplay.prompts_per_type", "selfplay.train_problems") if name in cure}


def cure_of(names: Sequence[str]) -> dict[str, Any]:
    """Merge the settings of ideas."""
    return {setting: value for name in names for setting, value in PROTOCOL["ideas"]["arms"][name]["settings"].items()}


def family_of(arm: str) -> str:
    """Return the arm of the pilot whose learning rate an arm takes."""
    if arm in PROTOCOL["pilot"]["rates"]:
        return arm
    return "agent" if PROTOCOL["arms"][arm]["settings"].get("population.single_agent") else "4t4s"


def settings_of(arm: str, rate: float, steps: int) -> dict[str, Any]:
    """Return everything that a run has beside its preset and seed."""
    return {**PROTOCOL["settings"], **PROTOCOL["arms"][arm]["settings"], "learner.learning_rate": rate, "steps": steps}


def _flag(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    if value is True:
        return [flag]
    return [flag, *map(str, value)] if isinstance(value, list) else [flag, str(value)]
