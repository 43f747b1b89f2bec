"""``populora report``: one page from whatever a run has, figures as files, and one error for what is no run."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest

from populora.cli.main import main
from populora.core.config import Config, PopulationConfig
from populora.core.types import Role
from populora.report import catalogue
from populora.report import page as page_module
from populora.report.rendering import drawn
from populora.runs.directory import new_run
from populora.runs.metrics_log import write_step

CONFIG = replace(Config(), steps=3, population=PopulationConfig(2, 2))
AGENT = replace(Config(), steps=3, population=PopulationConfig(single_agent=True))


@pytest.fixture(autouse=True)
def drawn_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures of the page are drawn but not rendered, which takes seconds; `test_a_whole_report` renders them."""
    monkeypatch.setattr(page_module, "svg", lambda one: f"<svg>{len(drawn(one).axes)}</svg>")


@pytest.fixture
def make_run(tmp_path: Path, make_record: Callable) -> Callable[..., Path]:
    """``make_run("name", config, steps)``: a run with so many finished steps."""

    def as_agent(record: SimpleNamespace) -> SimpleNamespace:
        agent = replace(record.members[0], id="A0", role=Role.AGENT)
        changes = {
            "proposals": tuple(replace(one, author="A0") for one in record.proposals), "children": (), "matchups": (), "held_out": {},
            "attempts": tuple(replace(one, student="A0") for one in record.attempts), "members": (agent,),
            "updates": {"A0": record.updates["T0"]},
        }  # fmt: skip
        return SimpleNamespace(**{**vars(record), **changes})

    def make(name: str = "run", config: Config = CONFIG, steps: int = 3) -> Path:
        with new_run(tmp_path / name, config, {"sandbox": "strict"}):
            for step in range(1, steps + 1):
                record = make_record(step)
                write_step(tmp_path / name, as_agent(record) if config.population.single_agent else record)
        return tmp_path / name

    return make


def report(*arguments: object) -> int:
    return main(["report", *map(str, arguments)])


def page_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[str, str]:
    """The page, and what was said on stderr."""
    assert report(*arguments) == 0
    out, err = capsys.readouterr()
    return Path(re.split(r"  \d", out.splitlines()[0])[0]).read_text(), err


def test_the_page_stands_in_the_run_or_where_it_is_told_to_and_is_written_anew(make_run, tmp_path, capsys):
    run = make_run()
    before = sorted(run.iterdir())
    assert report(run) == 0
    out, err = capsys.readouterr()
    assert re.fullmatch(rf"{run}/report\.html  0\.\d MB\n", out) and "Traceback" not in err
    assert sorted(run.iterdir()) == sorted([*before, run / "report.html"]), "nothing else is touched"
    page = (run / "report.html").read_text()
    (run / "report.html").write_text(older := page + "older")
    assert report(run, "-o", tmp_path / "mine.html") == 0 and (run / "report.html").read_text() == older
    assert report(run) == 0
    without_date = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d")
    assert {without_date.sub("", file.read_text()) for file in (run / "report.html", tmp_path / "mine.html")} == {
        without_date.sub("", page)
    }


@pytest.mark.slow
def test_a_whole_report_with_every_figure_in_every_kind(make_run, tmp_path, capsys, monkeypatch):
    monkeypatch.undo()
    kept = ("trueskill", "complexity", "samples")  # rendering all of them takes a minute
    whole = catalogue.figures_of
    monkeypatch.setattr(catalogue, "figures_of", lambda study: [one for one in whole(study) if one.name in (*kept, "retention_live")])
    assert report(make_run(), "--figures", tmp_path / "deep" / "figures") == 0
    assert f"{tmp_path / 'deep' / 'figures'}/  13 files" in capsys.readouterr().out
    files = {file.name: file.read_bytes() for file in (tmp_path / "deep" / "figures").iterdir()}
    assert files.keys() == {"figures.md", *(f"{name}.{kind}" for name in kept for kind in ("svg", "png", "pdf", "csv"))}
    told = files["figures.md"].decode()
    assert told.count("\n## ") == 4 and "\nNot here: give the folder of `populora retention` with --retention DIR.\n" in told
    assert "- **Files**: [trueskill.csv](trueskill.csv), [trueskill.svg](trueskill.svg), " in told
    assert all(files[f"{name}.png"].startswith(b"\x89PNG") and files[f"{name}.pdf"].startswith(b"%PDF") for name in kept)
    rows = list(csv.DictReader(io.StringIO(files["trueskill.csv"].decode())))
    assert {row["value"] for row in rows if row["member"] == "T0"} == {"27.0"}
    page = (tmp_path / "run" / "report.html").read_text()
    assert page.count("<svg") == 3 and "give the folder of <code>populora retention</code> with --retention DIR" in page


