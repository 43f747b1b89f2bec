"""Phases 2 and 3 of a step as one stream of the sampler: a student starts on its teacher's problems as soon as they are validated.

Verification runs beside the sampler, in threads that wait for the sandbox. When its verdicts are collected decides which responses
are decoded together, and so the last bits of their log-probabilities. ``selfplay.overlap`` says when: ``reproducible`` a fixed
number of the sampler's calls after the proposals were handed over, so that equal seeds give equal bytes; ``eager`` as soon as they
are there; ``off`` when there is nothing else to sample.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from populora.core.types import Attempt, Matchup, Member, Proposal, Request
from populora.training.propose import Ask, ask_proposers, usable
from populora.training.run import Run
from populora.training.solve import Task, offered, training_tasks

BATCH_CALLS = 8  # calls of the sampler whose results are verified together: one sandbox child reads many texts
LAG_CALLS = 24  # calls from there until the verdicts are collected: long enough for nearly all programs
Key = tuple[str | int, ...]


@dataclass(frozen=True)
class Played:
    """What came of phases 2 and 3, in the order of members, task types and prompts.

    ``trained`` are the (student, problem id) pairs that students train on. ``seconds`` are the sampler's by phase (shared out by
    tokens) and those it waited for verdicts; ``beside`` is what verification took meanwhile. ``tokens`` are those sampled by phase, and
    those of the prompts, each counted once for all its samples.
    """

    proposals: list[Proposal]
    attempts: list[Attempt]
    trained: set[tuple[str, str]]
    seconds: dict[str, float]
    beside: dict[str, float]
    tokens: dict[str, int]


def play(run: Run, step: int, matchups: Sequence[Matchup]) -> Played:
    """Teachers propose, the sandbox validates, matched students solve, the sandbox judges."""
    started = time.perf_counter()
    validation, judgement = _Verification(run.verifier.validate), _Verification(run.verifier.judge)
    stage = _Stage(run, step, matchups, validation, judgement)
    tokens: Counter[str] = Counter()
    try:
        for request, generations in run.stream(stage):
            phase = "propose" if request.key in stage.asks else "solve"
            tokens[phase] += sum(len(generation.tokens) for generation in generations)
            tokens[f"{phase}_prompts"] += len(generations[0].prompt_tokens)
            if phase == "propose":
                validation.add(request.key, stage.asks[request.key].entries(step, generations))
            else:
                judgement.add(request.key, stage.tasks[request.key].entries(generations))
        judgement.hand_over(stage.calls, at_once=True)
        while judgement.under_way:
            judgement.collect()
    finally:
        validation.close()
        judgement.close()
    waited = validation.waited + judgement.waited
    proposals, sampling = stage.proposals, time.perf_counter() - started - waited
    attempts = [attempt for key in stage.by_student() for attempt in judgement.results[key]]
    sampled = max(tokens["propose"] + tokens["solve"], 1)
    seconds = {phase: sampling * tokens[phase] / sampled for phase in ("propose", "solve")}
    beside = {"validate": validation.seconds, "judge": judgement.seconds}
    return Played(proposals, attempts, stage.trained, {**seconds, "wait": waited}, beside, dict(tokens))


class _Verification:
    """One kind of verification beside the sampler, batch by batch in its own thread; ``results`` are collected by request."""

    def __init__(self, verify: Callable[[list[Any]], list[Any]]):
        self._verify = verify
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="verify")
        self._fresh: list[tuple[Key, list[Any]]] = []
        self.under_way: deque[tuple[int, Future[dict[Key, list[Any]]]]] = deque()
        """Batches, with the call at which each was handed over."""
        self.results: dict[Key, list[Any]] = {}
        self.seconds = self.waited = 0.0

    def add(self, key: Key, entries: list[Any]) -> None:
        """The entries of one request, for the next batch."""
        self._fresh.append((key, entries))

    def hand_over(self, call: int, at_once: bool = False) -> None:
        """Verify what is fresh, if it is time."""
        if self._fresh and (at_once or call % BATCH_CALLS == 0):
            self.under_way.append((call, self._thread.submit(self._verified, self._fresh)))
            self._fresh = []

    def collect(self) -> dict[Key, list[Any]]:
        """Results of the oldest batch; waits for them."""
        started = time.perf_counter()
        found = self.under_way.popleft()[1].result()
        self.waited += time.perf_counter() - started
        self.results |= found
        return found

    def close(self) -> None:
        """Drop what has not begun; what is being verified ends with the sandbox."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _verified(self, batch: list[tuple[Key, list[Any]]]) -> dict[Key, list[Any]]:
        started = time.perf_counter()
        found = iter(self._verify([entry for _, entries in batch for entry in entries]))
        results = {key: [next(found) for _ in entries] for key, entries in batch}
        self.seconds += time.perf_counter() - started
        return results


