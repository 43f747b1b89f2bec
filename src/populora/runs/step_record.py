"""The record of one self-play step, from which logs, tables and display are made."""

from dataclasses import dataclass, field

from populora.core.types import Attempt, Lineage, Matchup, Member, Proposal, UpdateStats


@dataclass(frozen=True)
class Evolution:
    """Births and other results of an evolution. Empty in steps without one."""

    children: tuple[Lineage, ...] = ()
    parents: dict[str, int] = field(default_factory=dict[str, int])
    """Slots of the children's parents by name; empty where ``evolution.keep_parents`` is off."""
    spared: tuple[str, ...] = ()
    """Newborns in the bottom fraction, which stayed."""
    broken: tuple[str, ...] = ()
    """Teachers that made hardly any valid problem of some type."""


@dataclass(frozen=True)
class StepRecord:
    """Everything that happened in one step. ``teacher_…`` and ``rhos`` align with ``proposals``, ``student_…`` and ``trained`` with
    ``attempts``. Advantages have the weight of their role in them, and are None where nobody trained."""

    step: int
    matchups: tuple[Matchup, ...]
    proposals: tuple[Proposal, ...]
    attempts: tuple[Attempt, ...]
    teacher_rewards: tuple[float | None, ...]
    teacher_advantages: tuple[float | None, ...]
    rhos: tuple[float | None, ...]
    student_rewards: tuple[float, ...]
    student_advantages: tuple[float | None, ...]
    trained: tuple[bool, ...]
    members: tuple[Member, ...]
    updates: dict[str, UpdateStats]
    evolution: Evolution
    seconds: dict[str, float]
    """Wall clock by phase; in ``wait`` the sampler waited for verdicts."""
    overlapped: dict[str, float]
    """Seconds of the verification that overlapped with sampling."""
    tokens: dict[str, int]
    """By phase: sampled, those of the prompts (each once for all its samples), learned from."""
    coverage: dict[str, float]
    repeats: frozenset[str]
    """Ids of valid problems whose program the buffer held already."""
    held_out: dict[str, float]
    """Empty if no evaluation was due."""
    domains: tuple[str, ...]
    """Those of the run, also where one has no proposal in this step."""
