"""Phases 2 and 3 of a step: teachers propose, the sandbox validates, matched students solve, the sandbox judges.

`_rollout_in_phases` is the reference: each phase ends before the next begins (``selfplay.overlap = "off"``). The overlapped path
samples everything in one stream, in which a student starts on its teacher's problems as soon as they are validated, and verifies in
background threads. The time at which verdicts are collected decides which responses are decoded together, and with most samplers
therefore the last bits of their log-probabilities. There ``reproducible`` collects a fixed number of the sampler's calls after the
proposals were submitted, so that equal seeds give equal bytes. With other samplers, and with ``eager``, verdicts are collected as soon as
they are there. All three sample the same texts.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any

from populora.core.types import Attempt, Generation, Matchup, Proposal, Request
from populora.tasks.attempts import SolveRequest
from populora.tasks.proposals import ProposalRequest
from populora.training.propose import proposal_requests
from populora.training.run import PhaseTimer, Run
from populora.training.solve import student_request, student_requests

BATCH_REQUESTS, BATCH_CALLS = 16, 64  # answered requests, or calls of the sampler, that end a batch: one sandbox child verifies many texts
BATCHES = 4  # batches of one kind that are verified beside those that wait for a slow program: one for each of the sandbox's workers
LAG_CALLS = 24  # calls from there until the verdicts are collected: long enough for nearly all programs
TOKENS = attrgetter("tokens")
Key = tuple[str | int, ...]
Responses = list[tuple[Any, list[Generation]]]
"""Requests with their generations, as the sampler yields them."""


@dataclass(frozen=True)
class Rollouts:
    """Proposals and attempts of a step, in the order of members, task types and prompts."""

    proposals: list[Proposal]
    attempts: list[Attempt]
    trained: set[tuple[str, str]]
    """The (student, problem id) pairs that students train on."""
    tokens: dict[str, int]
    """Sampled tokens by phase, and prompt tokens, each prompt counted once for all its samples."""
    seconds: dict[str, float]
    """The sampler's seconds by phase, and ``wait``, those in which it waited for verdicts."""
    verification_seconds: dict[str, float]
    """Seconds of validation and judgement, most of them overlapped with sampling."""


def rollout(run: Run, step: int, matchups: Sequence[Matchup]) -> Rollouts:
    """Sample and validate the proposals of a step, then sample and judge the attempts of the matched students."""
    return (_rollout_in_phases if run.config.selfplay.overlap == "off" else _rollout_overlapped)(run, step, matchups)


def _rollout_in_phases(run: Run, step: int, matchups: Sequence[Matchup]) -> Rollouts:
    timer = PhaseTimer()
    with timer("propose"):
        proposed = run.sample(proposal_requests(run, step))
    with timer("validate"):
        proposals = list(chain.from_iterable(run.verifier.validate(proposed)))
    requests, trained = student_requests(run, step, matchups, proposals)
    with timer("solve"):
        solved = run.sample(requests)
    with timer("judge"):
        attempts = list(chain.from_iterable(run.verifier.judge(solved)))
    verification = {phase: timer.seconds[phase] for phase in ("validate", "judge")}
    seconds = {"propose": timer.seconds["propose"], "solve": timer.seconds["solve"], "wait": sum(verification.values())}
    return Rollouts(proposals, attempts, trained, _count_tokens([*proposed, *solved]), seconds, verification)


def _rollout_overlapped(run: Run, step: int, matchups: Sequence[Matchup]) -> Rollouts:
    started = time.perf_counter()
    feed = RolloutFeed(run, step, matchups)
    responses: Responses = []
    try:
        for request, generations in run.stream(feed):
            responses.append((request, generations))
            verifier = feed.validation if isinstance(request, ProposalRequest) else feed.judgement
            verifier.add(request, generations)
        feed.judgement.submit(feed.calls)
        while feed.judgement.pending:
            feed.judgement.collect()
    finally:
        feed.validation.close()
        feed.judgement.close()
    attempts = [attempt for request in feed.solve_requests for attempt in feed.judgement.results[request.key]]
    tokens, waited = _count_tokens(responses), feed.validation.waited + feed.judgement.waited
    sampling = time.perf_counter() - started - waited
    shares = {phase: tokens[phase] / max(tokens["propose"] + tokens["solve"], 1) for phase in ("propose", "solve")}
    seconds = {**{phase: sampling * share for phase, share in shares.items()}, "wait": waited}
    verification = {"validate": feed.validation.busy.seconds, "judge": feed.judgement.busy.seconds}
    return Rollouts(feed.proposals, attempts, feed.trained, tokens, seconds, verification)


def _count_tokens(responses: Responses) -> dict[str, int]:
    tokens = Counter[str]()
    for request, generations in responses:
        phase = "propose" if isinstance(request, ProposalRequest) else "solve"
        tokens[phase] += sum(map(len, map(TOKENS, generations)))
        tokens[f"{phase}_prompts"] += len(generations[0].prompt_tokens)
    return tokens


