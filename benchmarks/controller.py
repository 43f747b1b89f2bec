"""Measure the controller's own work in a step, by the size of the population: everything but sampling, verification and learning.

    python -m benchmarks.controller [--sizes 4 32 500] [--rounds 7]        writes controller.json; five minutes

The sampler, the verifier and the learner are stand-ins that answer at once: a third of the proposals is invalid, and answers are right
every other time. So what is measured is matchmaking, prompts, the feed of the sampler, rewards, advantages, ratings, the buffer, the
archive, metrics, and the step's tables. Evolution, checkpoints and the sync check are not in it. A step has the tiny presets' 36 prompts
a teacher and 8 attempts at a problem. Tokens are few, since the controller only passes them on. Parsing of responses is not in it.
"""

import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.measuring import bar, machine, options, write_results

from populora.core.config import Config
from populora.core.config_file import changed, load_config
from populora.core.presets import settings_file
from populora.core.types import Attempt, Example, Generation, Measures, Problem, Proposal, Request, UpdateStats
from populora.engine.sampling.sampler import RequestSource
from populora.runs.metrics_log import write_step
from populora.tasks.attempts import SolveRequest
from populora.tasks.proposals import ProposalRequest
from populora.training.loop import build_run, without_long_lived
from populora.training.run import Run
from populora.training.seed_buffer import fill_buffer
from populora.training.step import selfplay_step

ANSWER = Generation("<think>\n</think>\n<answer>1</answer>", (5,) * 40, (7,) * 12, (-0.5,) * 12, 0.3)
LIMITS = {32: 0.1, 500: 1.5}
"""Seconds a step, by teachers: what the project aims at for 64 and for 1,000 members."""


class Sampler:
    """Answers every request with the same response. A stream takes all requests of its source at a time."""

    decoder, independent = "a stand-in", True

    def sync_weights(self, adapters: Any, slots: Iterable[int]) -> None:
        """Keep no adapters."""

    def stream(self, source: RequestSource, *_: Any) -> Iterator[tuple[Request, list[Generation]]]:
        """See `populora.engine.sampling.sampler.Sampler.stream`."""
        while requests := source.next(block=True):
            yield from ((request, [ANSWER] * request.samples) for request in requests)


class Verifier:
    """Accepts two of three proposals, all different, and every other answer."""

    def __init__(self) -> None:
        self._number = 0

    def validate(self, responses: Sequence[tuple[ProposalRequest, Sequence[Generation]]]) -> list[list[Proposal]]:
        """See `populora.tasks.verifier.TaskVerifier.validate`."""
        return [[self._proposal(request, index, text) for index, text in enumerate(texts)] for request, texts in responses]

    def judge(self, responses: Sequence[tuple[SolveRequest, Sequence[Generation]]]) -> list[list[Attempt]]:
        """See `populora.tasks.verifier.TaskVerifier.judge`."""
        return [
            [
                Attempt(request.student, request.problem, text, True, index % 2 == 0, "" if index % 2 == 0 else "wrong",
                        from_buffer=request.from_buffer)
                for index, text in enumerate(texts)
            ]
            for request, texts in responses
        ]  # fmt: skip

    def _proposal(self, request: ProposalRequest, index: int, text: Generation) -> Proposal:
        self._number += 1
        if self._number % 3 == 0:
            return Proposal(request.author, request.task, request.group, text, True, None, "error:exception")
        program = f"def f(x):\n    return x + {self._number}"
        shown = (Example("1", str(1 + self._number)),)
        problem = Problem(request.sample_id(index), request.task, program, shown, shown, "adds", request.author, request.step)
        return Proposal(request.author, request.task, request.group, text, True, problem, "", Measures((2, 1, 4, 1), str(self._number)))


class Learner:
    """Reports an update of every slot that has rows."""

    def update(self, rows: Sequence[Any], scales: Mapping[int, float] | None = None) -> dict[int, UpdateStats]:
        """See `populora.engine.learning.learner.Learner.update`."""
        return {slot: UpdateStats(0.1, 0.1, 0.3, tokens=12) for slot in {row.slot for row in rows}}


def main() -> None:
    parser = options(__doc__, Path(__file__).with_suffix(".json"), rounds=7)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4, 32, 500], help="teachers, and as many students")
    args = parser.parse_args()
    about = {"machine": machine("populora", "numpy", "scipy", "pyarrow"), "rounds": args.rounds}
    cases: dict[str, Any] = {}
    for size in args.sizes:  # one after the other: a bank of a thousand adapters is large
        with build_run(settings(size)) as run, tempfile.TemporaryDirectory() as folder:
            fill_buffer(run)
            stand_in(run)
            step(run, Path(folder))
            with without_long_lived():
                rounds = [step(run, Path(folder)) for _ in range(args.rounds)]
        seconds = {name: round(value, 3) for name, value in min(rounds, key=lambda row: row["total"]).items()}
        cases[f"{size}T+{size}S"] = seconds
    bars = {f"{size}T+{size}S": bar(LIMITS[size], cases[f"{size}T+{size}S"]["total"]) for size in args.sizes if size in LIMITS}
    write_results(args.out, {**about, "seconds a step, the fastest round": cases, "bars": bars})


def settings(size: int) -> Config:
    """Return the tiny preset with ``size`` teachers and as many students of rank 1, without evaluation and evolution."""
    config = load_config(settings_file("tiny"))
    config = changed(config, {"population": {"teachers": size, "students": size}, "lora": {"rank": 1, "alpha": 2.0}})
    return replace(config, evaluation=replace(config.evaluation, every=0), evolution=replace(config.evolution, every=0))


def stand_in(run: Run) -> None:
    """Replace what computes and runs programs."""
    run.sampler, run.verifier, run.learner = Sampler(), Verifier(), Learner()  # type: ignore[assignment]


def step(run: Run, folder: Path) -> dict[str, float]:
    """Make and record a step. Returns seconds in total, until the record is there, and of writing it."""
    started = time.perf_counter()
    record = selfplay_step(run)
    done = time.perf_counter()
    write_step(folder, record)
    end = time.perf_counter()
    return {"total": end - started, "step": done - started, "write": end - done}


if __name__ == "__main__":
    main()
