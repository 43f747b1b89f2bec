"""The closing summary of a run, computed from the run directory alone."""

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from populora.core.invocation import command
from populora.core.types import Role
from populora.runs.directory import read_config
from populora.runs.highlights import highlights
from populora.runs.metrics_log import TIMINGS, read_log
from populora.runs.style import ROLE_COLOURS, captions_of, format_duration, format_metric, plural
from populora.sandbox.runner import PYTHON


@dataclass(frozen=True)
class Summary:
    """The results of a run so far: ``step`` of ``steps`` are finished, in ``seconds``, also those before a resume.

    ``first`` and ``last`` are means of each metric over the first and the last quarter of its steps. ``best`` is the member of each role
    with the highest mu at the end, its mu and sigma.
    """

    folder: Path
    step: int
    steps: int
    stopped: bool
    """True if Ctrl-C ended the run early."""
    seconds: float
    first: dict[str, float]
    last: dict[str, float]
    best: dict[str, tuple[str, float, float]]
    children: int
    highlights: tuple[str, ...] = ()
    domains: tuple[str, ...] = (PYTHON,)


def summarise(folder: Path, stopped: bool = False) -> Summary:
    """Read the summary of a run. Raises `RunDirectoryError`."""
    log, config = read_log(folder), read_config(folder)
    quarter = max(1, len(log) // 4)
    ends = log[-1] if log else {}
    return Summary(
        folder=folder,
        step=int(ends.get("step", 0)),
        steps=config.steps,
        stopped=stopped,
        seconds=sum(line["seconds/step"] for line in read_log(folder, TIMINGS)),
        first=_means(log[:quarter]),
        last=_means(log[-quarter:]),
        best=_best(ends),
        children=int(sum(line.get("evolution/children", 0.0) for line in log)),
        highlights=tuple(highlights(log, config.evaluation.problems_per_type, config.domains)),
        domains=config.domains,
    )


def print_summary(console: Console, summary: Summary) -> None:
    """Print the summary and the commands to type next, each on a line of its own that no width breaks."""
    console.print(render_summary(summary))
    console.print("next")
    for line, meaning in next_commands(summary):
        console.print(Text(f"  # {meaning}", "dim"), soft_wrap=True)
        console.print(Text(f"  {line}", "bold"), soft_wrap=True)


def render_summary(summary: Summary) -> RenderableType:
    """Draw the highlights and the closing table, for any width from 60 columns on."""
    heading = Text.assemble(
        ("populora", "bold"),
        f"  {summary.folder}  {summary.step} of {plural(summary.steps, 'step')} in {format_duration(summary.seconds)}, ",
        f"{plural(summary.children, 'child', 'children')} bred",
    )
    if not summary.step:
        return Group(Text(), heading, Text("No step was finished."), Text())
    columns = [Column(caption, justify="right") for caption in ("first quarter", "last quarter", "change")]
    table = Table("", *columns, box=box.SIMPLE_HEAD, pad_edge=False)
    for name, caption in captions_of(summary.domains).items():
        if name in summary.first and name in summary.last:
            change = summary.last[name] - summary.first[name]
            ends = (format_metric(name, values[name]) for values in (summary.first, summary.last))
            table.add_row(caption, *ends, format_metric(name, change, signed=True))
    best = [
        Text.assemble(f"best {role}  ", (member, f"bold {ROLE_COLOURS[role]}"), f"  mu {mu:.1f}, sigma {sigma:.1f}")
        for role, (member, mu, sigma) in summary.best.items()
    ]
    return Group(Text(), heading, Text(), *map(Text, summary.highlights), table, *best, Text())


def next_commands(summary: Summary) -> list[tuple[str, str]]:
    """List commands that are of use after the run, each with its purpose."""
    folder = summary.folder
    commands = [(command("report", folder), "see it: figures and an explorer, one HTML file")]
    if summary.step:
        commands.append((command("show", folder, "--step", summary.step), "read the problems, answers and verdicts of a step"))
        member = list(summary.best.values())[-1][0] if summary.best else "A0"  # the single agent plays no games
        out = f"{folder.absolute().name}-{member.lower()}"
        commands.append((command("export", folder, "--member", member, "-o", out), "take an adapter out"))
    if summary.step < summary.steps:
        commands.insert(0, (command("resume", folder), f"continue from step {summary.step}"))
    return commands


def _means(log: list[dict[str, float]]) -> dict[str, float]:
    names = {name for line in log for name in line}
    return {name: fmean(line[name] for line in log if name in line) for name in sorted(names)}


def _best(metrics: dict[str, float]) -> dict[str, tuple[str, float, float]]:
    ratings = {name.removeprefix("rating/mu/"): mu for name, mu in sorted(metrics.items()) if name.startswith("rating/mu/")}
    best: dict[str, tuple[str, float, float]] = {}
    for role in map(str, Role):
        members = [member for member in ratings if member[0] == role[0].upper()]
        if members and members != ["A0"]:  # the single agent plays no games
            member = max(members, key=ratings.__getitem__)
            best[role] = (member, ratings[member], metrics[f"rating/sigma/{member}"])
    return best
