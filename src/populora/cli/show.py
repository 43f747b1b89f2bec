"""``populora show [RUN] --step N``: print a step problem by problem; without a step, the summary of the run.

Model text goes through `printable`, so that control characters are shown and not sent to the terminal. Nothing is read as markup.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.syntax import Syntax
from rich.text import Text

from populora.cli.arguments import parse
from populora.core.errors import ConfigError
from populora.core.output import OutputConsole
from populora.core.types import TaskType
from populora.domains.registry import domain_of
from populora.report.explorer import ASKED
from populora.runs.directory import read_config
from populora.runs.metrics_log import latest_run
from populora.runs.style import ROLE_COLOURS, plural, printable
from populora.runs.summary import print_summary, summarise
from populora.runs.tables import read_table

Row = Mapping[str, Any]
TEACHER, STUDENT = ROLE_COLOURS["teacher"], ROLE_COLOURS["student"]


@dataclass(frozen=True)
class Show:
    """Print the problems of a step, the answers with their reasoning, the verdicts and the rewards."""

    run: Annotated[tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="[RUN]")] = None
    """Run directory, such as `runs/tiny`; by default the newest under `runs/`."""
    step: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Step to print, from 1 on; 0 for the summary of the whole run."""
    teacher: Annotated[str | None, tyro.conf.arg(metavar="MEMBER")] = None
    """Only problems of this teacher, such as `T0`."""
    student: Annotated[str | None, tyro.conf.arg(metavar="MEMBER")] = None
    """Only answers of this student, such as `S1`."""
    task: Annotated[str | None, tyro.conf.arg(metavar="TYPE")] = None
    """Only one task type, such as `code_i`, `code_o` or `sql_f`."""
    limit: Annotated[int, tyro.conf.arg(metavar="K")] = 5
    """Number of problems, of problems from the buffer, and of rejected proposals, to print; 0 for all."""


def main(arguments: Sequence[str]) -> int:
    """Print to stdout; returns 0. Raises `PopuloraError`."""
    args = parse(Show, arguments, "show")
    console = OutputConsole()
    run = args.run or latest_run()
    config = read_config(run)
    if args.step == 0:
        if selectors := [name for name in ("teacher", "student", "task") if getattr(args, name) is not None]:
            raise ConfigError(f"--{selectors[0]} selects from one step: expected --step N with it.")
        print_summary(console, summarise(run))
        return 0
    if args.task is not None and args.task not in config.task_types:
        raise ConfigError(f"--task is '{args.task}': expected one of {', '.join(config.task_types)}.")
    if args.limit < 0:
        raise ConfigError(f"--limit is {args.limit}: expected a number of problems, or 0 for all.")
    tables = {name: read_table(run, name, [args.step]).to_pylist() for name in ("proposals", "problems", "attempts", "matchups")}
    for part in render_step(tables, args, config.domains):
        console.print(part)
    return 0


def render_step(tables: Mapping[str, Sequence[Row]], args: Show, domains: Sequence[str]) -> Iterator[RenderableType]:
    """Yield the matchups, the problems with their answers, those from the buffer too, and the rejected proposals with the reasons.

    Raises `ConfigError` for a member that took no part in the step.
    """

    def selected(row: Row) -> bool:
        return args.teacher in (None, row["author"]) and args.task in (None, row["task"])

    _check_member("teacher", args.teacher, {row["author"] for row in tables["proposals"]})
    _check_member("student", args.student, {row["student"] for row in tables["attempts"]})
    for matchup in tables["matchups"]:
        if args.teacher in (None, matchup["teacher"]) and args.student in (None, matchup["student"]):
            yield _matchup(matchup, domains if len(domains) > 1 else ())
    problems = {row["problem_id"]: row for row in tables["problems"]}
    proposals = [row for row in tables["proposals"] if selected(row)]
    attempts: dict[str, list[Row]] = {}
    for row in tables["attempts"]:
        if args.student in (None, row["student"]):
            attempts.setdefault(row["problem_id"], []).append(row)
    valid = [row for row in proposals if row["valid"] and (args.student is None or row["problem_id"] in attempts)]
    printed = valid[: args.limit or None]
    for proposal in printed:
        yield _proposed(proposal, problems[proposal["problem_id"]], attempts.get(proposal["problem_id"], []))
    yield Text(f"\n{len(printed)} of {plural(len(valid), 'valid problem')} shown", "dim")
    new = {row["problem_id"] for row in tables["proposals"]}
    buffered = [row for row in problems.values() if row["problem_id"] in attempts and row["problem_id"] not in new]
    yield from _from_buffer([row for row in buffered if selected(row)], attempts, args.limit)
    if args.student is None:
        yield from _rejected([row for row in proposals if not row["valid"]], args.limit)


def _check_member(role: str, member: str | None, members: set[str]) -> None:
    if member is not None and member not in members:
        raise ConfigError(f"--{role} is '{member}': expected one of {', '.join(sorted(members)) or 'none'}, who took part in this step.")


