"""radon's value of cyclomatic complexity beside the paper's count, for programs that models wrote: asked of the sandbox."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files

from populora.evals.graders.harness_call import HarnessError, call_harness
from populora.sandbox.pool import SandboxPool
from populora.sandbox.protocol import Limits

PACKAGE = "radon"


class RadonUnavailableError(Exception):
    """radon's values cannot be had here; the message says why."""


@lru_cache(maxsize=1)  # the same programs again where a page is renewed
def radon_values(programs: tuple[str, ...]) -> tuple[int | None, ...]:
    """radon's value of each program; none where radon cannot read one. Raises `RadonUnavailableError`, `SandboxUnavailableError`."""
    harness = str(files("populora.report") / "harness" / "cyclomatic.py")
    limits = Limits(10.0, 60.0, 1024, 1 << 20, 16 << 20, (PACKAGE,), harness=(harness,))
    try:
        with SandboxPool(limits, workers=1) as pool:
            found = call_harness(pool, {"programs": programs})
    except HarnessError as refusal:
        raise RadonUnavailableError(f"the sandbox ended radon ({refusal})") from refusal
    return tuple(_checked(found, programs))


def _checked(found: object, programs: Sequence[str]) -> list[int | None]:
    """A program cannot run there, but what comes from the sandbox is checked all the same."""
    if isinstance(found, list) and len(found) == len(programs) and all(one is None or isinstance(one, int) for one in found):
        return found
    raise RadonUnavailableError("the sandbox gave no list of numbers")
