"""Measure the memory of the tokens that pass through the controller in a step, by tracing its allocations.

    python -m benchmarks.controller_memory [--size 8] [--tokens 200 1000]        writes controller_memory.json; half a minute

The stand-ins are those of `benchmarks.controller`, but each answer is an object of its own, as answers of an engine are, and has so many
tokens. The bytes of a token are the difference between two steps of equal answers but for their lengths, so prompts, records and whatever
else a step keeps of an answer cancel out. Its text is not in it: an engine sends one character for each that it wrote.
"""

import pickle
import tracemalloc
from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.controller import ANSWER, Sampler, settings, stand_in
from benchmarks.measuring import bar, machine, options, write_results

from populora.core.types import Generation, Request
from populora.engine.sampling.sampler import RequestSource
from populora.training.loop import build_run
from populora.training.run import Run
from populora.training.seed_buffer import fill_buffer
from populora.training.step import selfplay_step

LIMIT = 10.0
"""Bytes a token: the project aims at less than 6 GB for 1,000 members with 576 answers of 1,000 tokens each."""


class LongAnswers(Sampler):
    """Answers with ``tokens`` tokens, which it counts in ``sent``; ``pickled`` is what an engine sends."""

    def __init__(self, tokens: int):
        answer = replace(ANSWER, tokens=array("i", range(tokens)), logprobs=array("f", [-0.5] * tokens))
        self.pickled, self.tokens, self.sent = pickle.dumps(answer), tokens, 0

    def stream(self, source: RequestSource, *_: Any) -> Iterator[tuple[Request, list[Generation]]]:
        """See `populora.engine.sampling.sampler.Sampler.stream`."""
        while requests := source.next(block=True):
            for request in requests:
                self.sent += request.samples * self.tokens
                yield request, [pickle.loads(self.pickled) for _ in range(request.samples)]  # noqa: S301


def main() -> None:
    parser = options(__doc__, Path(__file__).with_suffix(".json"))
    parser.add_argument("--size", type=int, default=8, help="teachers, and as many students")
    parser.add_argument("--tokens", type=int, nargs=2, default=[200, 1000], help="of the answers of two steps")
    args = parser.parse_args()
    about = {"machine": machine("populora"), "population": f"{args.size}T+{args.size}S", "tokens an answer": args.tokens}
    peaks, sent = zip(*[peak(args.size, tokens) for tokens in args.tokens], strict=True)
    found = round((peaks[1] - peaks[0]) / (sent[1] - sent[0]), 2)
    results = {"tokens": sent, "peak, MB": [round(value / 1e6, 1) for value in peaks], "bytes a token": bar(LIMIT, found)}
    write_results(args.out, {**about, **results})


def peak(size: int, tokens: int) -> tuple[int, int]:
    """Return the most bytes that a step needs in addition to what is there before it, and how many tokens come in it."""
    with build_run(settings(size)) as run:
        fill_buffer(run)
        stand_in(run)
        return traced(run, LongAnswers(tokens))


def traced(run: Run, sampler: LongAnswers) -> tuple[int, int]:
    """Make a step with a sampler. Returns its `peak`."""
    run.sampler = sampler  # type: ignore[assignment]
    tracemalloc.start()
    selfplay_step(run)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most, sampler.sent


if __name__ == "__main__":
    main()
