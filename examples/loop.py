"""A complete small co-evolution with its loop in sight: two teachers, two students, the tiny base, five phases a step (paper, section 3.3).

    python examples/loop.py            about two minutes on two CPU cores

`populora train` does the same with checkpoints, logs and a display around it, and gives the same adapters for the same settings and seed.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from populora.adapters.adapter import Adapter
from populora.core.config import Config
from populora.core.config_file import load_config
from populora.core.presets import settings_file
from populora.training.batch import train_rows
from populora.training.cross_evaluation import cross_evaluate, rate
from populora.training.loop import prepared, seeded
from populora.training.propose import measure
from populora.training.rollout import play
from populora.training.step import evolve_if_due, match, store


def co_evolve(config: Config) -> dict[str, Adapter]:
    """Train a population for ``config.steps`` steps. Returns the members' adapters by name."""
    with prepared(config) as run:  # base model, adapters, sampler, learner, sandbox, ratings, problem buffer
        seeded(run)
        for step in range(1, config.steps + 1):
            # (1) Matchmaking: each teacher meets one student, by PFSP over TrueSkill.
            matchups = match(run, step)

            # (2) Teachers propose problems, which the sandbox validates, and (3) the matched students attempt them.
            rollouts = play(run, step, matchups)

            # (4) Rewards, one mixed batch, one optimiser step per member, ratings.
            outcome = cross_evaluate(run.config, matchups, rollouts.proposals, rollouts.attempts, rollouts.trained)
            updates = run.learner.update(train_rows(run, rollouts.proposals, rollouts.attempts, outcome))
            run.publish()
            run.population = rate(run.population, outcome.matchups, config.league)
            store(run, rollouts.proposals, rollouts.attempts, measure(run, rollouts.proposals), outcome)

            # (5) Evolution: every few steps children of the strongest replace the weakest of each role.
            children = evolve_if_due(run, step)
            run.publish()
            run.step = step

            rho = [value for value in outcome.rhos if value is not None]
            losses = " ".join(f"{update.loss:+.3f}" for update in updates.values())
            print(f"step {step}: {len(rho)} valid problems, solve rate {sum(rho) / max(len(rho), 1):.2f}, losses {losses}")
            for child in children:
                print(f"  {child.member} is now a child of {' and '.join(child.parents)} by {child.operator}")
        return {member.id: run.bank.adapter(member.slot) for member in run.population.members}


if __name__ == "__main__":
    settings = load_config(settings_file(sys.argv[1] if len(sys.argv) > 1 else "tiny"))
    members = co_evolve(replace(settings, steps=min(settings.steps, 12)))
    print(f"{Path(__file__).name}: trained {', '.join(members)}")
