"""A complete small co-evolution with its loop in sight: two teachers, two students, the tiny base, five phases a step (paper, section 3.3).

    python examples/loop.py            12 steps of the preset `tiny`, about two minutes on two CPU cores

`populora train tiny --steps 12` gives the same adapters. It adds checkpoints, logs, a display, held-out evaluation, and the check that
sampler and learner have the same adapters.
"""

import sys
from dataclasses import replace
from pathlib import Path

from populora.adapters.adapter import Adapter
from populora.core.config import Config
from populora.core.config_file import load_config
from populora.core.presets import settings_file
from populora.training.evolution import evolve_if_due
from populora.training.loop import build_run
from populora.training.matchmaking import match
from populora.training.population import rate
from populora.training.rewards import cross_evaluate
from populora.training.rollout import rollout
from populora.training.seed_buffer import fill_buffer
from populora.training.step import store_problems
from populora.training.train_rows import step_scales, train_rows


def co_evolve(config: Config) -> dict[str, Adapter]:
    """Train a population for ``config.steps`` steps. Returns the members' adapters by name."""
    with build_run(config) as run:  # base model, adapters, sampler, learner, sandbox, ratings, problem buffer
        fill_buffer(run)
        for step in range(1, config.steps + 1):
            # (1) Matchmaking: each teacher meets one student, by PFSP over TrueSkill.
            matchups = match(run.population, config, step)

            # (2) Teachers propose problems, which the sandbox validates, and (3) the matched students attempt them.
            rollouts = rollout(run, step, matchups)

            # (4) Rewards, one mixed batch, one optimiser step per member, ratings.
            outcome = cross_evaluate(config, matchups, rollouts.proposals, rollouts.attempts, rollouts.trained)
            rows = train_rows(config.learner, run.population, rollouts, outcome)
            updates = run.learner.update(rows, step_scales(config.learner, run.population, step))
            run.sync_weights()
            run.population = rate(run.population, outcome.matchups, config.league)
            store_problems(run, rollouts.proposals, outcome)

            # (5) Evolution: every few steps children of the strongest replace the weakest of each role.
            evolution = evolve_if_due(run, step)
            run.step = step

            rho = [value for value in outcome.rhos if value is not None]
            losses = " ".join(f"{update.loss:+.3f}" for update in updates.values())
            print(f"step {step}: {len(rho)} valid problems, solve rate {sum(rho) / max(len(rho), 1):.2f}, losses {losses}")
            for child in evolution.children:
                print(f"  {child.member} is now a child of {' and '.join(child.parent_names)} by {child.operator}")
        return {member.id: run.bank.adapter(member.slot) for member in run.population.members}


if __name__ == "__main__":
    settings = load_config(settings_file(sys.argv[1] if len(sys.argv) > 1 else "tiny"))
    members = co_evolve(replace(settings, steps=min(settings.steps, 12)))
    print(f"{Path(__file__).name}: trained {', '.join(members)}")
