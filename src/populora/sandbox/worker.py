"""One worker of a pool: it runs programs in zygotes that differ in hash seed, address layout and clock, and compares the results.

It does a group of units at a time, and one child at a time: each zygote finds its next job waiting when it has done one. A lost zygote
is replaced and its job tried once more, then the verdict is ``internal``. A job whose child others killed is tried once more, too. A child
that ends before it is ready has not seen its program, most often because the machine stalled, and is started up to five times. A zygote
that has served long is replaced too.
"""

import os
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from operator import contains

from populora.core.errors import SandboxFault, SandboxUnavailableError
from populora.core.types import VerdictKind
from populora.sandbox.layers import Isolation
from populora.sandbox.process import ChildExit, Submission, Zygote, ZygoteLost
from populora.sandbox.protocol import Expected, Job, Limits, Verdict, decode_reply, encode_request, reply_bound, settle
from populora.sandbox.runner import PYTHON, Runner

_PAIR = (0, 1)
_IN_DOUBT = range(2, 8)
"""More zygotes for doubtful programs: two words of a set have the same order in two processes every other time, in eight
processes once in 128."""
_ATTEMPTS = 2
"""Attempts with a zygote that is lost, or a child that is killed."""
_STARTS = 5
"""Attempts in all, where the child is not ready within the limits of time."""
_SERVICE = 20_000
"""Jobs after which a zygote is replaced, as a bound on leaks."""
_SHARED = frozenset({"seccomp", "cpu", "wall", "signal", "exit_without_result", "memory"})
"""Reasons that one job of a child may have because of another."""
_CONTROL = Job("run", "def f(x):\n    return len([x] * 250_000)", ("1",))
"""Needs 2 MB beyond the interpreter: a memory limit below that would fail ordinary programs. (With 16 MB, a busy virtual machine
now and then took half a second of CPU time to hand the pages over.)"""


@dataclass(frozen=True)
class Unit:
    """The jobs of one child. ``twice`` compares two calls in each of two processes.

    A program in ``expected`` with other values in the first process is wrong whatever it returns in the second, so there is none, unless
    chance may be at work.
    """

    jobs: Sequence[Job]
    twice: bool = False
    expected: Expected = field(default_factory=dict)

    def needs_second(self, job: Job, first: Verdict) -> bool:
        """Tell whether a second process can change what follows from the first one's verdict."""
        if not self.twice or first.kind not in (VerdictKind.OK, VerdictKind.ERROR):
            return False
        if job not in self.expected or not first.ok or first.doubtful:
            return True
        matched = [value.comparables for value in first.values]
        return any(all(map(contains, matched, texts)) for texts in self.expected[job])