class _Stage:
    """The sampler's feed: the proposers' prompts, then the problems that come of them, then what fills the students' batches."""

    def __init__(self, run: Run, step: int, matchups: Sequence[Matchup], validation: _Verification, judgement: _Verification):
        self._run, self._step, self._matchups = run, step, matchups
        self._validation, self._judgement = validation, judgement
        self._students: dict[str, Member] = {matchup.teacher: run.population.get(matchup.student) for matchup in matchups}
        self.asks: dict[Key, Ask] = {ask.request.key: ask for ask in ask_proposers(run, step)}
        self.tasks: dict[Key, Task] = {}
        self.trained: set[tuple[str, str]] = set()
        self.calls = 0
        self._proposals: dict[Key, list[Proposal]] = {}
        self._ready = [ask.request for ask in self.asks.values()]
        self._filled = False

    @property
    def proposals(self) -> list[Proposal]:
        """All proposals so far, by proposer, task type and prompt."""
        return [proposal for key in self.asks for proposal in self._proposals.get(key, ())]

    def take(self, idle: bool) -> Sequence[Request]:
        """See `populora.engine.sampling.protocol.Feed`."""
        self.calls += 1
        for verification in (self._validation, self._judgement):
            verification.hand_over(self.calls, at_once=idle)
        while self._validation.under_way and (self._is_due(idle) or (idle and not self._ready)):
            for key, proposals in self._validation.collect().items():
                self._proposals[key] = usable(self._run, proposals)
                self._offer(Task(self._students[p.author], p.problem, False) for p in self._proposals[key] if p.problem)
        if not self._filled and len(self._proposals) == len(self.asks):
            self._fill()
        ready, self._ready = self._ready, []
        return ready

    def by_student(self) -> list[Key]:
        """Keys of all tasks: by student, its teachers' problems in the order of the proposals, then what fills its batch."""
        places = {student.id: place for place, student in enumerate(self._run.population.solvers)}
        numbers = {proposal.problem.id: number for number, proposal in enumerate(self.proposals) if proposal.problem}
        return sorted(
            self.tasks, key=lambda key: (places[self.tasks[key].student.id], numbers.get(self.tasks[key].problem.id, len(numbers)))
        )

    def _is_due(self, idle: bool) -> bool:
        call, future = self._validation.under_way[0]
        match self._run.config.selfplay.overlap:
            case "reproducible":
                return self.calls >= call + LAG_CALLS
            case "eager":
                return future.done()
            case "off":
                return idle

    def _offer(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            request = task.request(self._run, self._step)
            self.tasks[request.key] = task
            self._ready.append(request)

    def _fill(self) -> None:
        """All proposals are in: what each student trains on, and problems from the buffer where they are too few."""
        self._filled = True
        for student in self._run.population.solvers:
            chosen, filled = training_tasks(self._run, self._step, student, offered(student, self._matchups, self.proposals))
            self._offer(filled)
            self.trained |= {(student.id, problem.id) for problem in (*chosen, *(task.problem for task in filled))}
