"""What the user sees, rendered into a recorded console: plain lines, the live table at 60 to 160 columns, the closing table."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from populora.cli.train import open_display
from populora.core.config import Config
from populora.core.types import Matchup, Role
from populora.runs.directory import new_run
from populora.runs.display import PlainDisplay
from populora.runs.live import LiveDisplay, View
from populora.runs.metrics import step_metrics
from populora.runs.metrics_log import write_step
from populora.runs.style import bar, format_duration, format_metric, plural, sparkline
from populora.runs.summary import Summary, print_summary, render_summary, summarise
from populora.runs.tables import step_rows

WIDTHS = (60, 80, 109, 110, 120, 160)


def rendered(thing: object, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(thing)
    return console.file.getvalue()  # type: ignore[attr-defined]


def printed(summary: Summary, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    print_summary(console, summary)
    return console.file.getvalue()


def live(make_record, width: int, steps: int = 12, **changes) -> LiveDisplay:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    display = LiveDisplay(Path("runs/tiny"), 30, (), lambda: False, console)
    for step in range(1, steps + 1):
        record = make_record(step, **changes)
        display.step(record, step_metrics(record, step_rows(record)))
    return display


def finished(folder: Path, make_record, steps: int = 20) -> Path:
    with new_run(folder, replace(Config(), steps=steps), {}):
        for step in range(1, steps + 1):
            write_step(folder, make_record(step, coverage={"coverage": step / 100}))
    return folder


@pytest.mark.parametrize("width", WIDTHS)
def test_live_table_fits_its_width_and_cuts_no_number(make_record, width: int):
    display = live(make_record, width)
    display.phase("update")
    text = rendered(display._now(), width)
    assert max(map(cell_len, text.splitlines())) <= width
    assert "…" not in text.replace("left …", "") or width == 60
    for fact in (
        "step 12 of 30",
        "solve rate",
        "0.75",
        "0.50 (0.60)",
        "T0 27.0",
        "S1 25.0",
        "step 12: T1 = x2(T0, T1)",
        "update",
    ):
        assert fact in text
    assert ("±2.0" in text) == (80 <= width < 110 or width >= 160)


def test_live_table_before_the_first_step(make_record):
    text = rendered(View(Path("runs/tiny"), 30, phase="seeding"), 80)
    assert "seeding" in text and "step 0 of 30" in text and "first step" in text


def test_live_table_of_the_single_agent_has_no_race(make_record):
    record = make_record()
    agent = replace(record.members[0], id="A0", role=Role.AGENT)
    display = live(make_record, 80, members=(agent,), matchups=(Matchup("A0", "A0", 0.5, 0.5, "none"),), updates={})
    text = rendered(display._now(), 80)
    assert "1A" in text and "rating" not in text


def test_live_table_of_unequal_sizes_repeats_members(make_record):
    text = rendered(
        live(make_record, 80, matchups=(Matchup("T0", "S0", 0.5, 0.4, "teacher"), Matchup("T0", "S1", 0.5, 0.6, "student")))._now(), 80
    )
    assert text.count("T0 27.0") == 2 and "◀ 0.40" in text and "0.60 (0.50) ▶" in text


def test_stopping_is_said_in_the_live_table():
    assert "Ctrl-C again" in rendered(View(Path("r"), 3, stopping=True), 80)


def test_resumed_history_gives_way_to_steps_that_are_done_again(make_record):
    history = [{"step": float(step), "student/solve_rate": 0.1 * step} for step in (1, 2, 3)]
    display = LiveDisplay(Path("r"), 9, history, lambda: False, Console(file=io.StringIO(), force_terminal=True))
    record = make_record(2)
    display.step(record, step_metrics(record, step_rows(record)))
    assert [line["step"] for line in display._now().history] == [1, 2]


def test_plain_display_is_one_ascii_line_a_step(make_record):
    stream = io.StringIO()
    display = open_display(Path("runs/tiny"), 30, console=Console(file=stream, width=40))
    assert isinstance(display, PlainDisplay)
    with display:
        for step in (1, 2):
            display.phase("update")
            record = make_record(step)
            display.step(record, step_metrics(record, step_rows(record)))
    where, first, second = stream.getvalue().splitlines()
    assert where == "runs/tiny, 30 steps: update"
    assert first.isascii() and first.startswith("step  1/30  10.0s  solve 0.50 (i - o 0.75 f 0.00)  valid 0.67  difficulty 0.50")
    assert first.endswith("left 4:50  bred T1 = x2(T0, T1)") and "mu T 26.0 S 24.0" in second and "left 4:40" in second


def test_plain_display_says_once_that_it_stops():
    stream = io.StringIO()
    asked = [False]
    display = open_display(Path("r"), 3, stopping=lambda: asked[0], console=Console(file=stream))
    display.phase("propose and solve")
    asked[0] = True
    display.phase("update")
    display.phase("store")
    assert stream.getvalue().count("stopping") == 1


def test_a_terminal_gets_the_live_display_and_is_given_back():
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80, _environ={"TERM": "xterm"})
    display = open_display(Path("r"), 3, console=console)
    assert isinstance(display, LiveDisplay)
    with pytest.raises(RuntimeError), display:
        raise RuntimeError
    hidden, shown = "\x1b[?25l", "\x1b[?25h"
    assert stream.getvalue().index(hidden) < stream.getvalue().rindex(shown), "the cursor is shown again"


def test_dumb_terminal_gets_plain_lines():
    console = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "dumb"})
    assert isinstance(open_display(Path("r"), 3, console=console), PlainDisplay)


@pytest.mark.parametrize("width", (80, 120))
def test_closing_table_compares_the_ends_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_record, width: int):
    monkeypatch.chdir(tmp_path)
    summary = summarise(finished(Path("runs/tiny"), make_record))
    assert summary.step == summary.steps == 20 and summary.children == 20 and summary.seconds == 200.0
    assert summary.first["archive/coverage"] == pytest.approx(0.03) and summary.last["archive/coverage"] == pytest.approx(0.18)
    assert summary.best == {"teacher": ("T0", 27.0, 2.0), "student": ("S1", 25.0, 2.0)}
    text = rendered(render_summary(summary), width)
    assert max(map(cell_len, text.splitlines())) <= width
    for fact in ("20 of 20 steps in 3:20, 20 children bred", "3.0 %", "18.0 %", "+15.0 %", "best student  S1"):
        assert fact in text
    lines = [line.strip() for line in printed(summary, width).splitlines()]
    assert "populora show runs/tiny --step 20" in lines and "populora export runs/tiny --member S1 -o tiny-s1" in lines
    assert not any("populora resume" in line for line in lines), "the run is finished"


def test_no_width_breaks_a_command(tmp_path: Path, make_record):
    folder = finished(tmp_path / "a long name, with spaces, for a run", make_record)
    assert f"  populora report '{folder}'" in [line.rstrip() for line in printed(summarise(folder), 40).splitlines()]


def test_closing_table_of_a_stopped_run_says_how_to_go_on(tmp_path: Path, make_record):
    folder = tmp_path / "run"
    with new_run(folder, replace(Config(), steps=9), {}):
        write_step(folder, make_record(1))
    assert f"populora resume {folder}" in printed(summarise(folder, stopped=True), 80)


def test_closing_table_of_a_run_without_a_step(tmp_path: Path):
    with new_run(tmp_path / "run", Config(), {}):
        pass
    assert "No step was finished" in rendered(render_summary(summarise(tmp_path / "run")), 200)


def test_small_drawings():
    assert format_duration(151) == "2:31" and format_duration(3751) == "1:02:31"
    assert sparkline([0, 1, 2, 7], 3) == "▁▂█" and sparkline([], 3) == "" and sparkline([5, 5], 9) == "▄▄"
    assert bar(0.5, 4) == "██  " and bar(2.0, 4) == "████" and bar(0.03125, 4) == "▏   "
    assert format_metric("archive/coverage", 0.123) == "12.3 %" and format_metric("student/response_length", 3.14159, signed=True) == "+3.1"
    assert plural(1, "child", "children") == "1 child" and plural(2, "step") == "2 steps"
