"""One worker of a pool: it runs programs in zygotes that differ in hash seed, address layout and clock, and compares the results.

A lost zygote is replaced and its job tried once more, then the verdict is ``internal``. A zygote that has served long is replaced too.
"""

import os
import signal

from populora.core.errors import SandboxFault, SandboxUnavailableError
from populora.core.types import VerdictKind
from populora.sandbox.layers import Isolation
from populora.sandbox.process import ChildExit, Zygote, ZygoteLost
from populora.sandbox.protocol import Job, Limits, Verdict, decode_reply, encode_request, reply_bound, settle

_PAIR = (0, 1)
_IN_DOUBT = range(2, 8)
"""More zygotes for doubtful programs: two words of a set have the same order in two processes every other time, in eight
processes once in 128."""
_ATTEMPTS = 2
_SERVICE = 20_000
"""Jobs after which a zygote is replaced, as a bound on leaks."""
_ENDINGS = frozenset({"seccomp", "cpu", "wall", "signal", "exit_without_result"})
"""Reasons that concern a whole child, not one of its jobs."""
_CONTROL = Job("run", "def f(x):\n    return len([x] * 250_000)", ("1",))
"""Needs 2 MB beyond the interpreter: a memory limit below that would fail ordinary programs. (With 16 MB, a busy virtual machine
now and then took half a second of CPU time to hand the pages over.)"""


class Worker:
    """A pair of zygotes, and more of them from the first program that needs them. Only `kill` may be called from another thread."""

    def __init__(self, isolation: Isolation, limits: Limits) -> None:
        self._isolation = isolation
        self._limits = limits
        self._zygotes: dict[int, Zygote] = {}
        self.closing = False

    def start(self) -> None:
        for index in _PAIR:
            self._zygotes[index] = Zygote(self._isolation, self._limits, index)
        (verdict,) = self.judge([_CONTROL], twice=True)
        if not verdict.ok:
            raise SandboxUnavailableError(
                f"the sandbox does not run a harmless program under {self._limits}: {verdict.kind} {verdict.reason}. "
                f"Raise the limits, or report the machine's layers: {self._isolation.report}"
            )

    def close(self) -> None:
        for zygote in self._zygotes.values():
            zygote.close()

    def kill(self) -> None:
        """Kill the running programs; `close` has to follow."""
        for zygote in list(self._zygotes.values()):
            zygote.kill()

    def judge(self, unit: list[Job], twice: bool) -> list[Verdict]:
        """Run one unit of jobs; ``twice`` compares two calls in each of two processes."""
        verdicts = self._attempt(_PAIR[0], unit, calls=2 if twice else 1)
        if len(unit) > 1 and verdicts[0].reason in _ENDINGS:  # one of them ended the child: find out which
            return [self._attempt(_PAIR[0], [job], calls=1)[0] for job in unit]
        if twice and verdicts[0].kind in (VerdictKind.OK, VerdictKind.ERROR):  # a second run changes no other verdict
            return [self._agreed(unit, verdicts[0])]
        return verdicts

    def _agreed(self, unit: list[Job], first: Verdict) -> Verdict:
        """Compare the processes of the unit's one program: two, or more if their agreement may be luck."""
        settled = settle(first, self._attempt(_PAIR[1], unit, calls=2)[0])
        for index in _IN_DOUBT if settled.doubtful else ():
            settled = settle(settled, self._attempt(index, unit, calls=1)[0])
            if not settled.ok:
                break
        return settled

    def _attempt(self, index: int, unit: list[Job], calls: int) -> list[Verdict]:
        request = encode_request(unit, calls)
        for _ in range(_ATTEMPTS):
            zygote = self._zygotes.get(index) or self._replace(index)
            try:
                outcome = zygote.exchange(request, reply_bound(unit, self._limits))
            except ZygoteLost:
                self._replace(index)
                continue
            if zygote.served >= _SERVICE:
                self._replace(index)
            if outcome.ready:
                return _verdicts(outcome, unit, self._limits)
        return [Verdict(VerdictKind.INTERNAL, "sandbox_failed")] * len(unit)

    def _replace(self, index: int) -> Zygote:
        if self.closing:
            raise SandboxFault("the sandbox pool was closed while it had work to do")
        old = self._zygotes.pop(index, None)
        if old:
            old.close()
        try:
            self._zygotes[index] = Zygote(self._isolation, self._limits, index)
        except SandboxUnavailableError as error:
            raise SandboxFault(f"another sandbox process was needed, but it does not start: {error}") from error
        return self._zygotes[index]


def _verdicts(outcome: ChildExit, unit: list[Job], limits: Limits) -> list[Verdict]:
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
