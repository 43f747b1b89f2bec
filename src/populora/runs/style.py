"""Words, colours and small drawings shared by the live display, the plain lines and the closing table."""

from collections.abc import Sequence

from populora.core.types import Lineage, Role
from populora.domains.registry import load_domain
from populora.runs.step_record import Evolution

ROLE_COLOURS = {Role.TEACHER.value: "dark_orange", Role.STUDENT.value: "dodger_blue2", Role.AGENT.value: "grey70"}
PHASES = ("matchmaking", "propose and solve", "update", "publish", "store", "evaluate", "evolve")

_BEFORE = {
    "student/solve_rate": "solve rate",
    "teacher/difficulty": "difficulty",
    "teacher/validity": "valid problems",
    "student/format_rate": "answer format",
}
_AFTER = {
    "teacher/response_length": "problem tokens",
    "student/response_length": "answer tokens",
    "learner/entropy/teacher": "teacher entropy",
    "learner/entropy/student": "student entropy",
    "learner/entropy/agent": "agent entropy",
    "archive/coverage": "coverage",
    "held_out/accuracy": "held-out accuracy",
}
CAPTIONS = {**_BEFORE, **_AFTER}
"""Captions of metrics by their names in the log, but for those of a domain (`domain_captions`)."""
_OF_EACH_DOMAIN = ("student/solve_rate", "teacher/difficulty", "teacher/validity", "archive/coverage", "held_out/accuracy")

SHOWN_SINGLY = 16
"""Members of a role that the live view and the report show one by one. More are shown in groups."""

_BLOCKS = "▁▂▃▄▅▆▇█"


def captions_of(domains: Sequence[str]) -> dict[str, str]:
    """Return the captions of the metrics that sum up a run, by their names in its log."""
    return {**_BEFORE, **domain_captions(domains), **_AFTER}


def domain_captions(domains: Sequence[str]) -> dict[str, str]:
    """Return the captions of the domains' complexity metrics, those first that a domain shows.

    With several domains, names end in ``/domain``, and each domain also has its solve rate, difficulty, validity, coverage and accuracy.
    """
    captions: dict[str, str] = {}
    for domain in map(load_domain, domains):
        shared = {name: CAPTIONS[name] for name in _OF_EACH_DOMAIN} if len(domains) > 1 else {}
        complexity = {f"teacher/{name}": domain.label(name) for name in dict.fromkeys((*domain.shown, *domain.metric_names))}
        ending, subject = (f"/{domain.name}", f"{domain.name}: ") if len(domains) > 1 else ("", "")
        captions |= {name + ending: subject + caption for name, caption in {**shared, **complexity}.items()}
    return captions


def format_duration(seconds: float) -> str:
    """Format as ``2:31`` or ``1:02:31``."""
    minutes, remainder = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{remainder:02d}" if hours else f"{minutes}:{remainder:02d}"


def format_metric(name: str, value: float, signed: bool = False) -> str:
    """Format a metric with the digits that carry meaning: two for shares, one for lengths, per cent for coverage."""
    sign = "+" if signed else ""
    if name.startswith("archive/coverage"):
        return f"{100 * value:{sign}.1f} %"
    return f"{value:{sign}.1f}" if name.endswith("length") else f"{value:{sign}.2f}"


def plural(count: int, singular: str, plural_form: str = "") -> str:
    """Format as ``1 child`` or ``2 children``."""
    return f"{count} {singular if count == 1 else plural_form or singular + 's'}"


def printable(text: str) -> str:
    """Escape control and other unprintable characters of model text, except line breaks and tabs."""
    if text.replace("\n", "").replace("\t", "").isprintable():  # nearly all of it, and ten times as fast
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode("ascii") for c in text)


def sparkline(values: Sequence[float], width: int) -> str:
    """Draw the last ``width`` values as blocks between their own minimum and maximum."""
    recent = list(values)[-width:]
    low, high = min(recent, default=0), max(recent, default=0)
    return "".join(_BLOCKS[round(7 * (value - low) / (high - low)) if high > low else 3] for value in recent)


def describe_evolution(evolution: Evolution) -> list[str]:
    """Describe each birth as ``bred T1 = x2(T0, T3)``, then the newborns that were spared and the broken teachers.

    More than `SHOWN_SINGLY` are counted instead.
    """
    births = [f"bred {describe_child(child)}" for child in evolution.children]
    spared = [f"newborn {member} stays" for member in evolution.spared]
    broken = [f"{member} had too few valid problems of a type" for member in evolution.broken]
    counted = ("bred {} children", "{} newborns stay", "{} teachers had too few valid problems of a type")
    return [
        event
        for events, counting_form in zip((births, spared, broken), counted, strict=True)
        for event in (events if len(events) <= SHOWN_SINGLY else [counting_form.format(len(events))])
    ]


def describe_child(child: Lineage) -> str:
    """Format a birth as ``T1 = x2(T0, T3)``."""
    return f"{child.member} = {child.operator}({', '.join(name.split('#')[0] for name in child.parent_names)})"
