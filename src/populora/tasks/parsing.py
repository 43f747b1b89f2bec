"""Parse responses: format check, proposals, solutions. String work in linear time; nothing is evaluated here.

The rules are those of the Absolute Zero Reasoner (AZR), whose fence ``python`` becomes that of the domain: the first program fence and
first input fence of a code_i or code_o proposal, the last n input fences and first message fence of a code_f proposal, the last fitting
fence of a solution; in Python a fence without a language counts as a program. Deviations: fences are read one after the other, so an
input fence before the program is not mistaken for it; functions are neither renamed nor counted (the entry point is a top-level ``f``,
helpers are allowed); markup inside a proposal is a rejection, because it would break the students' prompts. Only fences count as answers
unless a setting turns on `search_solution`, AZR's search outside them.
"""

import re
from dataclasses import dataclass

from populora.core.types import Kind, Measures, TaskType
from populora.domains.registry import domain_of

_FORMAT = re.compile(r"</think>\s*<answer>")
_FENCE = re.compile(r"```([^\n`]*)\n(.*?)```", re.DOTALL)
_ANY_FENCE = re.compile(r"```[^\n`]*\n(.*?)(?:```|\Z)", re.DOTALL)
_MARKUP = re.compile(
    r"</?(?:think|answer)>|```|Assistant:"  # markup of the parser and the conversation template
    r"|<(?:propose|solve|[a-z][a-z0-9]{0,19}_[iof]|pad|eos)>|<\|\w+\|>"  # control tokens of tiny bases, of any domain, and of chat models
)
_NAMES = {Kind.INPUT: "input", Kind.OUTPUT: "output"}
_MARKS = (r"#\s?{}:", r"\b{}\(", r"<{}>", r"\bthe {} is:?")
_CLOSING = {"(": ")", ">": "</"}


@dataclass(frozen=True)
class ProposalText:
    """The parts of a proposal. ``program`` is parsed for kinds ``i`` and ``o``, ``message`` for kind ``f``; the others are empty."""

    program: str
    inputs: tuple[str, ...]
    message: str = ""
    measures: Measures | None = None
    """The program's complexity, once the sandbox has measured it."""


def reasons(response: str) -> bool:
    """Return True if the response says anything before it ends the think part, which the prompt opened."""
    return not response.lstrip().startswith("</think>")


def _first_turn(response: str) -> str:
    """Cut the response at the next ``Assistant:``, where base models invent further turns (AZR cuts there too)."""
    return response.partition("Assistant:")[0]


def is_formatted(response: str) -> bool:
    """Return True for ``... </think> <answer> ... </answer>``; the prompt opened ``<think>``, any text may follow."""
    turn = _first_turn(response)
    opening = _FORMAT.search(turn)
    return opening is not None and "</answer>" in turn[opening.end() :]


def answer_text(response: str) -> str:
    """Return the text from the last ``<answer>`` to the next ``</answer>``; empty if there is none."""
    _, tag, answer = _first_turn(response).rpartition("<answer>")
    return answer.partition("</answer>")[0] if tag else ""


def _fences(answer: str, tags: tuple[str, ...]) -> list[str]:
    """Return the stripped contents of the fences whose language is one of ``tags``, in order."""
    return [content.strip() for tag, content in _FENCE.findall(answer) if tag.strip().lower() in tags]


def parse_proposal(task: TaskType, answer: str, inputs_wanted: int) -> ProposalText | str:
    """Parse a proposal. Returns its parts, or the reason for its rejection.

    Reasons: ``no_answer``, ``no_program``, ``no_input``, ``wrong_input_count``, ``no_message``, ``contains_markup``,
    ``multiline_input``.
    """
    if not answer.strip():
        return "no_answer"
    domain = domain_of(task)
    text = _inputs_and_message(answer, inputs_wanted) if task.kind is Kind.PROGRAM else _program_and_input(answer, domain.fences)
    if isinstance(text, str):
        return text
    if not all(text.inputs):
        return "no_input"
    if has_markup(text.program, text.message, *text.inputs):
        return "contains_markup"
    if domain.one_line_inputs and any(len(part.splitlines()) > 1 for part in text.inputs):
        return "multiline_input"
    return text


def _program_and_input(answer: str, tags: tuple[str, ...]) -> ProposalText | str:
    programs, inputs = _fences(answer, tags), _fences(answer, ("input",))
    if not any(programs[:1]):
        return "no_program"
    return ProposalText(programs[0], (inputs[0],)) if inputs else "no_input"


def _inputs_and_message(answer: str, wanted: int) -> ProposalText | str:
    inputs, messages = _fences(answer, ("input",)), _fences(answer, ("message",))
    if not inputs:
        return "no_input"
    if len(inputs) < wanted:
        return "wrong_input_count"
    return ProposalText("", tuple(inputs[-wanted:]), messages[0]) if any(messages[:1]) else "no_message"


def has_markup(*texts: str) -> bool:
    """Return True if a text contains think or answer tags, code fences, ``Assistant:`` or a control token of a chat model."""
    return any(map(_MARKUP.search, texts))


def parse_solution(task: TaskType, answer: str) -> str | None:
    """Return the last fence that fits the task: input, output or program. ``None`` if it is missing.

    An empty input fence is an empty list of arguments, ``""``; an empty output or program is ``None``.
    """
    tags = {Kind.INPUT: ("input",), Kind.OUTPUT: ("output",), Kind.PROGRAM: domain_of(task).fences}
    fences = _fences(answer, tags[task.kind])
    if not fences or not (fences[-1] or task.kind is Kind.INPUT):
        return None
    return fences[-1]


def search_solution(task: TaskType, answer: str) -> str:
    """Search for an answered input or output outside fences, as AZR does. Returns an empty text for kind ``f``.

    It is the text after the last ``# Input:``, else in ``input(…)``, in an ``<input>`` tag, after "the input is" to the end of the
    line, else the whole text.
    """
    if task.kind not in _NAMES:
        return ""
    for mark in _MARKS:
        for last in [*re.finditer(mark.format(_NAMES[task.kind]), answer, re.IGNORECASE)][-1:]:
            closing, tail = _CLOSING.get(last[0][-1], "\n"), answer[last.end() :]
            content = tail.partition("\n")[0].rpartition(closing)[0] if closing == ")" else tail.partition(closing)[0]
            if content.strip().rstrip("."):
                return content.strip().rstrip(".")
    return answer.strip()


def unfenced(text: str) -> str:
    """Return the stripped content of the last fence of any language, which may be open at the end, or the text if there is none."""
    fences = _ANY_FENCE.findall(text)
    return (fences[-1] if fences else text).strip()


def leaks_program(message: str, program: str) -> bool:
    """Return True if the message contains the whole program, up to white space."""
    return "".join(program.split()) in "".join(message.split())
