"""One PopuLoRA step, top-down, in the paper's five phases (section 3.3); the loop around it is ``training.py``.

Deviations and readings: a student trains on the rho samples of at most ``prompts_per_type`` problems a type (readings 3, 4),
filled from the buffer when its teacher gave too few (reading 5); references come from the buffer as it was when the step
began (reading 8). The baseline runs this very step with one member that meets itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from populora.baseline import self_matchup
from populora.batches import train_rows
from populora.crosseval import Outcome, cross_evaluate, rate
from populora.evolution import evolution_due, evolve
from populora.heldout import evaluation_due, held_out_accuracy
from populora.league.matchmaking import pair
from populora.learner.update import SlotUpdate
from populora.lora.adapter import Adapter
from populora.playing import play
from populora.proposing import measure
from populora.rng import stream
from populora.sandbox.protocol import Measures
from populora.state import Run
from populora.types import Attempt, Lineage, Matchup, Member, Proposal, TaskType


@dataclass(frozen=True)
class StepRecord:
    """Everything that happened in one step. ``teacher_rewards`` and ``rhos`` align with ``proposals``,
    ``student_rewards`` and ``trained`` with ``attempts``; ``measures`` are by problem id."""

    step: int
    matchups: tuple[Matchup, ...]
    proposals: tuple[Proposal, ...]
    attempts: tuple[Attempt, ...]
    teacher_rewards: tuple[float | None, ...]
    rhos: tuple[float | None, ...]
    student_rewards: tuple[float, ...]
    trained: tuple[bool, ...]
    measures: dict[str, Measures]
    members: tuple[Member, ...]
    updates: dict[str, SlotUpdate]
    children: tuple[Lineage, ...]
    parents: dict[str, Adapter]
    """What the children were bred from, by name; empty where none was born or ``evolution.keep_parents`` is off."""
    seconds: dict[str, float]
    """Wall clock by phase; ``wait`` is what the sampler waited for verdicts."""
    beside: dict[str, float]
    """Seconds of the verification that ran beside the sampler."""
    tokens: dict[str, int]
    """Tokens by phase: sampled, those of the prompts (each once for all its samples), learned from."""
    coverage: dict[str, float]
    repeats: frozenset[str]
    """Ids of valid problems whose program the buffer held already, from earlier steps or earlier in this one."""
    held_out: dict[str, float]
    """Empty where no evaluation was due."""


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
        step, outcome.matchups, tuple(proposals), tuple(attempts), outcome.teacher_rewards, outcome.rhos, outcome.student_rewards,
        outcome.trained, measures, rated, {m.id: updates[m.slot] for m in rated if m.slot in updates}, children, parents_of(run, children),
        clock.seconds, played.beside, {**played.tokens, "update": trained}, run.archive.summary(), repeats, held_out,
    )  # fmt: skip


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
