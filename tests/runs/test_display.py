"""The display of a run in a recorded console: plain lines, the live table at 60 to 160 columns, the closing table."""

import errno
import io
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from populora.cli.train import open_display
from populora.core.config import Config
from populora.core.output import OutputConsole
from populora.core.types import Lineage, Matchup, Member, Rating, Role
from populora.runs.directory import new_run
from populora.runs.display import PlainDisplay, step_line
from populora.runs.live import LiveDisplay, View
from populora.runs.metrics import step_metrics
from populora.runs.metrics_log import write_step
from populora.runs.step_record import Evolution
from populora.runs.style import describe_evolution, format_duration, format_metric, plural, sparkline
from populora.runs.summary import print_summary, render_summary, summarise
from populora.runs.tables import step_tables


def terminal(width: int = 80, **options) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None, **options)


def rendered(thing: object, width: int = 80) -> str:
    console = terminal(width)
    console.print(thing)
    return console.file.getvalue()  # type: ignore[attr-defined]


def printed_summary(folder: Path, width: int = 80) -> list[str]:
    console = terminal(width)
    print_summary(console, summarise(folder))
    return [line.strip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def after_steps(display, make_record, *steps: int, **changes):
    for step in steps:
        record = make_record(step, **changes)
        display.step(record, step_metrics(record, step_tables(record)))
    return display


def live_view(make_record, history=(), steps=range(1, 13), **changes) -> View:
    return after_steps(LiveDisplay(Path("runs/tiny"), 30, history, lambda: False, terminal()), make_record, *steps, **changes)._now()


def finished(folder: Path, make_record, steps: int = 20) -> Path:
    with new_run(folder, replace(Config(), steps=20), {}):
        for step in range(1, steps + 1):
            write_step(folder, make_record(step, coverage={"coverage": step / 100}))
    return folder


@pytest.mark.parametrize("width", (60, 80, 120, 160))
def test_live_table_fits_its_width_and_cuts_no_number(make_record, width):
    text = rendered(replace(live_view(make_record), phase="update"), width)
    assert max(map(cell_len, text.splitlines())) <= width
    assert "…" not in text.replace("left …", "") or width == 60
    facts = ("step 12 of 30", "solve rate", "0.75", "0.50 (0.60)", "T0 27.0", "S1 25.0", "step 12: bred T1 = x2(T0, T1)", "update")
    assert all(fact in text for fact in facts)
    side_by_side = any("solve rate" in line and "T0 27.0" in line for line in text.splitlines())
    assert side_by_side == (width == 160)


def test_live_table_before_the_first_step_and_while_stopping():
    text = rendered(View(Path("runs/tiny"), 30, phase="seeding"))
    assert "seeding" in text and "step 0 of 30" in text and "first step" in text
    assert "Ctrl-C again" in rendered(View(Path("r"), 3, stopping=True))


def test_live_table_of_the_single_agent_has_no_matchups(make_record):
    agent = replace(make_record().members[0], id="A0", role=Role.AGENT)
    matchups = (Matchup("A0", "A0", 0.5, 0.5, "none"),)
    text = rendered(live_view(make_record, members=(agent,), matchups=matchups, updates={}))
    assert "1A" in text and "rating" not in text


def agents(make_record) -> dict[str, tuple]:
    """Two agents, each the teacher of the other."""
    members = tuple(replace(member, id=f"A{slot}", role=Role.AGENT) for slot, member in enumerate(make_record().members[:2]))
    matchups = (Matchup("A0", "A1", 0.5, 0.4, "teacher"), Matchup("A1", "A0", 0.5, 0.6, "student"))
    return {"members": members, "matchups": matchups, "updates": {}}


def test_live_table_of_agents_that_share_adapters_has_their_matchups(make_record):
    text = rendered(live_view(make_record, **agents(make_record)))
    assert "2A" in text and text.count("A0 27.0") == text.count("A1 25.0") == 2 and "◀ 0.40" in text and "0.60 (0.50) ▶" in text


def test_a_line_has_the_range_of_the_ratings_of_agents_that_share_adapters(make_record):
    changes = agents(make_record)
    record, single = make_record(1, **changes), make_record(1, **{**changes, "members": changes["members"][:1]})
    assert "mu A 25.0 to 27.0" in step_line(record, {}, 30, 60.0) and "mu" not in step_line(single, {}, 30, 60.0)


def test_closing_table_names_the_best_agent_of_several(tmp_path, make_record):
    changes = agents(make_record)
    for count, best in ((1, {}), (2, {"agent": ("A0", 27.0, 2.0)})):
        folder = tmp_path / str(count)
        with new_run(folder, replace(Config(), steps=1), {}):
            write_step(folder, make_record(1, **{**changes, "members": changes["members"][:count]}))
        assert summarise(folder).best == best
        assert f"populora export {folder} --member A0" in " ".join(printed_summary(folder, 300))
    assert "best agent  A0  mu 27.0" in rendered(render_summary(summarise(folder)))


def test_live_table_of_unequal_sizes_repeats_members(make_record):
    matchups = (Matchup("T0", "S0", 0.5, 0.4, "teacher"), Matchup("T0", "S1", 0.5, 0.6, "student"))
    text = rendered(live_view(make_record, matchups=matchups))
    assert text.count("T0 27.0") == 2 and "◀ 0.40" in text and "0.60 (0.50) ▶" in text


def test_resumed_history_gives_way_to_steps_that_are_done_again(make_record):
    history = [{"step": float(step), "student/solve_rate": 0.1 * step} for step in (1, 2, 3)]
    assert [line["step"] for line in live_view(make_record, history, [2]).history] == [1, 2]


def test_plain_display_is_one_ascii_line_a_step_and_announces_a_stop_once(make_record):
    stream, requests = io.StringIO(), [False]
    display = open_display(Path("runs/tiny"), 30, stopping=lambda: requests[0], console=Console(file=stream, width=40))
    assert isinstance(display, PlainDisplay)
    with display:
        display.phase("update")
        after_steps(display, make_record, 1, 2)
        requests[0] = True
        display.phase("update")
        display.phase("store")
    where, first, second, stopping = stream.getvalue().splitlines()
    assert where == "runs/tiny, 30 steps: update" and stopping.startswith("stopping")
    assert first.isascii() and first.startswith("step  1/30  10.0s  solve 0.50 (i - o 0.75 f 0.00)  valid 0.67  difficulty 0.50")
    assert first.endswith("left 4:50  bred T1 = x2(T0, T1)") and "mu T 26.0 S 24.0" in second and "left 4:40" in second


class Closed(io.StringIO):
    """A pipe whose reader has gone, or a full disk."""

    def __init__(self, number: int):
        super().__init__()
        self.number = number

    def write(self, text: str) -> int:
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC, errno.EIO])
def test_a_display_that_cannot_be_written_says_so_once_and_stays_silent(make_record, monkeypatch, capsys, number):
    discarded: list[bool] = []
    monkeypatch.setattr("populora.runs.display.discard_output", lambda: discarded.append(True))
    console = OutputConsole()
    console.file = Closed(number)
    display = PlainDisplay(Path("runs/tiny"), 30, lambda: False, console)
    with display:
        display.phase("update")
        after_steps(display, make_record, 1, 2)
    assert discarded == [True]
    assert capsys.readouterr().err == "populora: the output cannot be written any more; the run in runs/tiny goes on without it\n"