class BusyClock:
    """Counts the ``seconds`` during which at least one thread is inside the block."""

    def __init__(self) -> None:
        self.seconds = self._since = 0.0
        self._inside = 0
        self._changing = threading.Lock()

    def __enter__(self) -> None:
        with self._changing:
            self._since = self._since if self._inside else time.perf_counter()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._changing:
            self._inside -= 1
            self.seconds += 0.0 if self._inside else time.perf_counter() - self._since


class BackgroundVerifier:
    """Runs one kind of verification in its own threads. There are enough for ``workers`` of the sandbox to be kept by slow programs.
    ``results`` are by the key of the request."""

    def __init__(self, verify: Callable[[Responses], list[list[Any]]], workers: int):
        self._verify = verify
        self._threads = ThreadPoolExecutor(workers + BATCHES, thread_name_prefix="verify")
        self._batch: Responses = []
        self.pending: deque[tuple[int, Future[dict[Key, list[Any]]]]] = deque()
        """Batches under way, each with the number of the call at which it was submitted."""
        self.results: dict[Key, list[Any]] = {}
        self.busy, self.waited = BusyClock(), 0.0

    def add(self, request: Request, generations: list[Generation]) -> None:
        """Put the responses of one request into the next batch."""
        self._batch.append((request, generations))

    @property
    def waiting(self) -> int:
        """Requests in the next batch."""
        return len(self._batch)

    def submit(self, call: int) -> None:
        """Start to verify the batch."""
        if self._batch:
            self.pending.append((call, self._threads.submit(self._timed, self._batch)))
            self._batch = []

    def collect(self, in_any_order: bool = False) -> dict[Key, list[Any]]:
        """Wait for the oldest batch, or for the first that is done, and return its results."""
        started, number = time.perf_counter(), 0
        if in_any_order:
            wait((verdicts for _, verdicts in self.pending), return_when=FIRST_COMPLETED)
            number = next(number for number, (_, verdicts) in enumerate(self.pending) if verdicts.done())
        results = self.pending[number][1].result()
        del self.pending[number]
        self.waited += time.perf_counter() - started
        self.results |= results
        return results

    def close(self) -> None:
        """Drop the batches that have not begun; those under way end with the sandbox."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _timed(self, batch: Responses) -> dict[Key, list[Any]]:
        with self.busy:
            return {request.key: result for (request, _), result in zip(batch, self._verify(batch), strict=True)}


class RolloutFeed:
    """The sampler's source of requests: proposers' prompts, then validated problems, then problems that fill the students' batches."""

    def __init__(self, run: Run, step: int, matchups: Sequence[Matchup]):
        self._run, self._step, self._matchups = run, step, matchups
        self._students = {matchup.teacher: run.population.get(matchup.student) for matchup in matchups}
        self._proposal_requests = proposal_requests(run, step)
        self._ready: list[Request] = [*self._proposal_requests]
        self._offered: dict[str, SolveRequest] = {}
        self._complete = False
        self.collects_at_once = run.config.selfplay.overlap == "eager" or run.sampler.independent
        cluster, workers = run.config.cluster, run.config.sandbox.workers
        workers *= cluster.verifiers if cluster.learners else 1
        self.validation = BackgroundVerifier(run.verifier.validate, workers)
        self.judgement = BackgroundVerifier(run.verifier.judge, workers)
        self.calls = 0
        # Known when all proposals are validated, in the order of `_rollout_in_phases`:
        self.proposals, self.solve_requests, self.trained = [], [], set()

    def next(self, block: bool) -> Sequence[Request]:
        """See `populora.engine.sampling.sampler.RequestSource`."""
        self.calls += 1
        for verifier in (self.validation, self.judgement):
            if block or self.calls % BATCH_CALLS == 0 or verifier.waiting >= BATCH_REQUESTS:
                verifier.submit(self.calls)
        while self.validation.pending and (self._is_due() or (block and not self._ready)):
            self._offer(self.validation.collect(self.collects_at_once))
        if not self._complete and len(self.validation.results) == len(self._proposal_requests):
            self._finish()
        ready, self._ready = self._ready, []
        return ready

    def _is_due(self) -> bool:
        if self.collects_at_once:
            return any(verdicts.done() for _, verdicts in self.validation.pending)
        return self.calls >= self.validation.pending[0][0] + LAG_CALLS

    def _offer(self, validated: dict[Key, list[Proposal]]) -> None:
        """Let the matched students attempt these problems."""
        for proposal in chain.from_iterable(validated.values()):
            if proposal.problem:
                student, problem = self._students[proposal.author], proposal.problem
                self._offered[problem.id] = request = student_request(self._run, self._step, student, problem)
                self._ready.append(request)

    def _finish(self) -> None:
        """Fill the students' batches, as all proposals are validated."""
        self._complete = True
        self.proposals = [proposal for request in self._proposal_requests for proposal in self.validation.results[request.key]]
        self.solve_requests, self.trained = student_requests(self._run, self._step, self._matchups, self.proposals, self._offered)
        self._ready += [request for request in self.solve_requests if request.from_buffer]
