"""Answers as a model that has learned the calculator would write them: they replace the texts that the tiny base samples.

The tokens and log-probabilities stay those that were sampled, so that the members learn as in any run.
"""

import re
from dataclasses import replace

from populora.core.types import Kind, Problem
from populora.engine.sampling.inprocess import InProcessSampler
from populora.tasks.attempts import SolveRequest
from populora.tasks.proposals import ProposalRequest


def script(monkeypatch) -> None:
    """Let the sampler write these answers to every request of the calculator, and what the base writes to all others."""
    sampled = InProcessSampler.stream

    def stream(sampler, *arguments):
        for request, generations in sampled(sampler, *arguments):
            yield (
                request,
                [replace(generation, text=text_of(request, index, generation.text)) for index, generation in enumerate(generations)],
            )

    monkeypatch.setattr(InProcessSampler, "stream", stream)


def text_of(request, sample: int, text: str) -> str:
    """Two of three proposals are valid, every other answer is right."""
    task = getattr(request, "task", None) or getattr(getattr(request, "problem", None), "task", None)
    if task is None or task.domain != "calculator":
        return text
    parts = solution(request.problem, sample % 2 == 0) if isinstance(request, SolveRequest) else proposal(request, sample)
    return f"thinking</think> <answer>{''.join(parts)}</answer>"


def fence(tag: str, content: str) -> str:
    return f"```{tag}\n{content}\n```\n"


def proposal(request: ProposalRequest, sample: int) -> list[str]:
    """A program that no other request has, or one that divides by zero; for kind ``f`` four inputs and a message."""
    number = sum(place * ord(letter) for place, letter in enumerate(repr(request.key), 1)) + sample
    if request.task.kind is Kind.PROGRAM:
        names = re.findall(r"\w+(?= =)", request.source.shown[0].inputs)
        bindings = [", ".join(f"{name} = {7 * value + place}" for place, name in enumerate(names)) for value in range(4)]
        return [*(fence("input", text) for text in bindings), fence("message", f"hint {number}")]
    program = "1 // (x - x)" if sample % 3 == 2 else f"x * {number} - abs(y - {sample})"
    return [fence("calculator", program), fence("input", f"y = {number % 7},x = {sample}")]


def solution(problem: Problem, right: bool) -> list[str]:
    tags = {Kind.INPUT: "input", Kind.OUTPUT: "output", Kind.PROGRAM: "calculator"}
    contents = {Kind.INPUT: problem.shown[0].inputs, Kind.OUTPUT: problem.shown[0].output, Kind.PROGRAM: problem.program}
    wrong = {Kind.INPUT: "x = 10, y = 500", Kind.OUTPUT: "-123456", Kind.PROGRAM: "y + 1 - y"}
    return [fence(tags[problem.task.kind], (contents if right else wrong)[problem.task.kind])]
