"""One PopuLoRA step, top-down, in the paper's five phases (section 3.3); the loop around it is ``training/loop.py``.

Deviations and readings: a student trains on the rho samples of at most ``prompts_per_type`` problems a type (readings 3, 4),
filled from the buffer when its teacher gave too few (reading 5); references come from the buffer as it was when the step
began (reading 8). The baseline runs this very step with one member that meets itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager

from populora.adapters.adapter import Adapter
from populora.core.rng import stream
from populora.core.types import Attempt, Lineage, Matchup, Proposal, TaskType
from populora.runs.step_record import StepRecord
from populora.sandbox.protocol import Measures
from populora.training.baseline import self_matchup
from populora.training.batch import train_rows
from populora.training.cross_evaluation import Outcome, cross_evaluate, rate
from populora.training.evolution import evolution_due, evolve
from populora.training.held_out import evaluation_due, held_out_accuracy
from populora.training.matchmaking import pair
from populora.training.propose import measure
from populora.training.rollout import play
from populora.training.run import Run


class PhaseClock:
    """Seconds per phase of a step; tells the display which phase runs."""

    def __init__(self, announce: Callable[[str], None], seconds: dict[str, float] | None = None):
        self.seconds = dict(seconds or {})
        self._announce = announce

    @contextmanager
    def phase(self, name: str):
        self._announce(name)
        started = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started


def selfplay_step(run: Run, announce: Callable[[str], None] = lambda phase: None) -> StepRecord:
    """One step: matchmaking, teacher generation, student solve, cross-evaluation and update, evolution."""
    step, clock = run.step + 1, PhaseClock(announce)
    # (1) Matchmaking: each teacher meets one student, by PFSP over TrueSkill.
    with clock.phase("matchmaking"):
        matchups = match(run, step)
    # (2) Teacher generation, the sandbox decides validity, and (3) student solve: the matched student attempts every valid problem of
    # its teacher. Both are one stream: no student waits until the last teacher is done.
    announce("propose and solve")
    played = play(run, step, matchups)
    clock.seconds |= played.seconds
    proposals, attempts = played.proposals, played.attempts
    # (4) Cross-evaluation and update: rewards, ratings, one mixed batch, one optimiser step per member.
    outcome = cross_evaluate(run.config, matchups, proposals, attempts, played.trained)
    with clock.phase("update"):
        updates = run.learner.update(train_rows(run, proposals, attempts, outcome))
    with clock.phase("publish"):
        run.publish(slot for slot, update in updates.items() if not update.skipped)
    run.population = rate(run.population, outcome.matchups, run.config.league)
    rated = run.population.members
    with clock.phase("store"):
        measures = measure(run, proposals)
        repeats = store(run, proposals, attempts, measures, outcome)
    held_out: dict[str, float] = {}
    if evaluation_due(run.config, step):  # before evolution: a child that has not trained yet is not its parent's result
        with clock.phase("evaluate"):
            held_out = held_out_accuracy(run)
    # (5) Evolution: every k steps the weakest of each role are replaced by children of the strongest.
    with clock.phase("evolve"):
        children = evolve_if_due(run, step)
        run.publish(member.slot for member in run.population.members if member.lineage in children)
    run.step = step
    trained = sum(update.tokens for update in updates.values() if not update.skipped)
    return StepRecord(
        step=step,
        matchups=outcome.matchups,
        proposals=tuple(proposals),
        attempts=tuple(attempts),
        teacher_rewards=outcome.teacher_rewards,
        rhos=outcome.rhos,
        student_rewards=outcome.student_rewards,
        trained=outcome.trained,
        measures=measures,
        members=rated,
        updates={member.id: updates[member.slot] for member in rated if member.slot in updates},
        children=children,
        parents=parents_of(run, children),
        seconds=clock.seconds,
        beside=played.beside,
        tokens={**played.tokens, "update": trained},
        coverage=run.archive.summary(),
        repeats=repeats,
        held_out=held_out,
    )


def match(run: Run, step: int) -> list[Matchup]:
    """The step's matchups; the single agent meets itself."""
    if run.config.population.single_agent:
        return self_matchup(run.population)
    rng = stream(run.config.seed, "matchmaking", step)
    return pair(run.population.proposers, run.population.solvers, run.config.league, rng)


def store(
    run: Run, proposals: Sequence[Proposal], attempts: Sequence[Attempt], measures: dict[str, Measures], outcome: Outcome
) -> frozenset[str]:
    """Valid problems enter the buffer, void ones leave it; programs of code_i and code_o enter the archive; validity is
    counted for culling. Returns the ids of the problems that the buffer held already."""
    repeats = set()
    run.buffer.discard({attempt.problem.id for attempt in attempts if attempt.void})
    for proposal, void in zip(proposals, outcome.void, strict=True):
        counts = run.valid_counts.setdefault(proposal.author, [0, 0])
        counts[0] += proposal.problem is not None
        counts[1] += 1
        if proposal.problem and not void:
            new = run.buffer.add(proposal.problem, measures[proposal.problem.id].fingerprint)
            if not new:
                repeats.add(proposal.problem.id)
    kept = [p for p, void in zip(proposals, outcome.void, strict=True) if not void]
    written = [p.problem.id for p in kept if p.problem and p.task is not TaskType.CODE_F]
    found = [measures[problem_id] for problem_id in written]
    run.archive.add([(m.ast_depth, m.cyclomatic, m.loc, m.variables) for m in found])
    return frozenset(repeats)


def evolve_if_due(run: Run, step: int) -> tuple[Lineage, ...]:
    """Breed and replace when the step is due; the lineages of the children."""
    if run.config.population.single_agent or not evolution_due(run.config, step):
        return ()
    rates = {author: valid / total for author, (valid, total) in run.valid_counts.items() if total}
    before = {member.id: member.lineage for member in run.population.members}
    run.population = evolve(run.population, run.bank, run.config, step, rates)
    run.valid_counts = {}
    return tuple(member.lineage for member in run.population.members if member.lineage != before[member.id])


def parents_of(run: Run, children: Sequence[Lineage]) -> dict[str, Adapter]:
    """Copies of the children's parents, which evolution has left as they were: without them no child could be bred again."""
    if not run.config.evolution.keep_parents:
        return {}
    named = {name for child in children for name in child.parent_names}
    return {member.lineage.name: run.bank.adapter(member.slot) for member in run.population.members if member.lineage.name in named}