def test_several_runs_and_their_baselines_are_arms(make_run, capsys):
    runs = [make_run("first"), make_run("second", replace(CONFIG, seed=1)), make_run("agent", AGENT)]
    page, _ = page_of(capsys, *runs)
    assert "<title>populora: baseline (1 agent) and 2T+2S</title>" in page and "3 runs in 2 arms, up to step 3" in page
    assert "2T+2S: 2 runs, seeds 0, 1" in page and not (runs[1] / "report.html").exists()
    other = make_run("other", replace(CONFIG, selfplay=replace(CONFIG.selfplay, rho_samples=3)))
    page, _ = page_of(capsys, runs[0], "--baseline", other, runs[2])
    assert "3 runs in 3 arms" in page and re.search(r"background:var\(--ink\)\"></span>2T\+2S \(selfplay.rho_samples 3\)", page)


def test_without_a_baseline_figures_that_compare_say_so(make_run, capsys):
    page, err = page_of(capsys, make_run())
    assert "it compares arms: give runs of two or more, such as <code>--baseline RUN</code>" in page and "Traceback" not in err


@pytest.mark.parametrize("cut", ["lines", "parts", "step"])
def test_a_run_that_is_going_on_or_was_killed_in_a_step_is_reported_up_to_its_last_whole_step(make_run, capsys, cut):
    run = make_run()
    if cut in ("lines", "parts"):
        for name in ("metrics.jsonl", "timings.jsonl"):
            whole = (run / name).read_bytes().splitlines(keepends=True)
            (run / name).write_bytes(b"".join(whole[:-1]) + whole[-1][:25])
    if cut == "parts":
        (run / "steps" / "step_00003").rename(run / "steps" / "step_00003.part")
    if cut == "step":
        shutil.rmtree(run / "steps" / "step_00003")
    page, err = page_of(capsys, run)
    assert ("2 of 3" in page) == (cut == "parts")
    expected = {
        "lines": "metrics.jsonl lacks steps: computed again from their tables",
        "step": "steps/ has no tables of steps",
        "parts": "",
    }
    assert expected[cut] in err and expected[cut] in page
    assert ("populora: run: " in err) == ("What is missing" in page) == (cut != "parts")


def test_a_parquet_file_that_is_gone_is_named_on_the_page_and_on_stderr(make_run, capsys):
    run = make_run()
    (run / "steps" / "step_00002" / "attempts.parquet").unlink()
    page, err = page_of(capsys, run)
    note = "attempts.parquet cannot be read: FileNotFoundError (step 2)"
    assert note in page and f"populora: run: {note}\n" in err


def test_an_older_format_is_read_as_far_as_it_goes(make_run, capsys):
    run = make_run()
    for file in run.glob("steps/*/proposals.parquet"):
        pq.write_table(pq.ParquetFile(file).read().drop_columns(["repeat"]), file)
    (run / "metrics.jsonl").unlink()
    settings = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({"population": settings["population"], "older": {"setting": 1}}))
    page, err = page_of(capsys, run)
    assert "proposals.parquet has no column &#39;repeat&#39;: another version wrote it (3 of the steps 1 to 3)" in page
    assert 'id="dynamics" class="absent"' not in page and "metrics.jsonl is not there" in err


def test_a_run_without_a_finished_step_has_a_page(make_run, capsys):
    page, err = page_of(capsys, make_run(steps=0))
    assert "0 of 3" in page and 'id="dynamics" class="absent"' in page and "metrics.jsonl is not there" in err


def test_the_newest_evaluation_of_each_run_is_taken(make_run, capsys):
    run = make_run()
    for step in (2, 10):
        folder = run / "evaluations" / f"step_{step:05d}"
        folder.mkdir(parents=True)
        (folder / "evaluation.json").write_text("{}")
    page, _ = page_of(capsys, run)
    assert "step_00010/evaluation.json&#39; does not describe an evaluation" in page and "step_00002" not in page


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], "no run was named"),
        (["nowhere"], "is not a run directory: expected a 'config.json' in it"),
        (["RUN", "--baseline", "nowhere"], "is not a run directory"),
        (["RUN", "RUN"], "expected each run once"),
        (["RUN", "--baseline", "RUN"], "expected each run once"),
        (["RUN", "--smooth", "0"], "--smooth is 0: expected a number of steps"),
        (["RUN", "--evaluation", "nowhere"], "'nowhere' has no evaluation.json: expected a folder that `populora evaluate` wrote"),
        (["RUN", "--evaluation", "RUN"], "has no evaluation.json"),
        (["RUN", "--retention", "RUN/steps"], "has no config.json: expected a folder that `populora retention` wrote"),
        (["RUN", "-o", "RUN/config.json"], "exists and is no report: choose another file"),
        (["RUN", "-o", "RUN/no/such/page.html"], "cannot write"),
        (["RUN", "--figures", "RUN/config.json"], "cannot write"),
        (["RUN", "--colour", "red"], "--colour"),
    ],
)
def test_what_cannot_be_done_is_one_error(make_run, capsys, monkeypatch, given, told):
    monkeypatch.setattr(catalogue, "figures_of", lambda study: [])
    run = make_run()
    before = (run / "config.json").read_bytes()
    assert report(*(str(one).replace("RUN", str(run)) for one in given)) == 2
    err = capsys.readouterr().err
    assert told in err and "Traceback" not in err and (run / "config.json").read_bytes() == before
