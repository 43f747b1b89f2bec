"""The single-agent AZR baseline: one adapter proposes and solves. Same step, settings and metrics as the population.

It is the step of ``training/step.py`` with one member that meets itself: rho is the agent's own solve rate (what the paper calls
self-calibration), both roles' rollouts train the one adapter, and neither ratings nor evolution exist. Per step the agent
sees a teacher's prompts and a student's problems, the sequences of two members (docs/decisions.md).
"""

from __future__ import annotations

from populora.core.types import Matchup
from populora.training.population import Population


def self_matchup(population: Population) -> list[Matchup]:
    """The agent against itself; an expectation of one half is never used, since no game is rated."""
    agent = population.members[0]
    return [Matchup(agent.id, agent.id, expected=0.5)]