def test_an_evolution_names_births_spared_newborns_and_broken_teachers(make_record):
    evolution = replace(make_record().evolution, spared=("S0",), broken=("T0",))
    said = ["bred T1 = x2(T0, T1)", "newborn S0 stays", "T0 had too few valid problems of a type"]
    assert describe_evolution(evolution) == said and describe_evolution(Evolution()) == []


def test_a_terminal_gets_the_live_display_and_is_given_back():
    console = terminal(_environ={"TERM": "xterm"})
    display = open_display(Path("r"), 3, console=console)
    assert isinstance(display, LiveDisplay)
    with pytest.raises(RuntimeError), display:
        raise RuntimeError
    output = console.file.getvalue()  # type: ignore[attr-defined]
    assert output.index("\x1b[?25l") < output.rindex("\x1b[?25h"), "the cursor is visible again"
    assert isinstance(open_display(Path("r"), 3, console=terminal(_environ={"TERM": "dumb"})), PlainDisplay)


@pytest.mark.parametrize("width", (80, 120))
def test_closing_table_compares_the_ends_of_the_run(make_record, width):
    summary = summarise(finished(Path("runs/tiny"), make_record))
    assert summary.step == summary.steps == 20 and summary.children == 20 and summary.seconds == 200.0
    assert summary.first["archive/coverage"] == pytest.approx(0.03) and summary.last["archive/coverage"] == pytest.approx(0.18)
    assert summary.best == {"teacher": ("T0", 27.0, 2.0), "student": ("S1", 25.0, 2.0)}
    text = rendered(render_summary(summary), width)
    assert max(map(cell_len, text.splitlines())) <= width
    assert all(fact in text for fact in ("20 of 20 steps in 3:20, 20 children bred", "3.0 %", "18.0 %", "+15.0 %", "best student  S1"))
    lines = printed_summary(Path("runs/tiny"), width)
    assert "populora show runs/tiny --step 20" in lines and "populora export runs/tiny --member S1 -o tiny-s1" in lines
    assert not any("populora resume" in line for line in lines), "the run is finished"


def test_closing_table_of_a_run_that_stopped_early(tmp_path, make_record):
    folder = finished(tmp_path / "a long name, with spaces, for a run", make_record, steps=1)
    lines = printed_summary(folder, 40)
    assert f"populora report '{folder}'" in lines and f"populora resume '{folder}'" in lines, "no width breaks a command"
    assert "No step was finished." in printed_summary(finished(tmp_path / "empty", make_record, steps=0), 200)