def _matchup(row: Row, domains: Iterable[str]) -> Text:
    """Print a matchup, and where its result comes from: of each of ``domains``, the solved share and the number of problems."""
    solved_of = {domain: "" if row[f"mean_rho_{domain}"] is None else f"{row[f'mean_rho_{domain}']:.2f} of " for domain in domains}
    sources = ", ".join(f"{domain} {solved}{plural(row[f'problems_{domain}'], 'problem')}" for domain, solved in solved_of.items())
    solved = f"solved {row['mean_rho']:.2f}" if row["mean_rho"] is not None else "nothing to solve"
    winners = {"teacher": f"{row['teacher']} wins", "student": f"{row['student']} wins", "neither": "neither wins", "none": "no game"}
    return Text.assemble(
        (row["teacher"], f"bold {TEACHER}"), " against ", (row["student"], f"bold {STUDENT}"),
        f"  {solved}, predicted {row['expected']:.2f}: {winners[row['outcome']]}",
        (f"  ({sources})" if sources else "", "dim"),
    )  # fmt: skip


def _proposed(proposal: Row, problem: Row, attempts: Sequence[Row]) -> RenderableType:
    rho = "void: the gold value did not reproduce" if proposal["rho"] is None else f"solved {proposal['rho']:.2f}"
    measures = ", ".join(f"{metric.label} {proposal[metric.name]}" for metric in domain_of(TaskType(proposal["task"])).metrics)
    return _problem(problem, f"{rho}  reward {_reward(proposal)}", attempts, [Text(measures, "dim")])


def _from_buffer(problems: Sequence[Row], attempts: Mapping[str, Sequence[Row]], limit: int) -> Iterator[RenderableType]:
    printed = problems[: limit or None]
    for problem in printed:
        yield _problem(problem, f"from the buffer, born in step {problem['born']}", attempts[problem["problem_id"]])
    if problems:
        yield Text(f"\n{len(printed)} of {plural(len(problems), 'problem')} from the buffer shown", "dim")


def _problem(problem: Row, facts: str, attempts: Sequence[Row], measures: Sequence[Text] = ()) -> RenderableType:
    task = TaskType(problem["task"])
    domain = domain_of(task)
    title = Text.assemble(
        (problem["author"], f"bold {TEACHER}"), f"  {task}  {problem['problem_id']}  asks for the {ASKED[task.kind]}  {facts}"
    )
    program = Syntax(printable(problem["program"]), domain.lexer, theme="ansi_dark", background_color="default")
    examples = [_example(domain.call, example, note) for side, note in (("shown", ""), ("hidden", "  hidden")) for example in problem[side]]
    message = [Text.assemble(("message  ", "dim"), printable(problem["message"]))] if problem["message"] else []
    return Group(Text(), Rule(style="dim"), title, program, *examples, *message, *measures, *_answers(attempts))


def _example(call: str, example: Row, note: str) -> Text:
    inputs, output = call.replace("{inputs}", printable(example["inputs"])), printable(example["output"])
    arrow = "\n→\n" if "\n" in inputs + output else " → "
    return Text.assemble(f"{inputs}{arrow}{output}", (note, "dim"))


def _answers(attempts: Sequence[Row]) -> Iterator[RenderableType]:
    """Yield each distinct answer with its count."""
    groups: dict[tuple[Any, ...], int] = Counter(
        (row["student"], row["text"], row["correct"], row["void"], row["reason"], row["reward"], row["trained"]) for row in attempts
    )
    for (student, text, correct, void, reason, reward, trained), count in groups.items():
        mark, colour = ("?", "yellow") if void else ("✓", "green") if correct else ("✗", "red")
        explanation = f"  {reason}" if reason else ""
        note = "" if trained else "  (not trained on)"
        times = f"  ×{count}" if count > 1 else ""
        yield Text.assemble(
            "\n", (f"{mark} ", f"bold {colour}"), (student, f"bold {STUDENT}"), f"{times}  reward {reward:+.2f}{explanation}", (note, "dim")
        )
        yield _indented(text)


def _rejected(rows: Sequence[Row], limit: int) -> Iterator[RenderableType]:
    if not rows:
        return
    yield Text()
    counts = ", ".join(f"{reason} {count}" for reason, count in Counter(row["rejection"] for row in rows).most_common())
    yield from (Rule(style="dim"), Text(f"{plural(len(rows), 'proposal')} rejected: {printable(counts)}"))
    for row in rows[: limit or None]:
        yield Text.assemble(
            (row["author"], f"bold {TEACHER}"), f"  {row['task']}  ", (printable(row["rejection"]), "red"), f"  reward {_reward(row)}"
        )
        yield _indented(row["text"])


def _indented(text: str) -> RenderableType:
    return Padding(Text(printable(text.strip())), (0, 0, 0, 2))


def _reward(row: Row) -> str:
    return "none (void)" if row["reward"] is None else f"{row['reward']:+.2f}"
