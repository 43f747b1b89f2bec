"""One PopuLoRA step, top-down, in the paper's five phases (section 3.3). The loop around it is `populora.training.loop`.

Deviations and readings:

- A student trains on the rho samples of at most ``prompts_per_type`` (or ``train_problems``) problems of each type (readings 3, 4).
- Problems from the buffer fill its batch when its teacher gave too few (reading 5).
- References come from the buffer as it was when the step began (reading 8).

The single-agent AZR baseline runs the same step with one member that meets itself. rho is then the agent's own solve rate (the paper's
self-calibration), the rollouts of both roles train the one adapter, and there are neither ratings nor evolution. With
``selfplay.previous_step_attempts`` it solves problems of the step before, as in Absolute Zero's code.
"""

from collections.abc import Callable, Sequence

from populora.core.types import Kind, Proposal
from populora.runs.step_record import StepRecord
from populora.training.evaluation import evaluate_if_due
from populora.training.evolution import evolve_if_due
from populora.training.matchmaking import match
from populora.training.population import rate
from populora.training.rewards import CrossEvaluation, cross_evaluate
from populora.training.rollout import rollout
from populora.training.run import PhaseTimer, Run
from populora.training.train_rows import advantages_in_order, step_scales, train_rows


def selfplay_step(run: Run, announce: Callable[[str], None] = lambda phase: None) -> StepRecord:
    """Do one step and return its record. ``announce`` is called with the name of each phase when it begins."""
    step, config, timer = run.step + 1, run.config, PhaseTimer(announce)

    # (1) Matchmaking: each teacher meets one student, by PFSP over TrueSkill.
    with timer("matchmaking"):
        matchups = match(run.population, config, step)

    # (2) Teacher generation: the sandbox decides which proposals are valid. (3) Student solve: the matched student attempts every
    # valid problem of its teacher. The two phases overlap: no student waits until the last teacher is done.
    announce("propose and solve")
    rollouts = rollout(run, step, matchups)

    # (4) Cross-evaluation and update: rewards, one mixed batch, one optimiser step per member, ratings.
    outcome = cross_evaluate(config, matchups, rollouts.proposals, rollouts.attempts, rollouts.trained)
    with timer("update"):
        rows = train_rows(config.learner, run.population, rollouts, outcome)
        updates = run.learner.update(rows, step_scales(config.learner, run.population, step))
    with timer("publish"):
        run.sync_weights(slot for slot, update in updates.items() if not update.skipped)
    run.population = rate(run.population, outcome.matchups, config.league)
    with timer("store"):
        repeats = store_problems(run, rollouts.proposals, outcome)
    with timer("evaluate"):  # before evolution: a child that has not trained yet is not its parent's result
        held_out = evaluate_if_due(run, step)
    members = run.population.members  # those of this step, also where children replace them

    # (5) Evolution: every k steps the weakest of each role are replaced by children of the strongest.
    with timer("evolve"):
        evolution = evolve_if_due(run, step)

    run.step = step
    teacher_advantages, student_advantages = advantages_in_order(rows, outcome)
    trained_tokens = sum(update.tokens for update in updates.values() if not update.skipped)
    return StepRecord(
        step=step,
        matchups=outcome.matchups,
        proposals=tuple(rollouts.proposals),
        attempts=tuple(rollouts.attempts),
        teacher_rewards=outcome.teacher_rewards,
        teacher_advantages=teacher_advantages,
        rhos=outcome.rhos,
        student_rewards=outcome.student_rewards,
        student_advantages=student_advantages,
        trained=outcome.trained,
        members=members,
        updates={member.id: updates[member.slot] for member in members if member.slot in updates},
        evolution=evolution,
        seconds={**rollouts.seconds, **timer.seconds},
        overlapped=rollouts.verification_seconds,
        tokens={**rollouts.tokens, "update": trained_tokens},
        coverage=coverage_of(run),
        repeats=repeats,
        held_out=held_out,
        domains=config.domains,
    )


def store_problems(run: Run, proposals: Sequence[Proposal], outcome: CrossEvaluation) -> frozenset[str]:
    """Put valid problems into the buffer, and the programs that were written into their domain's archive. Remove void problems.

    Counts each author's valid proposals of each type, and its rewards, for culling. Returns the ids of problems whose program the buffer
    already held.
    """
    run.buffer.discard(outcome.void)
    repeats: set[str] = set()
    written: dict[str, list[tuple[int, ...]]] = {domain: [] for domain in run.archives}
    for proposal, reward in zip(proposals, outcome.teacher_rewards, strict=True):
        if reward is not None:
            total, number = run.reward_sums.get(proposal.author, (0.0, 0))
            run.reward_sums[proposal.author] = [total + reward, number + 1]
        valid = proposal.problem is not None and proposal.problem.id not in outcome.void
        counts = run.valid_counts.setdefault(proposal.author, {}).setdefault(proposal.task, [0, 0])
        counts[0] += valid
        counts[1] += 1
        if valid and proposal.problem and proposal.measures:
            if not run.buffer.add(proposal.problem, proposal.measures.fingerprint):
                repeats.add(proposal.problem.id)
            if proposal.task.kind is not Kind.PROGRAM:
                written[proposal.task.domain].append(proposal.measures.values)
    for domain, archive in run.archives.items():
        archive.add(written[domain])
    return frozenset(repeats)


def coverage_of(run: Run) -> dict[str, float]:
    """Return the summary of the run's archive, or of each archive as ``name/domain`` where there are several domains."""
    if len(run.archives) == 1:
        return next(iter(run.archives.values())).summary()
    return {f"{name}/{domain}": value for domain, archive in run.archives.items() for name, value in archive.summary().items()}