class Worker:
    """A pair of zygotes for each domain, and more of them from the first program that needs them. Those of Python wait for its first
    program, too, if there are other domains: a run of SQL has none.

    Domains have no zygote in common: what the runner of one imports is not there for the programs of another. Only `kill` may be called
    from another thread.
    """

    def __init__(self, isolation: Isolation, limits: Limits) -> None:
        self._isolation = isolation
        self._limits = limits
        self._runners: dict[str, Runner | None] = {PYTHON: None, **{runner.domain: runner for runner in limits.runners}}
        self._zygotes: dict[tuple[str, int], Zygote] = {}
        """By domain and index."""
        self.closing = False

    def start(self) -> None:
        domains = [runner.domain for runner in self._limits.runners] or [PYTHON]
        for domain, index in product(domains, _PAIR):
            self._zygotes[domain, index] = Zygote(self._isolation, self._limits, index, self._runners[domain])
        if domains == [PYTHON]:
            ((verdict,),) = self.judge([Unit([_CONTROL], twice=True)])
            if not verdict.ok:
                raise SandboxUnavailableError(
                    f"the sandbox does not run a harmless program under {self._limits}: {verdict.kind} {verdict.reason}. "
                    f"Raise the limits, or report the machine's layers: {self._isolation.report}"
                )
        for runner in self._limits.runners:
            job = Job("run", runner.control[0], runner.control[1:], domain=runner.domain)
            ((verdict,),) = self.judge([Unit([job], twice=True)])
            if not verdict.ok:
                program = f"its domain's identity program {job.program!r} on {job.texts[0]!r}"
                raise SandboxUnavailableError(f"{runner} does not run {program}: {verdict.kind} {verdict.reason}")

    def close(self) -> None:
        for zygote in self._zygotes.values():
            zygote.close()

    def kill(self) -> None:
        """Kill the running programs; `close` has to follow."""
        for zygote in list(self._zygotes.values()):
            zygote.kill()

    def judge(self, units: Sequence[Unit]) -> list[list[Verdict]]:
        """Run units of jobs. Returns their verdicts, in order. Raises `SandboxFault`."""
        verdicts = self._in_children(_PAIR[0], [unit.jobs for unit in units], [2 if unit.twice else 1 for unit in units])
        repeated: dict[int, list[int]] = {}
        for number, unit in enumerate(units):
            if places := [place for place, job in enumerate(unit.jobs) if unit.needs_second(job, verdicts[number][place])]:
                repeated[number] = places
        jobs = [[units[number].jobs[place] for place in places] for number, places in repeated.items()]
        second = self._in_children(_PAIR[1], jobs, [2] * len(jobs))
        for (number, places), of_unit in zip(repeated.items(), second, strict=True):
            for place, verdict in zip(places, of_unit, strict=True):
                verdicts[number][place] = self._settled(units[number].jobs[place], settle(verdicts[number][place], verdict))
        return verdicts

    def _in_children(self, index: int, units: Sequence[Sequence[Job]], calls: Sequence[int]) -> list[list[Verdict]]:
        """Run each unit in a child. Where one job may have failed because of another, all of them run again, each in its own child."""
        verdicts = self._attempt(index, units, calls)
        for number, jobs in enumerate(units):
            if len(jobs) > 1 and any(verdict.reason in _SHARED for verdict in verdicts[number]):
                verdicts[number] = [verdict for (verdict,) in self._attempt(index, [[job] for job in jobs], [calls[number]] * len(jobs))]
        return verdicts

    def _settled(self, job: Job, settled: Verdict) -> Verdict:
        """Compare with more processes, if the agreement of two may be luck."""
        for index in _IN_DOUBT if settled.doubtful else ():
            ((verdict,),) = self._attempt(index, [[job]], [1])
            settled = settle(settled, verdict)
            if not settled.ok:
                break
        return settled

    def _attempt(self, index: int, units: Sequence[Sequence[Job]], calls: Sequence[int]) -> list[list[Verdict]]:
        """Run each unit in a child of its domain's zygote of that index, with its number of calls."""
        verdicts: dict[int, list[Verdict]] = {}
        for domain in dict.fromkeys(unit[0].domain for unit in units):
            places = [number for number, unit in enumerate(units) if unit[0].domain == domain]
            of_domain = self._attempt_in((domain, index), [units[number] for number in places], [calls[number] for number in places])
            verdicts |= zip(places, of_domain, strict=True)
        return [verdicts[number] for number in range(len(units))]

    def _attempt_in(self, key: tuple[str, int], units: Sequence[Sequence[Job]], calls: Sequence[int]) -> list[list[Verdict]]:
        failed = [Verdict(VerdictKind.INTERNAL, "sandbox_failed")]
        verdicts = [failed * len(unit) for unit in units]
        requests = [encode_request(unit, count) for unit, count in zip(units, calls, strict=True)]
        attempts, lost = Counter[int](), Counter[int]()
        pending = list(range(len(units)))
        while pending:
            left: list[int] = []
            outcomes = self._exchange(key, [(requests[number], reply_bound(units[number], self._limits)) for number in pending])
            for number, outcome in zip(pending, outcomes, strict=False):
                killed = outcome is not None and self._was_killed(outcome)
                attempts[number] += 1
                lost[number] += outcome is None or killed
                if outcome and outcome.ready and not killed:
                    verdicts[number] = _verdicts(outcome, units[number], self._limits)
                elif attempts[number] < _STARTS and lost[number] < _ATTEMPTS:
                    left.append(number)
            pending = left + pending[len(outcomes) :]
        return verdicts

    def _was_killed(self, outcome: ChildExit) -> bool:
        """Return True if others killed the child, such as the kernel for want of memory: behind the filter no program can kill itself."""
        if outcome.status != signal.SIGKILL or "seccomp" not in self._isolation.layers:
            return False
        ending = _ending(outcome, self._limits)
        return ending is not None and ending.reason == "signal"

    def _exchange(self, key: tuple[str, int], requests: Sequence[tuple[bytes, int]]) -> list[ChildExit | None]:
        """Run one child after the other. The list ends early, with None, at a job that lost its zygote. Raises `SandboxFault`.

        After any other failure the zygote goes, too: its answers to what was submitted would be taken for those to later jobs.
        """
        zygote = self._zygotes.get(key) or self._replace(key)
        outcomes: list[ChildExit | None] = []
        submissions: list[Submission] = []
        try:
            for request, _ in requests:
                submissions.append(zygote.submit(request))
            for submission, (_, bound) in zip(submissions, requests, strict=True):
                outcomes.append(zygote.collect(submission, bound))
        except ZygoteLost:
            outcomes.append(None)
            self._replace(key)
        except BaseException as error:
            self._zygotes.pop(key, zygote).close()
            if isinstance(error, OSError):
                raise SandboxFault(f"the sandbox process cannot be reached: {error.strerror}") from error
            raise
        else:
            if zygote.served >= _SERVICE:
                self._replace(key)
        finally:
            for submission in submissions:
                submission.channel.close()  # those that were not collected
        return outcomes

    def _replace(self, key: tuple[str, int]) -> Zygote:
        if self.closing:
            raise SandboxFault("the sandbox pool was closed while it had work to do")
        old, (domain, index) = self._zygotes.pop(key, None), key
        if old:
            old.close()
        try:
            self._zygotes[key] = Zygote(self._isolation, self._limits, index, self._runners[domain])
        except SandboxUnavailableError as error:
            raise SandboxFault(f"another sandbox process was needed, but it does not start: {error}") from error
        return self._zygotes[key]


def _verdicts(outcome: ChildExit, unit: Sequence[Job], limits: Limits) -> list[Verdict]:
    """Build the verdicts from the child's end as the kernel reports it. Its reply counts only after a clean exit."""
    ended = _ending(outcome, limits)
    if ended is None:
        ended = Verdict(VerdictKind.ERROR, "exit_without_result")
        if outcome.status == 0 and (verdicts := decode_reply(outcome.reply, unit, limits)) is not None:
            return verdicts
    return [ended] * len(unit)


def _ending(outcome: ChildExit, limits: Limits) -> Verdict | None:
    signalled = os.WTERMSIG(outcome.status) if os.WIFSIGNALED(outcome.status) else 0
    if signalled == signal.SIGSYS:
        return Verdict(VerdictKind.BLOCKED, "seccomp")
    if signalled == signal.SIGPROF or outcome.cpu_seconds > limits.cpu_seconds:
        return Verdict(VerdictKind.TIMEOUT, "cpu")
    if outcome.wall_exceeded:
        return Verdict(VerdictKind.TIMEOUT, "wall")
    return Verdict(VerdictKind.ERROR, "signal") if signalled else None