@pytest.mark.parametrize("width", (60, 80, 160))
def test_live_table_of_two_domains_has_all_their_types_and_sizes(make_mixed_record, width):
    display = LiveDisplay(Path("runs/mixed"), 30, (), lambda: False, terminal(), domains=("python", "sql"))
    text = rendered(after_steps(display, make_mixed_record, 1, 2)._now(), max(width, 120))
    for caption in ("code_f", "sql_i", "sql_o", "lines of code", "clauses", "nesting", "coverage of python", "coverage of sql", "0.0 %"):
        assert caption in text, caption


def test_closing_table_of_two_domains_has_rows_for_each(tmp_path, make_mixed_record):
    folder = tmp_path / "run"
    with new_run(folder, replace(Config(), steps=4, domains=("python", "sql")), {}):
        for step in range(1, 5):
            write_step(folder, make_mixed_record(step))
    text = rendered(render_summary(summarise(folder)), 100)
    rows = {line[:28].strip(): line[28:].split() for line in text.splitlines()}
    assert rows["python: valid problems"][:2] == ["0.75", "0.75"] and rows["sql: valid problems"][:2] == ["0.50", "0.50"]
    assert {"sql: joins", "sql: coverage", "sql: held-out accuracy", "python: lines of code", "solve rate"} <= rows.keys()


def test_small_drawings():
    assert format_duration(151) == "2:31" and format_duration(3751) == "1:02:31"
    assert sparkline([0, 1, 2, 7], 3) == "▁▂█" and sparkline([], 3) == "" and sparkline([5, 5], 9) == "▄▄"
    assert format_metric("archive/coverage", 0.123) == "12.3 %" and format_metric("student/response_length", 3.14159, signed=True) == "+3.1"
    assert plural(1, "child", "children") == "1 child" and plural(2, "step") == "2 steps"


def crowded(size: int) -> dict[str, tuple]:
    """Members of ``size`` teachers and students, and their matchups, with solved shares from 0 to 1."""
    roles = ((Role.TEACHER, "T"), (Role.STUDENT, "S"))
    members = tuple(
        Member(f"{letter}{number}", role, number, Rating(20.0, 2.0), Lineage(f"{letter}{number}"))
        for role, letter in roles
        for number in range(size)
    )
    matchups = tuple(Matchup(f"T{number}", f"S{number}", 0.5, number / (size - 1), "student") for number in range(size))
    return {"members": members, "matchups": matchups, "updates": {}, "evolution": Evolution()}


def test_live_table_has_sixteen_matchups_one_by_one(make_record):
    text = rendered(live_view(make_record, **crowded(16)))
    assert all(f"T{number} 20.0" in text for number in range(16)) and "more" not in text


def test_live_table_of_many_has_the_most_lopsided_and_the_most_even_matchups_and_the_mean_of_the_others(make_record):
    text = rendered(live_view(make_record, **crowded(65)))
    shown = {int(number) for number in re.findall(r"T(\d+) 20\.0", text)}
    assert shown == {0, 1, 63, 64, 2, 30, 31, 32, 33, 34} or shown == {0, 1, 63, 64, 62, 30, 31, 32, 33, 34}
    assert "and 55 more, mean 0.5" in text and len(text.splitlines()) <= 60


def test_live_table_keeps_no_metrics_of_single_members(make_record):
    view = live_view(make_record, [{"step": 1.0, "student/solve_rate/S1": 0.5, "student/solve_rate": 0.4}], [2])
    assert view.history[0] == {"step": 1.0, "student/solve_rate": 0.4}
    assert "student/solve_rate/code_o" in view.history[1] and not any("/S1" in name for name in view.history[1])


def test_many_births_are_counted(make_record):
    (child,) = make_record().evolution.children
    assert describe_evolution(Evolution((child,) * 16, spared=("S0",) * 17)) == ["bred T1 = x2(T0, T1)"] * 16 + ["17 newborns stay"]
    assert describe_evolution(Evolution((child,) * 17)) == ["bred 17 children"]


@pytest.mark.slow
def test_live_table_of_1000_members_fits_a_terminal(make_record):
    view = live_view(make_record, steps=(1, 2), **crowded(500))
    assert len(rendered(view).splitlines()) <= 60


def test_matchups_without_an_attempt_are_counted(make_record):
    seen = crowded(20)
    none, some = ((*(replace(each, mean_rho=None) for each in seen["matchups"][:count]), *seen["matchups"][count:]) for count in (20, 3))
    text = rendered(live_view(make_record, **{**seen, "matchups": none}))
    assert "20 matchups, none with an attempt" in text
    text = rendered(live_view(make_record, **{**seen, "matchups": some}))
    assert "and 7 more, mean" in text and ", 3 without an attempt" in text
